#!/bin/sh
# The ninth weights of the first pocket: from the shipped ones, in four calls of at most nine
# minutes each, one right after the other on one machine of two H200 (32 cores).
# usage, in the repository's root: ninth.sh LINK RESULT_FOLDER
#
#   1, 2  both GPUs train together on the mixture of `rotatek.pocket.mixture`, 8.5 minutes each
#   3     each GPU goes on for itself with a falling rate, 6 minutes; then the mean of what helps
#   4     splits own, renderers, scanned and small, 12 documents a size
#
# Before: `smoke.sh` (2.5 minutes) on a fresh machine; to go on it should show the loaders waiting
# for less than a tenth of the time and the GPU busy for more than 85 %. If they wait: ECHO=3.
# Link 1 is its own proof, too: chain.sh gives up after 180 s without a small loss.
# A machine lost after link 1 or 2: copy assets/pocket, put the shards that came back over its own,
# and begin anew with START=that folder and MINUTES=what is left / 0.65.
# Browser pages: PAGES=a folder of shards (`rotatek.pocket.browser PAGES --count 1600 --first 900000
# --quality 25 62`, 24 MB, half an hour of two cores). A working tree that travels may weigh
# 64 MiB, so they fit only while assets/pocket-llava is moved out of it; without them the web
# split is to be watched.
# After: the shards of link 3 into assets/pocket, and preprocessor_config.json as
# `rotatek.pocket.models.config.preprocessor()` says (1,440 visual tokens). Bars: scanned and small
# .85, handmade .75, own .95 and renderers .90 kept, first token 1.5 s at 448 pixels and 4 s at the
# largest on two cores.
link=$1 result=$2
run=/tmp/ninth start=${START:-assets/pocket}
common="--skip 0.45 --alone 0.5 --cost 64000 --largest 1440 --glyph-weight 0.3 --echo ${ECHO:-2}"
[ -z "$PAGES" ] || common="$common --pages $PAGES"
here=$(dirname "$0")
alone() { # GPU
    mkdir -p "/tmp/ninth-$1"
    # shellcheck disable=SC2086
    CUDA_VISIBLE_DEVICES=$1 GPUS=1 sh "$here/chain.sh" "$run-$1" "/tmp/ninth-$1" $common \
        --start "$run/export" --head "$run/head.safetensors" --minutes 6 --save-minutes 60 \
        --workers 13 --lr 6e-4 --warm-up 60 --decay-from 0.05 --seed "$((121 + $1))"
}
case $link in
1 | 2)
    # shellcheck disable=SC2086
    GPUS=2 sh "$here/chain.sh" "$run" "$result" $common --start "$start" --seed 111 --lr 1.5e-3 \
        --warm-up 120 --decay-from 0.1 --minutes "${MINUTES:-26}" --link-minutes 8.5
    ;;
3)
    alone 0 &
    one=$!
    alone 1 &
    wait "$one" && wait $! || exit 1
    python3 -m rotatek.pocket.training.averaging "$run-mean" "$run/export" "$run-0/export" \
        "$run-1/export" --batches 16 --cost 24000 --largest 1440 2>&1 | tail -n 1
    cp "$run-mean"/model*.safetensors* /tmp/ninth-0/train.log "$result"
    ;;
4)
    export OMP_NUM_THREADS=1 MPLCONFIGDIR=/tmp/mpl
    jobs="" gpu=0
    for split in own renderers scanned small; do
        gpu=$((1 - gpu))
        CUDA_VISIBLE_DEVICES=$gpu python3 -m rotatek.pocket.evaluation \
            --model "$run-mean" --splits $split --documents 12 >"$result/$split.md" 2>/dev/null &
        jobs="$jobs $!"
    done
    for job in $jobs; do wait "$job"; done
    head -n 12 "$result"/*.md
    ;;
*) sed -n 2,30p "$0" ;;
esac
