"""The committed measurements: which files there are, and what is counted of the evaluation's."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from viz import Drawing

FILES: Final = ("kernels", "full_size", "efficiency")
EVALUATIONS: Final = "results"  # how the names of evaluations begin, one a model
EVERY: Final = "all"
SAME: Final = "agreement"
MEASURES: Final = {"score": "score", SAME: "same answer as uncompressed"}

Drawings = dict[str, tuple[str, Drawing]]  # name -> title, figure
Files = Mapping[str, Any]


class Asked(NamedTuple):
    """Which answers are counted, and how: a key of `MEASURES`, a kind of question or `EVERY`."""

    measure: str = "score"
    category: str = EVERY


def load(folder: Path) -> dict[str, Any]:
    """The measurements that are there and can be read, by name."""
    found: dict[str, Any] = {}
    evaluated = sorted((path.stem for path in folder.glob(f"{EVALUATIONS}*.json")), key=len)
    for name in (*evaluated, *FILES):
        path = folder / f"{name}.json"
        try:
            found[name] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
    return found


def evaluations(files: Files) -> dict[str, Mapping[str, Any]]:
    """The evaluation of every model, by what its figures' names end in; the default one's first."""
    mine = [name for name in files if name.startswith(EVALUATIONS)]
    return {name.removeprefix(EVALUATIONS): files[name] for name in mine}


def model_of(built: Mapping[str, Any]) -> str:
    """The model's name, if the evaluation says it."""
    return str(built.get("model", {}).get("name", ""))


def tables_of(built: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """An evaluation's tables of all questions; those of the pages alone repeat their rows."""
    return [table for table in built["tables"] if not table["name"].endswith("-long")]


def categories(files: Files) -> list[str]:
    """Kinds of questions that every table scores on their own; none where there is one kind."""
    tables = [table for built in evaluations(files).values() for table in tables_of(built)]
    rows = [table["rows"][0] for table in tables if table["rows"]]
    kinds = [list(row.get("by_category", {})) for row in rows]
    shared = [kind for kind in (kinds[0] if kinds else []) if all(kind in row for row in kinds)]
    return shared if len(shared) > 1 else []


def efficiency_rows(files: Files) -> list[Mapping[str, Any]]:
    """The rows of the efficiency measurement, as the kernels' bench writes them."""
    found = files.get("efficiency", {})
    found = found.get("efficiency", found) if isinstance(found, dict) else {}
    return [row for row in found.get("rows", []) if isinstance(row, dict)]
