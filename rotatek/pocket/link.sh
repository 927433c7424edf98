#!/bin/sh
# One link of a training chain on a bare GPU machine: train, evaluate, collect what to bring home.
# usage: link.sh RUN_FOLDER RESULT_FOLDER EVALUATION_ARGUMENTS -- TRAINING_ARGUMENTS
set -e
run=$1 result=$2
shift 2
evaluation=""
while [ "$1" != "--" ]; do evaluation="$evaluation $1"; shift; done
shift
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 MPLCONFIGDIR=/tmp/mpl HF_HUB_DISABLE_PROGRESS_BARS=1
gpus=$(nvidia-smi -L | wc -l)
if [ "$gpus" -gt 1 ]; then
    torchrun --standalone --nproc-per-node "$gpus" -m rotatek.pocket.train --out "$run" "$@"
else
    python3 -m rotatek.pocket.train --out "$run" "$@"
fi
cp "$run"/export/*.safetensors "$run"/export/model.safetensors.index.json "$result"
cp "$run"/log.json "$run"/head.safetensors "$result"
if [ -n "$evaluation" ]; then
    # shellcheck disable=SC2086
    python3 -m rotatek.pocket.evaluate --model "$run/export" --json "$result/pocket.json" \
        --items /tmp/items.json $evaluation >/dev/null
    python3 -c "import json; print(json.dumps([json.load(open('$result/pocket.json')), json.load(open('/tmp/items.json'))]))" >"$result/all.json"
    rm "$result/pocket.json"
fi
