#!/bin/bash
# Trains the table of docs/results/lra.md on one GPU, in slices that can be stopped and repeated: the same call goes on.
#
#   bench/lra/gpu.sh SPARING DATA RUNS TASK UNTIL [ATTENTION]
#
# SPARING: the program, built with `cargo build --release --features train,cuda`
# DATA:    prepared data; ListOps, Pathfinder and Path-X are made here if they are missing, text, image and
#          wikipedia-retrieval must have been prepared where the public files are and carried
# RUNS:    where runs are kept (small: carry it back and forth)
# TASK:    listops, text, image, pathfinder, wikipedia-retrieval or path-x
# UNTIL:   updates to come to, equal for all mechanisms
set -e
sparing=$1 data=$2 runs=$3 task=$4 until=$5 attention=${6:-all}
case $task in
listops | pathfinder | path-x)
    [ -f "$data/$task/test.lra" ] || "$sparing" lra prepare "$task" --out "$data"
    ;;
esac
"$sparing" lra train "$task" --attention "$attention" --data "$data" --out "$runs" --device cuda \
    --until "$until" --eval-every 1000 --checkpoint-steps 500 --test-examples 2000 --json
"$sparing" lra table "$runs"
