#!/bin/bash
# Fine-tunes a model on a task, then optimises it: one row of docs/results/optimize.md.
#
#   table.sh TASK SEED [sparing optimize's options…]
#
# TASK is cola, mrpc, rte, sst2, stsb, qqp or imdb. Environment: SPARING (the program, built with --features train or cuda), BASE (a pre-trained
# model), GLUE (the folder of GLUE tasks), IMDB (a folder with train.jsonl and test.jsonl: "text" and "label"), OUT (where results go),
# DEVICE (cpu or cuda).
set -e
task=$1 seed=$2
shift 2
sparing=${SPARING:-sparing} out=${OUT:-results}/$task-$seed
mkdir -p "$out"
case $task in
rte | mrpc | stsb) epochs=5 recover=(--epochs 4 --lr 2e-4) ;;
cola) epochs=4 recover=(--epochs 4 --lr 2e-4) ;;
qqp) epochs=2 recover=(--epochs 2 --lr 2e-4) ;;
sst2) epochs=2 recover=(--epochs 1 --lr 1e-4) ;;
imdb) epochs=2 recover=(--epochs 2 --lr 1e-4 --search-rows 500) ;;
*) echo "$task: cola, mrpc, rte, sst2, stsb, qqp and imdb are known" && exit 2 ;;
esac
if [ "$task" = imdb ]; then
    tune=(--data "$IMDB/train.jsonl" --dev "$IMDB/test.jsonl" --max-tokens 256)
    search=(--data "$IMDB/test.jsonl" --train "$IMDB/train.jsonl" --max-tokens 256)
else
    tune=(--task "$task" --data "$GLUE") search=(--task "$task" --data "$GLUE")
fi
# The model as it comes is the one of the last epoch: the dev part is not to choose it.
if [ ! -d "$out/model" ]; then
    "$sparing" train finetune "$BASE" "${tune[@]}" --epochs "$epochs" --lr 1e-4 --batch 64 --eval-every 1000000 --seed "$seed" --device "${DEVICE:-cpu}" \
        --out "$out/model" --json > "$out/model.json"
fi
name=$(echo "$*" | tr -cs 'a-z0-9' '-')
"$sparing" optimize "$out/model" "${search[@]}" --recover --update-rows 64 --device "${DEVICE:-cpu}" --seed "$seed" "${recover[@]}" "$@" \
    --out "$out/optimized$name" --json > "$out/report$name.json"
