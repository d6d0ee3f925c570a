#!/usr/bin/env bash
# The study of docs/results/ma-bert.md: a teacher per task, then students with matrix arithmetic only, five seeds each.
#
#   bench/ma-bert/study.sh BASE GLUE CORPUS OUT [cpu|cuda]
#
# BASE: a pre-trained encoder (all-MiniLM-L6-v2). GLUE: the folder of the tasks, with imdb.jsonl and imdb-test.jsonl (fields
# text, label) beside them for IMDB. CORPUS: plain text, documents divided by blank lines. Needs the program alone (SPARING), no
# compiler and no network. Every result is OUT/KIND-TASK.json; those that are there already are skipped, so that the script can
# be run again where time ran out. After every run its seconds are printed.
#
#   SIZE=probe   one task, one seed, a few updates: does it run, and how long does an update take (about 30 s)
#   SIZE=small   RTE, MRPC and CoLA, one seed, 300 updates of transfer on text (about 2 min)
#   SIZE=medium  all tasks, one seed, 3000 updates on text, one epoch less than half of the paper's (about 8 min)
#   SIZE=full    the study: five seeds, the paper's epochs, 20000 updates on text
set -euo pipefail
base=$1 glue=$2 corpus=$3 out=$4 device=${5:-cuda}
sparing=${SPARING:-target/release/sparing}
size=${SIZE:-full}
case $size in
probe) tasks="rte" seeds=0 general=20 share=0 limit="--steps 20" ;;
small) tasks="rte mrpc cola" seeds=0 general=300 share=3 limit="" ;;
medium) tasks="rte mrpc cola stsb sst2 imdb" seeds=0 general=3000 share=3 limit="--limit 8000" ;;
full) tasks="rte mrpc cola stsb sst2 imdb" seeds=0,1,2,3,4 general=20000 share=1 limit="" ;;
*) echo "SIZE=$size: probe, small, medium or full" >&2 && exit 2 ;;
esac
bf16=""
if [ "$device" != cpu ]; then bf16="--bf16"; fi
mkdir -p "$out"

# Runs a training unless its result is there, and says how long it took.
run() {
    local name=$1
    shift
    if [ -s "$out/$name.json" ]; then return; fi
    local began=$SECONDS
    "$sparing" train "$@" --out "$out/$name" --device "$device" $bf16 --overwrite --json >"$out/$name.partial"
    mv "$out/$name.partial" "$out/$name.json"
    echo "$name: $((SECONDS - began)) s"
}

# Where a task's examples are, and the paper's batch and epochs.
data() {
    case $1 in
    imdb) echo "--data $glue/imdb.jsonl --dev $glue/imdb-test.jsonl --text text --label label" ;;
    *) echo "--task $1 --data $glue" ;;
    esac
}
batch() { case $1 in sst2 | imdb) echo 32 ;; *) echo 16 ;; esac; }
epochs() {
    local all=10
    case $1 in sst2 | imdb) all=5 ;; esac
    echo $((share > 0 ? (all + share - 1) / share : 1))
}

# The teachers, and the first seed's as the one to learn from.
for task in $tasks; do
    # shellcheck disable=SC2046
    run "teacher-$task" finetune "$base" $(data "$task") --epochs 5 --lr 5e-5 --seed "$seeds" $limit
done
teacher() { if [ -d "$out/teacher-$1/seed-0" ]; then echo "$out/teacher-$1/seed-0"; else echo "$out/teacher-$1"; fi; }

# On plain text, once per kind of student: the head is whatever the first teacher has, and learns nothing here.
first=$(teacher "${tasks%% *}")
kinds="ma shared linear"
how() { case $1 in shared) echo "--softmax shared" ;; linear) echo "--linear 64" ;; esac; }
for kind in $kinds; do
    # shellcheck disable=SC2046
    run "general-$kind" transfer --teacher "$first" --to ma $(how "$kind") --corpus "$corpus" --steps "$general" \
        --batch 32 --accumulate 8 --lr 1e-4 --warmup 0.1 --norm-warmup 0.1 --dropout 0
done

# Per task, from there; and without a teacher, from the same beginning.
for task in $tasks; do
    for kind in $kinds alone; do
        from=$kind extra=""
        if [ "$kind" = alone ]; then from=ma extra="--no-teacher"; fi
        # shellcheck disable=SC2046
        run "$kind-$task" transfer --teacher "$(teacher "$task")" --to ma --student "$out/general-$from" $extra \
            $(data "$task") --batch "$(batch "$task")" --epochs "$(epochs "$task")" --lr 2e-5 --norm-warmup 0 --seed "$seeds" $limit
    done
done
