"""The committed measurements: which files there are, and what is counted of the evaluation's."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from viz import Drawing

FILES: Final = ("results", "kernels", "full_size", "efficiency")
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
    for name in FILES:
        path = folder / f"{name}.json"
        try:
            found[name] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
    return found


def tables_of(files: Files) -> list[Mapping[str, Any]]:
    """The evaluation's tables of all questions; those of the pages alone repeat their rows."""
    tables = files.get("results", {"tables": []})["tables"]
    return [table for table in tables if not table["name"].endswith("-long")]


def categories(files: Files) -> list[str]:
    """Kinds of questions that every table scores on their own; none where there is one kind."""
    rows = [table["rows"][0] for table in tables_of(files) if table["rows"]]
    kinds = [list(row.get("by_category", {})) for row in rows]
    shared = [kind for kind in (kinds[0] if kinds else []) if all(kind in row for row in kinds)]
    return shared if len(shared) > 1 else []


def efficiency_rows(files: Files) -> list[Mapping[str, Any]]:
    """The rows of the efficiency measurement, as the kernels' bench writes them."""
    found = files.get("efficiency", {})
    found = found.get("efficiency", found) if isinstance(found, dict) else {}
    return [row for row in found.get("rows", []) if isinstance(row, dict)]
