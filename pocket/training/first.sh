#!/bin/sh
# The first pocket trained on, from the shipped weights, in four calls of at most nine and a half
# minutes each, one right after the other on one machine of one or two H200 (16 cores each).
# usage, in the repository's root: first.sh LINK RESULT_FOLDER
#
#   1, 2  all GPUs train together on the mixture of `pocket.mixture`, 8.2 minutes each (one
#         GPU: 8.8; LINK and MINUTES for other lengths of a link and of the schedule)
#   3     each GPU goes on for itself with a falling rate, 5.2 minutes (one GPU: 4.7; ALONE); then the
#         mean of what helps
#   4     that with .3 of the shipped weights: every split, as `evaluation/measure.sh` measures it,
#         24 documents a size, and of the mean alone own and small, 4; 4 minutes. On a machine
#         without a GPU, an hour of two cores: RUN=a folder's name, the shards of link 3 and the other
#         files of assets/pocket in the folder of that name with -mean behind it
#
# The ninth weights: one H200, links 1 and 2, and 7.6 minutes of link 3. 390 uses of pictures a second,
# 61 s of them lost to compiling in link 1 and 20 in the later ones; loaders waited 10 s in all, so
# ECHO=1 may be had for nothing. Loss .43, .16 after link 1, .10 after link 2, .08 after link 3.
# The tenth: 17 minutes more (LINK=8.6 MINUTES=21, then link 3 with ALONE=8.6), on a mixture with more
# sections, counts with units and headings, turns apart in a third of the steps (a step with them takes
# 195 ms, another 120): loss .10 at first, .16 at the full rate, .13 after link 1, .075 at the end. So the
# next begins with less.
# The eleventh: 14.5 minutes at RATE=7e-4, without link 3, loss .08 at first, .11 at the full rate, .07 at the
# end.
# Fresh documents of the kinds that are trained on (`pocket.evaluation --renderers NAME ...`)
# say what to draw more of: of the tenth's answers right were letters 1.0, panels .96, charts .93, tills .93, but listings and
# grids .80, leaflets .74 and printouts .72.
#
# A training of 23 minutes from an earlier mixture showed what pays: doubling the part at a high rate
# took the loss from .123 to .075, the falling rate from .084 to .047. So links 1 and 2 stay near the
# top of their schedule (25 minutes, of which they are 16) and link 3 falls to nothing.
# With TINY=1 all four links run in some minutes on a processor, with a very small model: run that
# before. `smoke.sh` (2.5 minutes of a GPU) is only needed where the machine is another one: the
# loaders should wait for less than a tenth of the time; if they wait longer, ECHO=3.
# Link 1 is its own proof, too: chain.sh gives up after 180 s without a small loss.
# A machine lost after link 1 or 2: copy assets/pocket, put the shards that came back over its own,
# and begin anew with START=that folder and MINUTES=what is left / 0.65.
# Browser pages: PAGES=a folder of shards (`pocket.browser PAGES --count 1600 --first 900000
# --quality 25 62`, 17 MB, ten minutes of two cores). A working tree that travels may weigh
# 64 MiB, so they fit only while assets/pocket-smol is moved out of it; without them the web
# split is to be watched. UNSEEN=a folder of the split unseen is measured in link 4, too.
# What comes back: at most 8 files of 16 MiB; links 1 to 3 the shards, their index, the log, and the
# glyph head; link 4 the shards that are to be shipped, and every table (pocket.json for
# assets/results).
# After: the shards of link 4 into assets/pocket, and preprocessor_config.json as
# `pocket.models.config.preprocessor()` says (1,440 visual tokens). Then, for the card,
#   python -m pocket.evaluation.score REAL/questions.jsonl assets/handmade/questions.jsonl
#   sh pocket/evaluation/compression.sh RESULT_FOLDER
# Bars: scanned and small .85, handmade .75, own .95 and renderers .90 kept, first token 1.5 s at 448
# pixels and 4 s at the largest on two cores.
link=$1 result=$2
run=${RUN:-/tmp/first} start=${START:-assets/pocket}
common="--skip 0.45 --alone 0.35 --cost 64000 --largest 1440 --glyph-weight 0.3 --echo ${ECHO:-2}"
both="--start $start" pair="--link-minutes ${LINK:-8.2} --minutes ${MINUTES:-25}" own="--minutes ${ALONE:-5.2}"
fresh="--batches 16 --cost 24000" documents=24 few=4 workers=13 rate=${RATE:-1.5e-3}
gpus=${GPUS:-$(nvidia-smi -L 2>/dev/null | wc -l)}
if [ "$gpus" -eq 1 ]; then # half a batch
    pair="--link-minutes ${LINK:-8.8} --minutes ${MINUTES:-27}" own="--minutes ${ALONE:-4.7}"
    rate=${RATE:-1.1e-3}
