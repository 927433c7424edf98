#!/bin/sh
# The second pocket trained on from the shipped weights and told where answers stand, in calls of at
# most ten minutes each, one right after the other on one machine of one or two H200 (16 cores each).
# usage, in the repository's root: second.sh LINK RESULT_FOLDER
#
#   smoke    two minutes of link 1 elsewhere: pass_ms, images/s, loader_wait_s and falling losses
#   1, 2, 2  all GPUs train together, 8.3 minutes each; the rate falls to nothing at the end of MINUTES
#   3        splits own and renderers, 12 documents a size, and the handmade pages. On a machine without
#            a GPU: RUN=a folder's name, what the last link gave and the other files of
#            assets/pocket-llava in the folder "export" of it
#
# What the shipped weights took, from the ones before (10 million parameters, own .51 of 96): 14.5 minutes
# of one H200, of both.sh (loss .48 when all is drawn, .25 at the end; own .64 of 72), then 24.5 of two
# H200 with SKIP=.54 and SEED=301, links of 8.3, 8.4 and 7.8 minutes: 840 thousand pictures, loss .34,
# then .21 when the rate is half and .09 at the end; own .84 of 216, renderers .87 of 216.
# Loaders never waited (one core draws 60 pictures a second): so ECHO=1. Where they wait for more than a
# tenth of the time: ECHO=3. chain.sh gives up after 180 s without a small loss. A machine lost after
# a link: put the shards and the head that came back into a copy of the run's export (config.json as
# models.llava.llava_config() says), and begin anew with START=that folder, HEAD=its head, MINUTES=what
# is left / 0.76.
# SEED: of the documents, 211 if not said: another one for weights that have seen those. SKIP: where in
# the curriculum to begin (.4; from .54 on all sizes are drawn).
# After: the shards of the last link and config.json into assets/pocket-llava. At most 20 MB.
# TINY=1 runs the whole chain in a few seconds a link, without a GPU.
link=$1 result=$2
here=$(dirname "$0")
run=${RUN:-/tmp/second} start=${START:-assets/pocket-llava}
gpus=${GPUS:-$(nvidia-smi -L 2>/dev/null | wc -l)} workers=$((13 * gpus))
asked="--documents 12" device=cuda rate=2e-3
[ "$gpus" -gt 0 ] || device=cpu
[ "$gpus" -ne 1 ] || rate=1.5e-3
common="--family llava_next --echo ${ECHO:-2} --alone 0.3 --glyph-weight 0.3 --told-weight 0.3"
begin="--start $start"
if [ -n "$TINY" ]; then # a very small model from nothing
    begin="" gpus=${GPUS:-2} workers=2 device=cpu
    asked="--documents 1 --questions 1 --sizes 224x224 --max-new 4"
    common="$common --tiny --cost 1600 --log-every 1"
fi
[ -z "$PAGES" ] || common="$common --pages $PAGES"
together() { # RUN LINK_MINUTES
    # shellcheck disable=SC2086
    GPUS=$gpus sh "$here/chain.sh" "$1" "$result" $common $begin ${HEAD:+--head "$HEAD"} \
        --skip "${SKIP:-0.4}" --lr $rate --warm-up 120 --decay-from 0.1 --seed "${SEED:-211}" \
        --workers "$workers" --minutes "${MINUTES:-24.5}" --link-minutes "${LINK:-$2}"
}
mkdir -p "$result"
case $link in
smoke) together "$run-smoke" 2 ;;
1 | 2)
    [ "$link" = 1 ] || export GO_ON=1
    together "$run" 8.3
    ;;
3)
    export OMP_NUM_THREADS=1 MPLCONFIGDIR=/tmp/mpl HF_HUB_DISABLE_PROGRESS_BARS=1
    jobs="" gpu=0
    for split in own renderers; do
        # shellcheck disable=SC2086
        CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-$((gpu < gpus ? gpu : 0))} python3 -m pocket.evaluation --family llava_next \
            --model "$run/export" --splits $split $asked --json "$result/$split.json" \
            >"$result/$split.md" 2>"$result/$split.log" &
        jobs="$jobs $!" gpu=1
    done
    for job in $jobs; do wait "$job" || { tail -n 9 "$result"/*.log; exit 1; }; done
    head -n 12 "$result"/*.md
    [ -n "$TINY" ] || python3 -m rotatek evaluate --model "$run/export" --device $device \
        --suite assets/handmade/questions.jsonl --settings assets/handmade/settings.json \
        --out "$result/handmade"
    ;;
*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;;
esac
