#!/bin/bash
# Trains the table of docs/results/lra.md on one GPU: all mechanisms on four tasks, many processes side by side.
#
#   bench/lra/gpu.sh SPARING DATA RUNS      the same call goes on where the last one ended
#
# SPARING: the program, built with `cargo build --release --features train,cuda`
# DATA:    prepared data; ListOps, Pathfinder and Path-X are made here if they are missing; text, image and
#          wikipedia-retrieval must have been prepared where the public files are and carried
# RUNS:    a directory per training, logs/, failures.txt (what failed and its last line) and table.md
#
# Settings, by the environment:
#   UNTIL_SECONDS 480       every training stops by itself then, is tested and recorded; plan a minute more for that
#   PARALLEL      14        processes
#   HEAVY         2         of them on text, wikipedia-retrieval or path-x with a mechanism that makes an n x n matrix
#   MEMORY        125       GiB of the GPU to share out, by the guesses below; what is guessed to need more runs alone
#   CONFIG        short     updates, batches and rates: bench/lra/short.json
#   TASKS, ATTENTION        what to train; image, pathfinder, listops and text, and all mechanisms
#   DEVICE        cuda
#   KEEP          RUNS/records.tar.gz   records, logs and table, written anew every few seconds
#   SPEED         240       seconds for speeds and memory at LENGTHS after the trainings, one process alone; 0: none
#   LENGTHS       1024,2048,3072,4096
#   SPEED_BATCH   32        sequences per update there
set -u
sparing=$1 data=$2 runs=$3
here=$(dirname "$0")
until_seconds=${UNTIL_SECONDS:-480} parallel=${PARALLEL:-14} heavy=${HEAVY:-2} memory=${MEMORY:-125}
config=${CONFIG:-$here/short.json} device=${DEVICE:-cuda} keep=${KEEP:-$runs/records.tar.gz}
speed=${SPEED:-240} lengths=${LENGTHS:-1024,2048,3072,4096} speed_batch=${SPEED_BATCH:-32}
# Small tasks first: what a process has reserved on the GPU only grows.
tasks=${TASKS:-image pathfinder listops text}
attention=${ATTENTION:-$(grep -o '^  "[a-z-]*"' "$here/../../crates/train/configs/attention.json" | tr -d ' "')}
squares="full memory-compressed synthesizer-dense synthesizer-random synthesizer-fixed synthesizer-factorised-dense
synthesizer-factorised-random synthesizer-mixture long-short monte-carlo graded"
# A process has a GPU to wait for, not cores to fill.
export RAYON_NUM_THREADS=1
mkdir -p "$runs/logs" "$data"

left() { echo $((until_seconds - SECONDS)); }

prepare() { # task, examples
    [ -f "$data/$1/test.lra" ] || "$sparing" lra prepare "$1" --examples "$2" --out "$data" >"$runs/logs/prepare-$1.log" 2>&1
}

collect() {
    "$sparing" lra table "$runs" --config "$(basename "$config" .json)" --out "$runs/table.md" --svg "$runs/table.svg" 2>/dev/null
    (cd "$runs" && find . -name record.json -o -name train.jsonl -o -name '*.log' -o -name failures.txt -o -name 'table.*' -o -path './speed/*.json') |
        tar -C "$runs" -czf "$keep.partial" -T - && mv "$keep.partial" "$keep"
}

train() { # attention, tasks
    local log="$runs/logs/$1-${2// /-}.log" seconds
    seconds=$(left)
    [ "$seconds" -gt 0 ] || return 0
    # shellcheck disable=SC2086
    timeout -k 5 $((seconds + 45)) "$sparing" lra train $2 --attention "$1" --data "$data" --out "$runs" --device "$device" \
        --config "$config" --seconds "$seconds" --checkpoint-steps 200 --dev-examples 1000 --test-examples 2000 --json >"$log" 2>&1
}

