"""Make every committed table again from the committed answers: `make results`.

For each `assets/results/answers/NAME.jsonl.xz` the tables, claims and intervals are computed anew
and written to `assets/results/NAME.json` and `NAME.md` (`pocket` to `results`, `pocket-llava` to
`results-pocket-llava`, which the page and the frontier draw). Results without a file of answers
stay as they are. Then the frontier is drawn, and regions between `<!-- data: ... -->` and
`<!-- end -->` in README.md and docs/results.md are written.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from docs import frontier
from rotatek.compare.columns import UNCOMPRESSED
from rotatek.evaluation import report, rivals
from rotatek.evaluation.answers import SUFFIX, Kept, unpack
from rotatek.evaluation.journal import weights_id
from rotatek.evaluation.tables import Row, Table, tables
from rotatek.models import load
from rotatek.settings import BASELINE, Settings

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "assets" / "results"
MAIN: Final = {"pocket": "results", "pocket-llava": "results-pocket-llava"}
REGION: Final = re.compile(r"(<!-- data: (\w[\w-]*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
TEXTS: Final = ("README.md", "docs/results.md")


def rebuilt(kept: Kept) -> dict[str, Any]:
    """The results that a file of answers amounts to: every table of which it has most rows."""
    rows = [Row(UNCOMPRESSED, BASELINE), *(Row(*pair) for pair in kept.solved.items())]
    made = [*tables().values(), rivals.table_of(rows)]
    header = {name: value for name, value in kept.header.items() if name != "solved"}
    chosen = [table for table in made if _has(table, kept)]
    return report.build(chosen, kept.items, kept.answers, header)


def _has(table: Table, kept: Kept) -> bool:
    known = set(kept.settings.values())
    mine = [row for row in table.rows if row.settings in known]
    return len(mine) > 1 and 2 * len(mine) > len(table.rows)


def claims() -> str:
    """Every claim, a table a model that was asked with answers kept."""
    parts = []
    for built in frontier.committed():
        if built.get("claims"):
            parts += [f"{_whose(built)}:", "", *report.claim_lines(built), ""]
    return "\n".join(parts) + ("\n" if parts else "")


def runs() -> str:
    """What was asked of which weights, in which type, where; and whether those are shipped."""
    heads = "results", "model", "weights", "shipped", "type", "device", "questions", "settings"
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, built in every():
        model, settings = (
            built["model"],
            {row["label"] for table in built["tables"] for row in table["rows"]},
        )
        most = max((table["questions"] for table in built["tables"]), default=0)
        of = built["suite"]["questions"]
        cells = (
            f"`{name}`", model["name"], f"`{model['weights']}`",
            "yes" if model["weights"] == shipped(model["name"]) else "no: replaced since",
            report.type_of(built), built.get("ran_on", {}).get("device", "not recorded"),
            f"{of:,}" if most == of else f"{most:,} of {of:,}", str(len(settings)),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def every() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every committed results file of an evaluation, by name; the page's first."""
    stems = [path.name.removesuffix(SUFFIX) for path in packed()]
    names = dict.fromkeys([*MAIN.values(), *(MAIN.get(stem, stem) for stem in stems)])
    for name in names:
        path = RESULTS / f"{name}.json"
        if path.exists():
            yield path.name, json.loads(path.read_text(encoding="utf-8"))


@lru_cache
def shipped(name: str) -> str:
    """The fingerprint of an embedded model's weights as they are in this checkout."""
    return weights_id(load(name, "cpu"))


