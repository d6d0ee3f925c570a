#!/usr/bin/env bash
# The study of docs/results/ma-bert.md: a teacher per task, then students with matrix arithmetic only, many trainings side by side.
#
#   bench/ma-bert/study.sh BASE GLUE OUT [cpu|cuda]
#
# BASE: a pre-trained encoder (all-MiniLM-L6-v2). GLUE: the folder of the tasks, with imdb.jsonl and imdb-test.jsonl (fields text,
# label) beside them for IMDB. Needs the program alone (SPARING), no compiler and no network.
#
# OUT/results/KIND-TASK-SEED.json says what came of a training: {"kind", "task", "seed", "finished", "teacher": scores,
# "student": scores, "curve": [{"step", "metrics"}, …], "failed": why}. They are written anew every few seconds, so whatever stops the script leaves
# every curve as far as it had come. Run again, it skips what is finished and goes on with the rest from their checkpoints. A training that fails is tried
# once more.
#
#   SIZE=tiny|small|paper  a check on a CPU | half an hour of a GPU | the paper's epochs
#   TASKS, KINDS, SEEDS    which: "cola mrpc rte sst2 stsb imdb", "ma shared linear alone", "0". The kind power is ma with norms trained as published
#   SEED_KINDS             kinds that are trained with the seeds after the first too: some of KINDS, or "all" (the first kind)
#   PARALLEL               trainings at the same time (1)
#   LIMIT                  seconds after which everything is asked to save and stop (none)
#   TEACHERS               a folder with a fine-tuned model TASK, or TASK-SEED, for some tasks, which then need no training
#   TEACHER_SEEDS          first: students of all seeds learn from one teacher (the default); all: every seed has a teacher of its own
#   CORPUS, GENERAL        plain text, documents divided by blank lines, and updates of transfer from BASE on it before the tasks (none). Without
#                          it there is no kind alone: what has learned nothing from a teacher before cannot learn from labels
#   LAYERS                 the models of TEACHERS are distilled to so many layers first, and these teach (DistilBERT's stand-in); no plain text
#   STUDENTS               no: teachers and plain text alone, which a later call goes on from
#   WORK                   where models go (OUT/work)
#   MORE                   more options of every training (--no-record)
#
# Ends with 0 if all of it is finished, or LIMIT was reached; with 1 if a training failed or waits for one that did; with 2 if what was asked for
# cannot be. What is left is named.
set -uo pipefail
base=$1 glue=$2 out=$3 device=${4:-cuda}
sparing=${SPARING:-target/release/sparing}
size=${SIZE:-small} begin="" rate=""
case $size in
tiny) defaults="rte" updates="--batch 16 --steps 6 --eval-every 3" begin="--begin-texts 16 --begin-steps 5" teacher_updates="--steps 6 --eval-every 3" cut="--limit 64" ;;
small) defaults="cola mrpc rte sst2 stsb imdb" updates="--batch 32 --steps 2000 --eval-every 250" teacher_updates="--steps 1500 --eval-every 250" cut="" ;;
paper) defaults="cola mrpc rte sst2 stsb imdb" updates="" rate="--lr 2e-5" teacher_updates="--epochs 5" cut="" ;;
*) echo "SIZE=$size: tiny, small or paper" >&2 && exit 2 ;;
esac
tasks=${TASKS:-$defaults} kinds=${KINDS:-ma shared linear alone} seeds=${SEEDS:-0}
parallel=${PARALLEL:-1} limit=${LIMIT:-0} general=${GENERAL:-0} layers=${LAYERS:-0} teacher_seeds=${TEACHER_SEEDS:-first}
case $teacher_seeds in first | all) ;; *) echo "TEACHER_SEEDS=$teacher_seeds: first or all" >&2 && exit 2 ;; esac
if [ "$layers" -gt 0 ]; then general=0; fi
work=${WORK:-$out/work} results=$out/results
refuse() { echo "$1" >&2 && exit 2; }
if [ "$general" -gt 0 ] && [ ! -f "${CORPUS:-}" ]; then refuse "CORPUS=${CORPUS:-}: GENERAL=$general needs a file of plain text"; fi
if [ "$layers" -gt 0 ] && [ ! -d "${TEACHERS:-}" ]; then refuse "TEACHERS=${TEACHERS:-}: LAYERS=$layers needs a folder of models to distil"; fi
wanted=$kinds kinds=""
for kind in $wanted; do
    case $kind in
    ma | power | shared | linear) kinds="$kinds $kind" ;;
    alone) if [ "$general" -gt 0 ]; then kinds="$kinds $kind"; fi ;;
    *) refuse "KINDS: $kind: ma, power, shared, linear or alone" ;;
    esac
done
kinds=${kinds# }
if [ -z "$kinds" ]; then refuse "KINDS=\"$wanted\": alone needs CORPUS and GENERAL, and no LAYERS; nothing else is asked for"; fi
seed_kinds=${SEED_KINDS:-${kinds%% *}}
if [ "$seed_kinds" = all ]; then seed_kinds=$kinds; fi
for kind in $seed_kinds; do
    case " $kinds " in *" $kind "*) ;; *) refuse "SEED_KINDS: $kind is not among the kinds that are trained: $kinds" ;; esac
