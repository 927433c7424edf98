"""Make every committed table again from the committed answers: `make results`.

For each `assets/results/answers/NAME.jsonl.xz` the tables, claims and intervals are computed anew
and written to `assets/results/NAME.json` and `NAME.md` (`pocket` to `results`, `pocket-llava` to
`results-pocket-llava`, which the page and the frontier draw). Results without a file of answers
stay as they are. Then the frontier is drawn, and the documents' marked regions (`docs.regions`) and
marked numbers (`docs.figures`) are written.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from docs import figures, frontier, regions
from docs.figures import RESULTS
from docs.regions import MAIN
from rotatek.compare.columns import UNCOMPRESSED
from rotatek.evaluation import equal_bytes_table, report
from rotatek.evaluation.answer_archive import SUFFIX, AnswerArchive, unpack
from rotatek.evaluation.tables import Row, Table, tables
from rotatek.methods.settings import BASELINE

ROOT: Final = Path(__file__).resolve().parent.parent
TEXTS: Final = ("README.md", "DEPLOY.md", "docs/*.md", "assets/*/README.md")


def rebuilt(kept: AnswerArchive) -> dict[str, Any]:
    """The results that a file of answers amounts to: every table of which it has most rows."""
    rows = [Row(UNCOMPRESSED, BASELINE), *(Row(*pair) for pair in kept.solved.items())]
    made = [*tables().values(), equal_bytes_table.table_of(rows)]
    header = {name: value for name, value in kept.header.items() if name != "solved"}
    chosen = [table for table in made if _has(table, kept)]
    return report.build(chosen, kept.items, kept.answers, header)


def _has(table: Table, kept: AnswerArchive) -> bool:
    known = set(kept.settings.values())
    mine = [row for row in table.rows if row.settings in known]
    return len(mine) > 1 and 2 * len(mine) > len(table.rows)


def filled(text: str) -> str:
    """A document with its regions and marked numbers as the data have them."""
    return figures.written(regions.filled(text))


def texts() -> Iterator[Path]:
    """Every document that may hold a figure."""
    for pattern in TEXTS:
        yield from sorted(ROOT.glob(pattern))


def packed() -> Iterator[Path]:
    """Every committed file of answers."""
    yield from sorted((RESULTS / "answers").glob(f"*{SUFFIX}"))


def main() -> None:
    """Write results, the figure and the documents' regions and numbers."""
    for path in packed():
        name = path.name.removesuffix(SUFFIX)
        built, stem = rebuilt(unpack(path)), MAIN.get(name, name)
        report.save(built, RESULTS / f"{stem}.json")
        sys.stdout.write(f"assets/results/{stem}.json\n")
    frontier.main()
    for path in texts():
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