# Settings that README shows, by the words for them: uncompressed, the paper's, and beyond it.
HEADLINE: Final[Mapping[str, Mapping[str, Any]]] = {
    "uncompressed": {"channels": "full"},
    "RotateK, 32 of 128 Key channels, every token": {"keep_channels": 0.25},
    "FastV alone": {"tokens": "fastv", "keep_tokens": 0.25, "channels": "full"},
    **{
        f"FastV + {label}": {"tokens": "fastv", "keep_tokens": 0.4, "keep_channels": 0.25, **own}
        for label, own in {
            "ThinK": {"channels": "think"},
            "SparK (mean)": {"channels": "spark", "recovery": "mean"},
            "SparK (signs)": {"channels": "spark"},
            "RotateK": {},
        }.items()
    },
    "beyond the paper: Keys 16, Values 32, adaptive widths, every token": {
        "keep_channels": 0.125, "keep_values": 0.25, "widths": "adaptive",
    },
    "beyond the paper: .75 bits a number, every token": {"bits": 0.75},
}  # fmt: skip


def headline() -> str:
    """A few settings on every model side by side: live bytes, then the score; the paper's count."""
    models = frontier.committed()
    found = [{Settings.from_dict(row["settings"]): row
              for table in built["tables"] if table["questions"] == table["of"]
              for row in table["rows"] if not table["name"].endswith("-long")}
             for built in models]  # fmt: skip
    heads = [f"{built['model']['name']}: live bytes ({report.type_of(built)}) | score"
             for built in models]  # fmt: skip
    lines = [f"| | nominal | {' | '.join(heads)} |", "|---|---|" + "---|---|" * len(models)]
    for words, flat in HEADLINE.items():
        settings = Settings.of(**flat)
        cells = [_numbers(rows[settings]) if settings in rows else " | " for rows in found]
        if any(settings in rows for rows in found):
            lines.append(f"| {words} | {_share(settings.nominal_kv)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _share(value: float) -> str:
    """Without its nought, as the text writes it."""
    return f"{value:.3g}".removeprefix("0")


def _numbers(row: Mapping[str, Any]) -> str:
    """Two cells: live bytes, score."""
    return f"{_share(row['actual_kv'])} | {100 * row['score']:.1f}"


def _tables(*names: str) -> Callable[[], str]:
    """Every row of some tables, on every model."""

    def drawn() -> str:
        lines = []
        for _, built in every():
            for table in built["tables"]:
                if table["name"] in names:
                    lines += [f"| {table['title']}: {built['model']['name']} | live bytes "
                              f"({report.type_of(built)}) | score | nominal |",
                              "|---|---|---|---|"]  # fmt: skip
                    lines += [f"| {row['label']} | {_numbers(row)} | {_share(row['nominal_kv'])} |"
                              for row in table["rows"]]  # fmt: skip
                    lines.append("")
        return "\n".join(lines[:-1]) + "\n" if lines else ""

    return drawn


def _whose(built: Mapping[str, Any]) -> str:
    return (
        f"{built['model']['name']} (weights {built['model']['weights']}, {report.type_of(built)})"
    )


REGIONS: Final[Mapping[str, Callable[[], str]]] = {
    "claims": claims,
    "runs": runs,
    "headline": headline,
    "budgets": _tables("budget-fastv", "budget-visionzip"),
    "channels": _tables("channels"),
    "beyond": _tables("beyond", "bits"),
    "pages": _tables("budget-fastv-long", "budget-visionzip-long"),
    "rivals": _tables("rivals"),
    "core": _tables("core"),
}


def filled(text: str) -> str:
    """A document with its regions as the data have them."""
    return REGION.sub(lambda m: m[1] + REGIONS[m[2]]() + m[4], text)


def packed() -> Iterator[Path]:
    """Every committed file of answers."""
    yield from sorted((RESULTS / "answers").glob(f"*{SUFFIX}"))


def main() -> None:
    """Write results, the figure and the documents' regions."""
    for path in packed():
        name = path.name.removesuffix(SUFFIX)
        built, stem = rebuilt(unpack(path)), MAIN.get(name, name)
        report.save(built, RESULTS / f"{stem}.json")
        sys.stdout.write(f"assets/results/{stem}.json\n")
    frontier.main()
    for name in TEXTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        (ROOT / name).write_text(filled(text), encoding="utf-8")


if __name__ == "__main__":
    main()
