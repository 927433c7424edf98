#!/bin/sh
# One link of a training chain on a bare GPU machine, given up early if it does not get going.
# usage: chain.sh RUN_FOLDER RESULT_FOLDER TRAINING_ARGUMENTS
# $GPUS: on the first so many only. $GO_ON: only from a checkpoint in RUN_FOLDER. With --family
# smol it trains the third pocket.
run=$1 result=$2
shift 2
# A machine left alone for half a minute is another one.
[ -z "$GO_ON" ] || [ -f "$run/checkpoint.pt" ] || { echo "$run: no checkpoint here" && exit 2; }
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 MPLCONFIGDIR=/tmp/mpl HF_HUB_DISABLE_PROGRESS_BARS=1
export TORCHINDUCTOR_COMPILE_THREADS=${TORCHINDUCTOR_COMPILE_THREADS:-4} TOKENIZERS_PARALLELISM=false
gpus=${GPUS:-$(nvidia-smi -L | wc -l)}
log="$result/train.log"
if [ "$gpus" -gt 1 ]; then
    python3 -m torch.distributed.run --standalone --nproc-per-node "$gpus" -m -- \
        pocket.training --out "$run" "$@" \
        2>"$log" &
else
    python3 -m pocket.training --out "$run" "$@" 2>"$log" &
fi
training=$!
# After 300 seconds there must be progress, and a loss that is a small number; with cold caches the
# first steps of four GPUs come after 100 to 200.
(
    sleep "${PATIENCE:-300}"
    python3 - "$log" <<'CHECK' || kill "$training"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1]) if line.startswith('{"step"')]
sys.exit(not rows or not rows[-1]["answer_loss"] < 4)
CHECK
) &
watch=$!
wait "$training"
status=$?
kill "$watch" 2>/dev/null
[ "$status" -eq 0 ] || { tail -n 40 "$log"; exit "$status"; }
cp "$run"/export/*.safetensors* "$result"
[ ! -d "$run/mean" ] || { mkdir -p "$result/mean" && cp "$run"/mean/*.safetensors* "$result/mean"; }
cp "$run"/log.json "$run"/head.safetensors "$result"
tail -n 3 "$log"
