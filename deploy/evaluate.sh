#!/bin/sh
# The whole evaluation on one machine, as far as it gets in so many seconds; run it again to go on.
#
#     sh deploy/evaluate.sh OUT SECONDS
#
# OUT takes a packed file of answers for each run, which `make results` makes every table from (in
# assets/results/answers). Work is kept in artifacts/evaluation; packed files that lie in
# artifacts/answers are gone on from where that is empty. A run that is cut short has asked every kind
# of question alike. It says how many seconds all of it has taken so far, those of every GPU counted.
# Exit status 3: not all is answered yet.
#
# RUNS are "name=model:suite:tables", or in place of tables second or neutral, for second questions,
# and behind a further colon the questions of a drawn suite where they are not QUESTIONS; JOBS
# processes at once (4 for each GPU): a step's time is that of its launches, which each of them pays;
# DEVICE; QUESTIONS (1000); EXTRA words for the command; PYTHON.
set -eu
out=${1:?usage: sh deploy/evaluate.sh OUT SECONDS}
seconds=${2:?usage: sh deploy/evaluate.sh OUT SECONDS}
cd "$(dirname "$0")/.."
python=${PYTHON:-$(if [ -x .venv/bin/python ]; then echo .venv/bin/python; else echo python3; fi)}
device=${DEVICE:-cuda}
gpus=0
graph=
if [ "$device" = cuda ]; then
    gpus=$(nvidia-smi -L | wc -l)
    graph=--graph
    export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # a machine's cores are the processes'
fi
jobs=${JOBS:-$((gpus > 0 ? 4 * gpus : 1))}
sharing=$((gpus > 0 ? (jobs + gpus - 1) / gpus : 1))
handmade=assets/handmade/questions.jsonl
runs=${RUNS:-"pocket=pocket:pocket:all,rivals pocket-smol=pocket-smol:pocket:all,rivals:250
    pocket-unseen=pocket:pocket-unseen:core pocket-smol-unseen=pocket-smol:pocket-unseen:core
    pocket-handmade=pocket:$handmade:core pocket-smol-handmade=pocket-smol:$handmade:core
    pocket-second=pocket:pocket:second pocket-smol-second=pocket-smol:pocket:second
    pocket-unseen-second=pocket:pocket-unseen:second
    pocket-smol-unseen-second=pocket-smol:pocket-unseen:second
    pocket-handmade-second=pocket:$handmade:second
    pocket-smol-handmade-second=pocket-smol:$handmade:second
    pocket-unseen-neutral=pocket:pocket-unseen:neutral
    pocket-smol-unseen-neutral=pocket-smol:pocket-unseen:neutral"}
began=$(date +%s)
end=$((began + seconds))
state=artifacts/evaluation
mkdir -p "$out" "$state"

# Sets name, model, suite, tables and questions from a run's words.
read_run() {
    name=${1%%=*}
    rest=${1#*=}
    model=${rest%%:*}
    rest=${rest#*:}
    suite=${rest%%:*}
    rest=${rest#*:}
    tables=${rest%%:*}
    questions=${QUESTIONS:-1000}
    case $rest in *:*) questions=${rest#*:} ;; esac
    ask=first
    case $tables in second | neutral) ask=$tables tables=second ;; esac
}

# The words of the run that was read.
words() {
    echo --model "$model" --suite "$suite" --tables "$tables" --ask "$ask" --device "$device" \
        --questions "$questions" --no-report --out "$state/$name" --sharing "$sharing" \
        ${EXTRA:-}
}

# Runs Python on the GPU of a job's number.
python_on() { # number words
    gpu=
    if [ "$gpus" -gt 0 ]; then gpu=CUDA_VISIBLE_DEVICES=$(($1 % gpus)); fi
    shift
    env $gpu $python "$@"
}

# The evaluation of the run that was read, on the GPU of a job's number.
evaluate() { # number words
    job=$1
    shift
    python_on "$job" -m rotatek evaluate $(words) "$@"
}

# The status of two: 1 if one failed, else 3 if one has not answered all.
worse() { # status status
    case $2 in
    0) echo "$1" ;;
    3) echo $(($1 == 1 ? 1 : 3)) ;;
    *) echo 1 ;;
    esac
}

# Waits for all of `pids`; fails with 1 if one failed, else with 3 if one has not answered all.
wait_all() {
    rc=0
    for pid in $pids; do
        one=0
        wait "$pid" || one=$?
        rc=$(worse "$rc" "$one")
    done
    pids=
    return $rc
}

# A line for every run: its name, its weight and its words. A run that is long gets three times the
# time of another.
lines() {
    for run in $runs; do
        read_run "$run"
        echo "$name" "$(weight_of "$tables")" $(words) $graph
    done
}

weight_of() { # tables
    case $1 in all*) echo 3 ;; *) echo 1 ;; esac
}

# Suites are drawn and budgets solved first, once a run and side by side.
pids=
number=0
for run in $runs; do
    read_run "$run"
    if [ ! -e "$state/$name/drawn" ]; then
        (
            evaluate "$number" --draw --resume "artifacts/answers/$name.jsonl.xz"
            touch "$state/$name/drawn"
        ) &
        pids="$pids $!"
    fi
    number=$((number + 1))
done
wait_all

number=0
while [ "$number" -lt "$jobs" ]; do
    lines | python_on "$number" -m deploy.evaluate_part "$state" "$((number + 1))/$jobs" "$end" &
    pids="$pids $!"
    number=$((number + 1))
done
status=0
wait_all || status=$?
for run in $runs; do
    read_run "$run"
    if ls "$state/$name"/journal* >/dev/null 2>&1; then
        evaluate 0 --report --pack "$out/$name.jsonl.xz" &
        pids="$pids $!"
    fi
done
wait_all || status=1
spent=$(($(cat "$state/spent" 2>/dev/null || echo 0) + ($(date +%s) - began) * (gpus > 0 ? gpus : 1)))
echo "$spent" >"$state/spent"
echo "$spent seconds so far"
exit $status
