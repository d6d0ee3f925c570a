#!/usr/bin/env bash
# The table of docs/results/glue.md: every GLUE task with a training part, five seeds, Sparing and PyTorch, one after the other.
#
#   bench/training/glue.sh MODEL GLUE OUT [cpu|cuda]
#
# Writes OUT/TASK.json (what Sparing says) and OUT/TASK.pytorch.json; tasks that are there already are skipped.
set -euo pipefail
model=$1 glue=$2 out=$3 device=${4:-cuda}
sparing=${SPARING:-target/release/sparing}
seeds=${SEEDS:-0,1,2,3,4}
mkdir -p "$out"
while read -r task epochs rate; do
    if [ ! -s "$out/$task.json" ]; then
        "$sparing" train finetune "$model" --task "$task" --data "$glue" --out "$out/$task" --epochs "$epochs" --lr "$rate" \
            --seed "$seeds" --device "$device" --overwrite --json >"$out/$task.partial"
        mv "$out/$task.partial" "$out/$task.json"
    fi
    if [ ! -s "$out/$task.pytorch.json" ]; then
        python3 "$(dirname "$0")/reference.py" "$model" --task "$task" --data "$glue" --epochs "$epochs" --lr "$rate" \
            --seed "$seeds" --device "$device" >"$out/$task.partial"
        mv "$out/$task.partial" "$out/$task.pytorch.json"
    fi
done <<'TASKS'
wnli 5 1e-4
mrpc 5 1e-4
rte 10 1e-4
stsb 6 1e-4
cola 5 1e-4
qqp 3 5e-5
sst2 3 5e-5
TASKS
