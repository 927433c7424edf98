#!/bin/sh
# One link of a training chain on a bare GPU machine: train, evaluate, collect what to bring home.
# usage: link.sh RUN_FOLDER RESULT_FOLDER EVALUATION_ARGUMENTS -- TRAINING_ARGUMENTS
# With POCKET=llava_ in the environment it is the second pocket's.
set -e
run=$1 result=$2
shift 2
evaluation=""
while [ "$1" != "--" ]; do evaluation="$evaluation $1"; shift; done
shift
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 MPLCONFIGDIR=/tmp/mpl HF_HUB_DISABLE_PROGRESS_BARS=1
gpus=$(nvidia-smi -L | wc -l)
start="python3 -m"
if [ "$gpus" -gt 1 ]; then start="torchrun --standalone --nproc-per-node $gpus -m"; fi
# shellcheck disable=SC2086
$start "rotatek.pocket.${POCKET}train" --out "$run" "$@"
if [ -z "$POCKET" ]; then start="python3 -m"; fi  # the first pocket is measured on one GPU
cp "$run"/export/*.safetensors "$run"/export/model.safetensors.index.json "$result"
cp "$run"/log.json "$run"/head.safetensors "$result"
if [ -n "$evaluation" ]; then
    # shellcheck disable=SC2086
    $start "rotatek.pocket.${POCKET}evaluate" --model "$run/export" --json "$result/pocket.json" \
        --items /tmp/items.json $evaluation >/dev/null
    python3 -c "import json; print(json.dumps([json.load(open('$result/pocket.json')), json.load(open('/tmp/items.json'))]))" >"$result/all.json"
    rm "$result/pocket.json"
fi
