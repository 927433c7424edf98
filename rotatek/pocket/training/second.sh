#!/bin/sh
# The second pocket trained on: grown from the shipped weights and told where answers stand, in four
# calls of at most ten minutes each, one right after the other on one machine of one or two H200 (16
# cores each).
# usage, in the repository's root: second.sh LINK RESULT_FOLDER
#
#   smoke two minutes of link 1 elsewhere: pass_ms, images/s, loader_wait_s and falling losses
#   1, 2  all GPUs train together, 8 minutes each (one GPU: 9.2)
#   3     each GPU goes on for itself with a falling rate, 5 minutes (one GPU: 8.4); then the mean of
#         what helps
#   4     splits own and renderers, 12 documents a size, and the handmade pages. On a machine without
#         a GPU: RUN=a folder's name, what link 3 gave and the other files of assets/pocket-llava in
#         the folder of that name with -mean behind it
#
# What it took so far, one H200: from the shipped weights (own .51 of 96), 14.5 minutes with the rate
# fallen to nothing: loss .48 when all is drawn, .31 at the full rate after nine, .25 at the end; own .64
# of 72 and renderers .53 of 72. Another try was at .20 after 17.6 minutes and then cut off. Loaders never
# waited (one core draws 60 pictures a second): so ECHO=1.
# Loaders that wait for more than a tenth of the time: ECHO=3; for none of it: ECHO=1. chain.sh gives
# up after 180 s without a small loss. A machine lost after link 1 or 2: put the shards and the head
# that came back into a copy of the run's export (config.json as models.llava.llava_config() says),
# and begin anew with START=that folder, HEAD=its head, MINUTES=what is left / 0.76.
# After: the shards of link 3 and config.json into assets/pocket-llava. Bars: own .80, at most 20 MB.
# TINY=1 runs the whole chain in a few seconds a link, without a GPU.
link=$1 result=$2
here=$(dirname "$0")
run=${RUN:-/tmp/second} start=${START:-assets/pocket-llava}
gpus=${GPUS:-$(nvidia-smi -L 2>/dev/null | wc -l)} workers=$((13 * gpus)) link_minutes=8 minutes=21
judged="--batches 16 --cost 60000" asked="--documents 12" device=cuda own=5 rate=2e-3
[ "$gpus" -gt 0 ] || device=cpu
[ "$gpus" -ne 1 ] || link_minutes=9.2 minutes=24 own=8.4 rate=1.5e-3
common="--family llava_next --echo ${ECHO:-2} --alone 0.3 --glyph-weight 0.3 --told-weight 0.3"
both="--start $start"
if [ -n "$TINY" ]; then # a very small model from nothing
    both="" gpus=${GPUS:-2} workers=2 judged="--batches 2 --cost 1600" device=cpu
    asked="--documents 1 --questions 1 --sizes 224x224 --max-new 4"
    common="$common --tiny --cost 1600 --log-every 1"
fi
[ -z "$PAGES" ] || common="$common --pages $PAGES"
together() { # RUN RESULT MORE_OPTIONS
    folder=$1 back=$2
    shift 2
    # shellcheck disable=SC2086
    GPUS=$gpus sh "$here/chain.sh" "$folder" "$back" $common $both ${HEAD:+--head "$HEAD"} \
        --skip 0.4 --lr $rate --warm-up 120 --decay-from 0.1 --seed 211 \
        --workers "$workers" --minutes "${MINUTES:-$minutes}" "$@"
}
alone() { # GPU, or what CUDA_VISIBLE_DEVICES says
    mkdir -p "$run-back-$1"
    # shellcheck disable=SC2086
    CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-$1} GPUS=1 sh "$here/chain.sh" "$run-$1" "$run-back-$1" $common \
        --start "$run/export" --head "$run/head.safetensors" --minutes "${ALONE:-$own}" \
        --save-minutes 60 --workers $((workers / gpus)) --skip 0.6 --lr 6e-4 --warm-up 60 \
        --decay-from 0.05 --seed "$((221 + $1))"
}
mkdir -p "$result"
case $link in
smoke) together "$run-smoke" "$result" --link-minutes "${LINK:-2}" ;;
1 | 2)
    [ "$link" = 1 ] || export GO_ON=1
    together "$run" "$result" --link-minutes "${LINK:-$link_minutes}"
    ;;
3)
    alone 0 &
    one=$! exports="$run/export $run-0/export"
    if [ "$gpus" -gt 1 ]; then
        alone 1 || exit 1
        exports="$exports $run-1/export"
    fi
    wait "$one" || exit 1
    # shellcheck disable=SC2086
    python3 -m rotatek.pocket.training.averaging "$run-mean" $exports --family llava_next \
        $judged >"$result/mean.log" 2>&1 || exit 1
    tail -n 1 "$result/mean.log"
    cp "$run-mean"/model*.safetensors* "$run-mean/config.json" "$run-back-0/train.log" "$result"
    ;;
4)
    export OMP_NUM_THREADS=1 MPLCONFIGDIR=/tmp/mpl HF_HUB_DISABLE_PROGRESS_BARS=1
    jobs="" gpu=0
    for split in own renderers; do
        # shellcheck disable=SC2086
        CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-$((gpu < gpus ? gpu : 0))} python3 -m rotatek.pocket.evaluation --family llava_next \
            --model "$run-mean" --splits $split $asked --json "$result/$split.json" \
            >"$result/$split.md" 2>"$result/$split.log" &
        jobs="$jobs $!" gpu=1
    done
    for job in $jobs; do wait "$job" || { tail -n 9 "$result"/*.log; exit 1; }; done
    head -n 12 "$result"/*.md
    [ -n "$TINY" ] || python3 -m rotatek evaluate --model "$run-mean" --device $device \
        --suite assets/handmade/questions.jsonl --settings assets/handmade/settings.json \
        --out "$result/handmade"
    ;;
*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;;
esac