job() { # attention, tasks: where they do not get through together, each by itself
    train "$1" "$2" && return
    local task
    for task in $2; do
        train "$1" "$task" || echo "$task $1: $(tail -n 1 "$runs/logs/$1-$task.log")" >>"$runs/failures.txt"
    done
}

# GiB that a mechanism with an n x n matrix takes on a task in the batches of short.json: text's 16 sequences of 4000 tokens
# take 26, retrieval's are twice as many, Path-X's 8 of 16384 have eight times as many pairs. Nothing for what is not heavy.
heavy_on() {
    local size
    case $1 in
    text) size=26 ;;
    wikipedia-retrieval) size=52 ;;
    path-x) size=218 ;;
    *) return ;;
    esac
    echo $((size < memory ? size : memory))
}

# Lines of GiB, attention, tasks; the largest first. Tasks share a process: its kernels are compiled once. Heavy ones do not:
# what a process has reserved for one stays reserved.
queue=()
others=() longest=() light=6
for task in $tasks; do
    [ -n "$(heavy_on "$task")" ] && longest+=("$task") || others+=("$task")
    # Twice the tokens of text's batches.
    case $task in wikipedia-retrieval | path-x) light=12 ;; esac
done
for kind in $attention; do
    if [[ " ${squares//$'\n'/ } " == *" $kind "* ]]; then
        for task in "${longest[@]}"; do queue=("$(heavy_on "$task") $kind $task" "${queue[@]}"); done
        [ ${#others[@]} -gt 0 ] && queue+=("18 $kind ${others[*]}")
    fi
done
for kind in $attention; do
    [[ " ${squares//$'\n'/ } " == *" $kind "* ]] || queue+=("$light $kind $tasks")
done

for task in $tasks; do
    case $task in
    listops | pathfinder | path-x) ;;
    *)
        if [ ! -f "$data/$task/test.lra" ]; then
            echo "$data/$task/test.lra is missing: run \`sparing lra prepare $task --data PUBLIC --out $data\` where the public files are" >&2
            exit 2
        fi
        ;;
    esac
done
for task in $tasks; do
    case $task in
    listops) prepare listops 32000 & ;;
    pathfinder) prepare pathfinder 48000 & ;;
    path-x) prepare path-x 20000 & ;;
    esac
done
wait
(while sleep 15; do collect; done) &
collector=$!
trap 'kill $collector 2>/dev/null' EXIT

declare -A held=()
used=0 large=0
while [ ${#queue[@]} -gt 0 ] || [ ${#held[@]} -gt 0 ]; do
    waiting=()
    for line in "${queue[@]}"; do
        read -r size kind list <<<"$line"
        if [ "$(left)" -lt 20 ]; then
            continue
        elif [ ${#held[@]} -ge "$parallel" ] || [ $((used + size)) -gt "$memory" ] || { [ "$size" -ge 26 ] && [ "$large" -ge "$heavy" ]; }; then
            waiting+=("$line")
        else
            job "$kind" "$list" &
            held[$!]=$size
            used=$((used + size))
            [ "$size" -ge 26 ] && large=$((large + 1))
        fi
    done
    queue=("${waiting[@]}")
    if [ ${#held[@]} -gt 0 ]; then
        wait -n -p ended "${!held[@]}"
        used=$((used - held[$ended]))
        [ "${held[$ended]}" -ge 26 ] && large=$((large - 1))
        unset "held[$ended]"
    fi
done
# By itself: what is measured side by side disturbs each other.
[ "$speed" = 0 ] || "$sparing" lra speed --out "$runs" --attention "${attention//[[:space:]]/,}" --length "$lengths" --batch "$speed_batch" \
    --config "$config" --device "$device" --seconds "$speed" >"$runs/logs/speed.log" 2>&1
kill $collector
collect
cat "$runs/table.md"
[ -f "$runs/failures.txt" ] && cat "$runs/failures.txt"
exit 0
