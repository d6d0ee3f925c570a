#!/bin/bash
# Fine-tunes a model on a task (once), then optimises it: one row of docs/results/optimize.md.
#
#   table.sh TASK SEED [sparing optimize's options…]
#
# TASK is cola, mrpc, rte, sst2, stsb, qqp or imdb. Environment: SPARING (the program, built with --features train or cuda), BASE (a pre-trained
# model), GLUE (the folder of GLUE tasks), IMDB (a folder with train.jsonl and test.jsonl: "text" and "label"), OUT (where results go),
# DEVICE (cpu or cuda), LR (the rate of fine-tuning, 1e-4), RECOVER_LR (the rate of trainings after a search, by task), SEARCH_ROWS (1500, of the
# tasks whose train set is split), BF16 (1: trainings multiply in bf16). MPNet was done with LR=3e-5 RECOVER_LR=5e-5 SEARCH_ROWS=600.
#
# What is searched with, and what only the report sees: of SST-2, QQP and IMDB half of the dev (test) set each. Of the others, whose dev sets are small,
# every sixth row of the train set is held out, neither model is trained with it, and it is searched with; the report has the whole dev set.
# (SST-2's train set has parts of its own sentences as rows of their own: what is held out of it is not unseen.)
set -e
task=$1 seed=$2
shift 2
sparing=${SPARING:-sparing} results=${OUT:-results}
bf16=$(if [ "${BF16:-0}" = 1 ]; then echo --bf16; fi)
out=$results/$task-$seed
mkdir -p "$out"
case $task in
rte) folder=RTE header=1 epochs=10 recover=(--epochs 5 --lr 2e-4 --update-rows 64) ;;
mrpc) folder=MRPC header=1 epochs=5 recover=(--epochs 5 --lr 2e-4 --update-rows 64) ;;
stsb) folder=STS-B header=1 epochs=5 recover=(--epochs 3 --lr 2e-4 --update-rows 64) ;;
cola) folder=CoLA header=0 epochs=5 recover=(--epochs 8 --lr 2e-4 --update-rows 64) ;;
qqp) folder= epochs=3 recover=(--epochs 2 --lr 2e-4 --update-rows 64) ;;
sst2) folder= epochs=2 recover=(--epochs 1 --lr 1.5e-4 --update-rows 128) ;;
imdb) folder= epochs=2 recover=(--epochs 2 --lr 1e-4 --update-rows 64) ;;
*) echo "$task: cola, mrpc, rte, sst2, stsb, qqp and imdb are known" && exit 2 ;;
esac
if [ -n "${RECOVER_LR:-}" ]; then recover[3]=$RECOVER_LR; fi
if [ "$task" = imdb ]; then
    tune=(--data "$IMDB/train.jsonl" --dev "$IMDB/test.jsonl" --max-tokens 256)
    search=(--data "$IMDB/test.jsonl" --train "$IMDB/train.jsonl" --max-tokens 256)
elif [ -n "$folder" ]; then
    split=$results/split/$folder
    if [ ! -f "$split/train.tsv" ]; then
        mkdir -p "$split"
        awk -v h="$header" 'NR <= h || NR % 6 == 0' "$GLUE/$folder/train.tsv" > "$split/dev.$$" && mv "$split/dev.$$" "$split/dev.tsv"
        awk -v h="$header" 'NR <= h || NR % 6 != 0' "$GLUE/$folder/train.tsv" > "$split/train.$$" && mv "$split/train.$$" "$split/train.tsv"
    fi
    tune=(--task "$task" --data "$results/split") search=(--task "$task" --data "$results/split" --unseen "$GLUE" --search-rows "${SEARCH_ROWS:-1500}")
else
    tune=(--task "$task" --data "$GLUE") search=(--task "$task" --data "$GLUE")
fi
# The model as it comes is the one of the last epoch: the dev part is not to choose it.
exec 9> "$out/.model" && flock 9
if [ ! -d "$out/model" ]; then
    "$sparing" train finetune "$BASE" "${tune[@]}" --epochs "$epochs" --lr "${LR:-1e-4}" --batch 64 --eval-every 1000000 --seed "$seed" --device "${DEVICE:-cpu}" $bf16 \
        --out "$out/model" --json > "$out/model.json"
fi
exec 9>&-
name=$(echo "$*" | tr -cs 'a-z0-9' '-')
"$sparing" optimize "$out/model" "${search[@]}" --recover --device "${DEVICE:-cpu}" $bf16 --seed "$seed" "${recover[@]}" "$@" \
    --out "$out/optimized$name" --json > "$out/report$name.json"
