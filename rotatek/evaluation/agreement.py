"""`python -m rotatek.evaluation.agreement JOURNAL [--json FILE]`: who still says the same.

The share of answers equal to the uncompressed model's needs no true answers, so it can be read off
any journal, also one of an interrupted run: each table compares the questions that all its rows
have answered.
"""

import argparse
import gzip
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rotatek.config import BASELINE
from rotatek.evaluation.metrics import wilson
from rotatek.evaluation.run import setting_id
from rotatek.evaluation.tables import Table, tables

FEWEST = 100  # questions below which a table says too little


def read(path: Path) -> tuple[dict[str, Any], dict[tuple[str, str], dict[str, Any]]]:
    """A journal's header and its answers by (setting, question); plain or gzipped."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = [json.loads(line) for line in text.decode("utf-8").splitlines()]
    return lines[0], {(line["setting"], line["item"]): line for line in lines[1:]}


def compare(table: Table, answers: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any] | None:
    """One table's agreement with the uncompressed answers; None below `FEWEST` questions."""
    names = {row.label: setting_id(row.settings) for row in table.rows}
    base = setting_id(BASELINE)
    items = [
        item
        for setting, item in answers
        if setting == base and all((name, item) in answers for name in names.values())
    ]
    if len(items) < FEWEST:
        return None
    rows = []
    for label, name in names.items():
        mine = [answers[name, item] for item in items]
        same = sum(a["answer"] == answers[base, a["item"]]["answer"] for a in mine)
        rows.append(
            {
                "label": label,
                "actual_kv": round(sum(a["kv_share"] for a in mine) / len(mine), 4),
                "agreement": round(same / len(mine), 4),
                "interval": [round(bound, 4) for bound in wilson(same, len(mine))],
            }
        )
    kinds = Counter(item.rpartition("-")[0] for item in items)
    return {
        "name": table.name, "title": table.title, "questions": len(items), "kinds": dict(kinds),
        "rows": rows,
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Print every table as Markdown; write them as JSON."""
    parser = argparse.ArgumentParser(prog="python -m rotatek.evaluation.agreement")
    parser.add_argument("journal", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args(argv)
    header, answers = read(args.journal)
    found = [compare(table, answers) for table in tables().values() if table.scope == "all"]
    kept = [table for table in found if table is not None]
    for table in kept:
        kinds = ", ".join(f"{n} {kind}" for kind, n in table["kinds"].items())
        sys.stdout.write(f"\n## {table['title']}\n\n{table['questions']} questions ({kinds})\n\n")
        sys.stdout.write("| Method | bytes | same answer |\n|---|---|---|\n")
        for row in table["rows"]:
            low, high = (100 * bound for bound in row["interval"])
            sys.stdout.write(
                f"| {row['label']} | {row['actual_kv']:.3f} | {100 * row['agreement']:.1f} % "
                f"({low:.1f} to {high:.1f}) |\n"
            )
    if args.json:
        args.json.write_text(json.dumps({**header, "tables": kept}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
