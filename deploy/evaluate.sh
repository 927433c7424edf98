#!/bin/sh
# The whole evaluation on one machine, as far as it gets in so many seconds; run it again to go on.
#
#     sh deploy/evaluate.sh OUT SECONDS
#
# OUT takes a packed file of answers for each run, which `make results` makes every table from (in
# assets/results/answers). Work is kept in artifacts/evaluation; packed files that lie in
# artifacts/answers are gone on from where that is empty. A run that is cut short has asked every kind
# of question alike. Exit status 3: not all is answered yet.
#
# RUNS are "name=model:suite:tables"; JOBS processes at once (8 for each GPU); DEVICE; QUESTIONS of a
# drawn suite; EXTRA words for the command; PYTHON.
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
fi
jobs=${JOBS:-$((gpus > 0 ? 8 * gpus : 1))}
handmade=assets/handmade/questions.jsonl
runs=${RUNS:-"pocket=pocket:pocket:all,rivals pocket-llava=pocket-llava:pocket:all,rivals
    pocket-unseen=pocket:pocket-unseen:core pocket-llava-unseen=pocket-llava:pocket-unseen:core
    pocket-handmade=pocket:$handmade:core pocket-llava-handmade=pocket-llava:$handmade:core"}
end=$(($(date +%s) + seconds))
state=artifacts/evaluation
mkdir -p "$out" "$state"

evaluate() { # words
    $python -m rotatek evaluate --model "$model" --suite "$suite" --tables "$tables" \
        --questions "${QUESTIONS:-1000}" --no-report --out "$state/$name" ${EXTRA:-} "$@"
}

# The first process draws, solves budgets and compiles every kernel on a few pictures; then many share
# what is left, so that no two of them compile the same.
answer() { # until when
    rc=0
    first=$device
    if [ "$gpus" -gt 0 ]; then first=cuda:0; fi
    evaluate --device "$first" $graph --part 1/200 --limit-s $(($1 - $(date +%s))) \
        --resume "artifacts/answers/$name.jsonl.xz" || return $?
    number=0
    pids=
    while [ "$number" -lt "$jobs" ]; do
        own=$device
        if [ "$gpus" -gt 0 ]; then own=cuda:$((number % gpus)); fi
        number=$((number + 1))
        evaluate --device "$own" $graph --part "$number/$jobs" \
            --limit-s $(($1 - $(date +%s))) 2>"$state/$name-$number.log" &
        pids="$pids $!"
    done
    for pid in $pids; do
        one=0
        wait "$pid" || one=$?
        if [ "$one" -ne 0 ] && [ "$rc" -ne 1 ]; then rc=$one; fi
    done
    return $rc
}

status=0
count=$(echo "$runs" | wc -w)
parts=$count # a main suite takes as long as three others
for run in $runs; do case $run in *:all*) parts=$((parts + 2)) ;; esac done
for run in $runs; do
    name=${run%%=*}
    rest=${run#*=}
    model=${rest%%:*}
    rest=${rest#*:}
    suite=${rest%%:*}
    tables=${rest#*:}
    weight=1
    case $tables in all*) weight=3 ;; esac
    now=$(date +%s)
    if [ ! -e "$state/$name.done" ] && [ "$now" -lt "$end" ]; then
        rc=0
        answer $((now + (end - now) * weight / parts)) || rc=$?
        case $rc in
        0) touch "$state/$name.done" ;;
        3) status=$((status == 1 ? 1 : 3)) ;;
        *)
            echo "$name failed with $rc; see $state/$name-*.log" >&2
            tail -n 5 "$state/$name"-*.log >&2 || true
            status=1
            ;;
        esac
        evaluate --device "$device" --report --pack "$state/$name.jsonl.xz" || status=1
    elif [ ! -e "$state/$name.done" ] && [ "$status" -ne 1 ]; then
        status=3
    fi
    parts=$((parts - weight))
    if [ -e "$state/$name.jsonl.xz" ]; then cp "$state/$name.jsonl.xz" "$out/"; fi
done
exit $status
