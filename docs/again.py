"""How alike two whole runs of one evaluation are: `python -m docs.again FIRST SECOND --seconds S`.

FIRST and SECOND are packed files of answers (`rotatek.evaluation.answer_archive`). Batches of
another make-up round differently in bfloat16, and graphics cards differ. Writes `again.json` among
the results: the shares of answers that are the same to the letter, and by how many points a
setting's score moves.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from docs.figures import RESULTS
from rotatek.evaluation.answer_archive import AnswerArchive, unpack


def alike(first: AnswerArchive, second: AnswerArchive) -> dict[str, dict[str, Any]]:
    """Of short answers and of whole pages: what both runs have asked."""
    items = {item.name: item for item in first.items}
    same: dict[str, list[bool]] = {"short": [], "long": []}
    moved: dict[str, dict[str, list[float]]] = {kind: defaultdict(list) for kind in same}
    for key, one in first.answers.items():
        other, item = second.answers.get(key), items[key[1]]
        if other is None:
            continue
        kind = "long" if item.long else "short"
        same[kind].append(one.answer == other.answer)
        moved[kind][key[0]].append(100 * (item.score(other.answer) - item.score(one.answer)))
    found: dict[str, dict[str, Any]] = {}
    for kind, settings in moved.items():
        points = sorted(sum(all_) / len(all_) for all_ in settings.values())
        found[kind] = {
            "answers": len(same[kind]),
            "same": sum(same[kind]) / len(same[kind]),
            "settings": len(points),
            "mean": sum(points) / len(points),
            "within a point": sum(abs(one) <= 1 for one in points) / len(points),
            "least": points[0],
            "most": points[-1],
        }
    return found


def main() -> None:
    """Compare two files of answers."""
    parser = argparse.ArgumentParser(prog="python -m docs.again", description=__doc__)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--seconds", type=int, help="that deploy/evaluate.sh counted for SECOND")
    parser.add_argument("--out", type=Path, default=RESULTS / "again.json")
    args = parser.parse_args()
    second = unpack(args.second)
    report: dict[str, Any] = {"model": second.header["model"]["name"], "seconds": args.seconds}
    report |= {"ran_on": second.header["ran_on"], "answers": len(second.answers)}
    report |= alike(unpack(args.first), second)
    args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
