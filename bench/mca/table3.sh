#!/bin/bash
# Table 3 of Monte-Carlo Attention: models with windows of 256 tokens and a global first token, made from one that has none, on long texts.
#
#   table3.sh [sparing study mca's options…]
#
# Environment: SPARING (the program, built with --features train or cuda), BASE (a pre-trained BERT or RoBERTa), DATA (a folder with imdb/train.jsonl.zst,
# imdb/test.jsonl.zst and hyperpartisan/*.xml), OUT (where everything goes), DEVICE (cpu or cuda), TASKS ("imdb hnd"), SEED.
#
# A model is trained once; it is that of the last epoch, so the test part does not choose it.
set -e
sparing=${SPARING:-sparing} out=${OUT:-mca} seed=${SEED:-0}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
models=()
for task in ${TASKS:-imdb hnd}; do
    case $task in
    imdb)
        how=(--epochs 2 --batch 16 --lr 5e-5)
        for part in train test; do
            name=imdb; [ $part = train ] && name=imdb-train
            [ -f "$out/$name.jsonl" ] || zstd -dqf "$DATA/imdb/$part.jsonl.zst" -o "$out/$name.jsonl"
        done
        ;;
    hnd)
        how=(--epochs 15 --batch 16 --lr 5e-5)
        [ -f "$out/hnd-train.jsonl" ] || python3 "$here/hyperpartisan.py" "$DATA/hyperpartisan" "$out"
        ;;
    *) echo "$task: imdb and hnd are known" && exit 2 ;;
    esac
    model=$out/$task-window-$seed
    if [ ! -d "$model" ]; then
        "$sparing" train finetune "$BASE" --data "$out/$task-train.jsonl" --dev "$out/$task.jsonl" --text text --label label \
            --window 256 --positions 1024 --max-tokens 1024 "${how[@]}" --eval-every 1000000 --seed "$seed" --device "${DEVICE:-cpu}" --out "$model"
    fi
    models+=(--model "$out/$task.jsonl=$model")
done
"$sparing" study mca "${models[@]}" --out "$out/study" "$@"