fi
if [ -n "$TINY" ]; then # three steps of a very small model from nothing
    common="--tiny --no-compile --skip 0.5 --alone 0.5 --cost 900 --glyph-weight 0.3 --echo 2"
    common="$common --largest 1440 --log-every 1" start=$run/export
    both="" pair="--steps 6 --link-minutes 0.15" own="--steps 2" fresh="--batches 2 --cost 400"
    documents=1 few=1 workers=1 gpus=${GPUS:-1}
fi
[ -z "$PAGES" ] || common="$common --pages $PAGES"
here=$(dirname "$0")
mkdir -p "$result"
alone() { # GPU, or what CUDA_VISIBLE_DEVICES says
    mkdir -p "$run-result-$1"
    # shellcheck disable=SC2086
    CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-$1} GPUS=1 sh "$here/chain.sh" "$run-$1" "$run-result-$1" $common $own \
        --start "$run/export" --head "$run/head.safetensors" --save-minutes 60 \
        --workers $workers --lr 6e-4 --warm-up 60 --decay-from 0.05 --seed "$((121 + $1))"
}
measure() { # GPU NAME MODEL DOCUMENTS ARGUMENTS
    gpu=$(($1 < gpus ? $1 : 0)) name=$2 model=$3 count=$4
    shift 4
    CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-$gpu} python3 -m pocket.evaluation --model "$model" \
        --documents "$count" "$@" >"$run-scores/$name.md" 2>"$run-scores/$name.log"
}
case $link in
1 | 2)
    [ "$link" = 1 ] || export GO_ON=1
    # shellcheck disable=SC2086
    GPUS=$gpus sh "$here/chain.sh" "$run" "$result" $common $both $pair --seed 111 --lr $rate \
        --warm-up 120 --decay-from 0.1 --workers "$((workers * gpus))"
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
    python3 -m pocket.training.averaging "$run-mean" $exports $fresh --largest 1440 2>&1 |
        tail -n 1
    cp "$run-mean"/model*.safetensors* "$run-result-0/train.log" "$result"
    ;;
4)
    export OMP_NUM_THREADS=1 MPLCONFIGDIR=/tmp/mpl
    python3 -m pocket.training.averaging "$run-shipped" "$run-mean" --all \
        --beside "$start" "${SHARE:-0.3}" 2>&1 | tail -n 1
    cp "$run-shipped"/model*.safetensors* "$result"
    mkdir -p "$run-scores"
    measure 0 mean-own "$run-mean" $few --splits own &
    jobs=$!
    measure 1 mean-small "$run-mean" $few --splits small &
    jobs="$jobs $!"
    [ -n "$TINY" ] || GPUS=$((gpus > 0 ? gpus : 1)) sh "$here/../evaluation/measure.sh" \
        "$run-shipped" "$UNSEEN" "$result" pocket "$documents" || exit 1
    for job in $jobs; do wait "$job"; done
    head -n 12 "$run-scores"/*.md >"$result/mean.md"
    grep -hE "==>| all | short | transcription " "$result"/*.md
    ;;
*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;;
esac
