#!/bin/sh
# Evaluate MODEL on all splits at once, spread over the GPUs (or the first $GPUS); writes RESULT/NAME.json.
# usage: measure.sh MODEL PAGES RESULT NAME DOCUMENTS; PAGES may be ""
model=$1 pages=$2 result=$3 name=$4 documents=$5
export OMP_NUM_THREADS=1 MPLCONFIGDIR=/tmp/mpl HF_HUB_DISABLE_PROGRESS_BARS=1
gpus=${GPUS:-$(nvidia-smi -L | wc -l)} part=0 jobs=""
one() {
    CUDA_VISIBLE_DEVICES=$((part % gpus)) python3 -m pocket.evaluation --model "$model" \
        --documents "$documents" --items "/tmp/$name-$part.json" "$@" >/dev/null 2>"/tmp/$name-$part.log" &
    jobs="$jobs $!" part=$((part + 1))
}
for sizes in "896x896" "728x728 224x224" "672x448 336x588 448x448"; do
    for split in own fonts renderers topics; do
        # shellcheck disable=SC2086
        one --splits $split --sizes $sizes
    done
done
one --splits scanned
one --splits small
[ -z "$pages" ] || one --splits --pages "$pages"
for job in $jobs; do wait "$job" || { tail -n 5 /tmp/"$name"-*.log; exit 1; }; done
python3 -m pocket.evaluation --merge /tmp/"$name"-[0-9]*.json --json "$result/$name.json" \
    >"$result/$name.md"
python3 - "$result/$name-items.json" /tmp/"$name"-[0-9]*.json <<'JOIN'
import json, sys
json.dump([i for path in sys.argv[2:] for i in json.load(open(path))], open(sys.argv[1], "w"))
JOIN
