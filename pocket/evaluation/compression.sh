#!/bin/sh
# What compression does to the handmade pages and to the scanned split: the tables of the card.
# usage, in the repository's root: compression.sh RESULT_FOLDER [DOCUMENTS_A_SIZE] [MODEL]
result=$1 documents=${2:-6} model=${3:-pocket}
python=${PYTHON:-python3}
"$python" -m pocket.evaluation.score --write-only --splits scanned --documents "$documents" \
    --folder "$result/drawn" || exit 1
for suite in assets/handmade "$result/drawn/scanned"; do
    "$python" -m rotatek evaluate --model "$model" --suite "$suite/questions.jsonl" \
        --settings assets/handmade/settings.json --out "$result/$(basename "$suite")" \
        >"$result/$(basename "$suite").txt" || exit 1
    cat "$result/$(basename "$suite").txt"
done
"$python" -m pocket.evaluation.score --card assets/results/pocket-others.json \
    --scanned "$result/scanned"
