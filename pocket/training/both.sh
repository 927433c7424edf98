#!/bin/sh
# Both pockets trained on at once, on one machine of two H200 (16 cores each), in calls one right after
# the other; the schedule of both ends with the last call, so nothing is left to be done alone.
# usage, in the repository's root: both.sh LINK LINK_MINUTES RESULT_FOLDER, LINK 1 once and then 2 as
# often as MINUTES asks for
#
#   MINUTES=23.3 (what all links have together): 8.8, 8.3 and 6.2 fit half an hour of machine time,
#   of which starting it takes 95 s, and each call 30 s and as long again to carry 53 MB back. Leave
#   the last call a minute more than it needs: a call that is cut off brings nothing back, and its
#   limit may be 70 s less than what is left. 390 uses of pictures a second (first), 450 (second).
#
# What comes back: both.tar.a?, at most 16 MB each; `cat both.tar.* | tar xf -` gives the shards, glyph
# head and log of each. Then as first.sh and second.sh say: .3 of the shipped weights into the first,
#   python -m pocket.training.averaging OUT first --all --beside assets/pocket 0.3
# DEADLINE=seconds that the call may take: 20 s before, should training still go on, the weights of the
# last checkpoint (one every four minutes) are packed as cut.tar.a?, so that a call cut off is not lost.
# PAGES, START and the like as there; what is to be said to one of them alone: FIRST="RATE=7e-4 ..."
# and SECOND="...".
number=$1 link=$2 result=$3
here=$(dirname "$0")
mkdir -p "$result"
export GPUS=1 LINK="$link" MINUTES="${MINUTES:-23.3}"
run() { # GPU NAME SETTINGS
    # shellcheck disable=SC2086
    env CUDA_VISIBLE_DEVICES="$1" RUN="/tmp/$2" $3 sh "$here/$2.sh" "$number" "/tmp/both/$2" >"/tmp/$2.txt" 2>&1
    echo "$2: $?"
    tail -n 9 "/tmp/$2.txt" | cut -c1-400
    grep -h '"step"' "/tmp/both/$2/train.log" | awk 'NR % 12 == 1' | cut -c1-200
}
mkdir -p /tmp/both
if [ -n "$DEADLINE" ]; then
    (
        sleep "$((DEADLINE - 20))"
        tar cf - -C /tmp first/export second/export | split -b 16000000 - "$result/cut.tar."
    ) >/dev/null 2>&1 &
    watch=$!
fi
run 0 first "${FIRST:-RATE=7e-4}" &
one=$!
run 1 second "$SECOND"
wait "$one"
[ -z "$watch" ] || kill "$watch"
tar cf - -C /tmp both | split -b 16000000 - "$result/both.tar."