done
mkdir -p "$work" "$results"

# IMDB is scored often: by every fourth review, but in the paper's size.
imdb_dev=$glue/imdb-test.jsonl
if [ "$size" != paper ] && [ -f "$imdb_dev" ]; then
    awk 'NR % 4 == 1' "$imdb_dev" >"$work/imdb-dev.jsonl" && imdb_dev=$work/imdb-dev.jsonl
fi
data() {
    case $1 in
    imdb) echo "--data $glue/imdb.jsonl --dev $imdb_dev --text text --label label" ;;
    *) echo "--task $1 --data $glue" ;;
    esac
}
# The paper's batches and epochs, where the size says nothing else.
how() {
    local epochs=10 batch=16
    case $1 in sst2 | imdb) epochs=5 batch=32 ;; esac
    echo "${updates:---batch $batch --epochs $epochs}"
}
kind_options() {
    case $1 in
    shared) echo "--softmax shared" ;;
    linear) echo "--linear 64" ;;
    power) echo "--norm-warmup 0.1" ;;
    alone) echo "--no-teacher ${rate:---lr 5e-5}" && return ;;
    esac
    echo "$rate"
}
first=${seeds%% *}
# A student's TASK-SEED as its teacher's.
taught_as() { if [ "$teacher_seeds" = all ]; then echo "$1"; else echo "${1%-*}-$first"; fi; }
# The model of TEACHERS for a teacher's TASK-SEED, if it is there.
given() {
    local of
    for of in "$1" "${1%-*}"; do if [ -d "${TEACHERS:-/nowhere}/$of" ]; then echo "$TEACHERS/$of" && return; fi; done
    return 1
}
# The model that a student learns from, by the teacher's TASK-SEED.
teacher() { { [ "$layers" -eq 0 ] && given "$1"; } || echo "$work/teacher-$1"; }
ready() { [ -f "$1/config.json" ] && [ ! -d "$1.work" ]; }

# What a training needs before it can begin: the directories of finished models.
needs() {
    local kind=${1%%-*} rest=${1#*-}
    case $kind in
    teacher | general) ;;
    *)
        teacher "$(taught_as "$rest")"
        if [ "$general" -gt 0 ]; then echo "$work/general-$(begins_as "$kind")-$first"; fi
        ;;
    esac
}
begins_as() { case $1 in alone | power) echo ma ;; *) echo "$1" ;; esac; }

# One training in this process's place, by its name KIND-TASK-SEED (general-KIND-SEED on plain text).
start() {
    local kind=${1%%-*} rest=${1#*-} seed=${1##*-}
    local task=${rest%-*} from=$begin
    local common="--out $work/$1 --seed $seed --device $device --resume --json ${MORE:-}"
    # shellcheck disable=SC2046,SC2086
    case $kind in
    teacher) if [ "$layers" -gt 0 ]; then
        exec "$sparing" train distill --teacher "$(given "$rest" || echo "$TEACHERS/$task")" --layers "$layers" $(data "$task") $teacher_updates --batch 32 --lr 2e-4 --hidden 1 \
            $([ "$task" = stsb ] && echo "--kl 0 --logits 0.5") $cut $common
    fi
    exec "$sparing" train finetune "$base" $(data "$task") $teacher_updates --lr 5e-5 $cut $common ;;
    general) exec "$sparing" train transfer --teacher "$base" --to ma $(kind_options "$task") --corpus "$CORPUS" \
        --steps "$general" --batch 64 --warmup 0.05 $begin $common ;;
    *)
        if [ "$general" -gt 0 ]; then from="--student $work/general-$(begins_as "$kind")-$first"; fi
        exec "$sparing" train transfer --teacher "$(teacher "$(taught_as "$rest")")" --to ma $(kind_options "$kind") $from $(data "$task") $(how "$task") \
            $cut $common
        ;;
    esac >"$work/$1.out" 2>"$work/$1.log"
}

# A teacher's scores on the dev set, once, by its TASK-SEED.
score() {
    local at="$work/score-$1.json" task=${1%-*} dev
    dev="--task $task --data $glue"
    if [ "$task" = imdb ]; then dev="--data $imdb_dev --text text --label label"; fi
    # shellcheck disable=SC2086
    if [ ! -s "$at" ]; then "$sparing" eval "$(teacher "$1")" $dev --max-tokens 128 --json >"$at.part" 2>"$at.log" && mv "$at.part" "$at"; fi
}

