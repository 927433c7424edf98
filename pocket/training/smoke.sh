#!/bin/sh
# Two and a half minutes that show whether the next training can run on this GPU machine: what a
# picture costs to draw here, how many are learned from a second, and how busy the GPU is meanwhile.
# usage: smoke.sh RESULT_FOLDER, in the repository's root
result=$1
run=/tmp/smoke-run
mkdir -p "$result" "$run-result"
rm -rf "$run"
nproc
OMP_NUM_THREADS=1 python3 -m pocket.costs --pictures 2 | tail -n 1 &
wait
nvidia-smi dmon -s u -d 2 -c 70 >"$result/busy.txt" 2>&1 &
GPUS=${GPUS:-1} sh pocket/training/chain.sh "$run" "$run-result" --start assets/pocket \
    --skip 0.45 --minutes 20 --link-minutes 2.0 --save-minutes 60 --lr 3e-4 --warm-up 60 \
    --largest 1440 --alone 0.5 --cost 64000 --echo 2 --log-every 20 --seed 901
cp "$run-result/train.log" "$result/"
python3 - "$result" <<'REPORT'
import json, statistics, sys
folder = sys.argv[1]
rows = [json.loads(x) for x in open(f"{folder}/train.log") if x.startswith('{"step"')]
late = rows[len(rows) // 3 :]
print("rows", len(rows), "images/s", [r["images_per_s"] for r in late][-8:])
print("waited for loaders, s of", rows[-1]["seconds"], ":", round(sum(r["loader_wait_s"] for r in rows), 1))
print("answer loss", [r["answer_loss"] for r in rows][:2], [r["answer_loss"] for r in rows][-2:])
busy = [int(x.split()[1]) for x in open(f"{folder}/busy.txt") if x.split() and x.split()[0] == "0"]
print("GPU busy, last minute: mean", round(statistics.mean(busy[-30:])), "%")
REPORT