# Writes down what is known of a training.
record() {
    local kind=${1%%-*} rest=${1#*-} seed=${1##*-} at="$work/$1"
    local task=${rest%-*} log="$at/train.jsonl" finished=true student=null scored=null failed=null known
    known="$work/score-$(taught_as "$rest").json"
    if [ ! -s "$at/training.json" ] || [ -d "$at.work" ]; then finished=false log="$at.work/seed-$seed/train.jsonl"; fi
    [ -s "$log" ] || return 0
    if [ "$finished" = true ]; then student=$(cat "$at/training.json"); fi
    if [ -s "$known" ]; then scored=$(cat "$known"); fi
    local curve
    curve=$(grep '"metrics"' "$log" | paste -sd, -)
    if [ -s "$at.failed" ]; then failed="\"$(cat "$at.failed")\""; fi
    printf '{"kind":"%s","task":"%s","seed":%s,"finished":%s,"teacher":%s,"student":%s,"curve":[%s],"failed":%s}\n' \
        "$kind" "$task" "$seed" "$finished" "$scored" "$student" "$curve" "$failed" >"$results/.$1.part"
    mv "$results/.$1.part" "$results/$1.json"
}

# What students wait for comes before them.
names="" teachers=""
list() { case " $names " in *" $1 "*) ;; *) names="$names $1" ;; esac; }
list_teacher() {
    case " $teachers " in *" $1 "*) ;; *) teachers="$teachers $1" ;; esac
    if [ "$layers" -gt 0 ] || ! given "$1" >/dev/null; then list "teacher-$1"; fi
}
if [ "$general" -gt 0 ]; then for kind in $kinds; do list "general-$(begins_as "$kind")-$first"; done; fi
for seed in $seeds; do for task in $tasks; do list_teacher "$(taught_as "$task-$seed")"; done; done
for seed in $seeds; do
    of_seed=$kinds
    if [ "$seed" != "$first" ]; then of_seed=$seed_kinds; fi
    if [ "${STUDENTS:-yes}" = no ]; then continue; fi
    for kind in $of_seed; do for task in $tasks; do list "$kind-$task-$seed"; done; done
done

declare -A pid_of=() scoring=() tries=()
waiting=$names stopped=false scorer=""
alive() { kill -0 "$1" 2>/dev/null; }
stop() {
    # Twice would not save.
    for name in "${!pid_of[@]}"; do kill -INT "${pid_of[$name]}" 2>/dev/null; done
    wait
    for name in $names; do record "$name"; done
}
trap 'stop; exit 130' INT TERM
while :; do
    for name in "${!pid_of[@]}"; do
        record "$name"
        if ! alive "${pid_of[$name]}"; then
            if ready "$work/$name"; then
                echo "$name: finished at $SECONDS s"
            else
                tail -n 1 "$work/$name.log" | tr -d '"\\' >"$work/$name.failed"
                if [ ! -s "$work/$name.failed" ]; then echo "ended without a word" >"$work/$name.failed"; fi
                echo "$name: $(cat "$work/$name.failed")" >&2
                record "$name"
                # Others may have taken a device's memory: once more, behind those that wait.
                tries[$name]=$((${tries[$name]:-0} + 1))
                if [ "${tries[$name]}" -lt 2 ]; then waiting="$waiting $name"; fi
            fi
            unset "pid_of[$name]"
        fi
    done
    left=""
    for name in $waiting; do
        if [ ${#pid_of[@]} -ge "$parallel" ]; then left="$left $name" && continue; fi
        can=true
        for model in $(needs "$name"); do ready "$model" || can=false; done
        if ready "$work/$name"; then
            record "$name"
        elif [ $can = true ]; then
            rm -f "$work/$name.failed"
            start "$name" &
            pid_of[$name]=$!
        else
            left="$left $name"
        fi
    done
    waiting=$left
    # One at a time: scoring takes all cores.
    for of in $teachers; do
        if [ -n "$scorer" ] && alive "$scorer"; then break; fi
        if [ -z "${scoring[$of]:-}" ] && ready "$(teacher "$of")"; then
            score "$of" &
            scorer=$! scoring[$of]=begun
        fi
    done
    # Nothing runs, and what waits has nothing to wait for.
    if [ ${#pid_of[@]} -eq 0 ]; then break; fi
    if [ "$limit" -gt 0 ] && [ $SECONDS -ge "$limit" ]; then stop && stopped=true && break; fi
    sleep "${EVERY:-3}"
done
wait
if [ $stopped = false ]; then for of in $teachers; do if ready "$(teacher "$of")"; then score "$of"; fi; done; fi
for name in $names; do record "$name"; done
echo "$(find "$results" -name '*.json' | wc -l) results in $results after $SECONDS s"
failed="" left=""
for name in $names; do
    if ready "$work/$name"; then
        continue
    elif [ -s "$work/$name.failed" ]; then
        failed="$failed $name"
    else
        left="$left $name"
    fi
done
if [ -n "$failed" ]; then echo "failed:$failed" >&2; fi
if [ $stopped = true ]; then
    if [ -n "$left" ]; then echo "left for the next run, as the limit of $limit s was reached:$left" >&2; fi
elif [ -n "$left" ]; then
    echo "left, waiting for models that are not there:$left" >&2
fi
if [ -n "$failed" ] || { [ $stopped = false ] && [ -n "$left" ]; }; then exit 1; fi
