"""Committed results of one model, and beside them those of a second that was asked less."""

from dataclasses import replace
from typing import Any

from rotatek.evaluation.cells import Results

SECOND = "pocket-smol"
SIZES = (2, 4, 8)  # of the table of rivals that the second has


def two_models(results: Results) -> Results:
    """The first model's results, and the same once more as a second model's, with fewer rows: the
    sizes of `SIZES` alone, no table of every pruner, and one setting left out of the few."""
    first = results.main[0]["model"]["name"]
    runs = [run for run in results.runs if run["model"]["name"] == first]
    cells = [cell for cell in results.cells if cell.model == first]
    core = [cell.row for cell in cells if cell.table == "core"]
    left_out = core[1] if core else ""
    mine = [
        replace(cell, model=SECOND)
        for cell in cells
        if cell.table != "pruners"
        and not (cell.table == "rivals" and cell.times and cell.times not in SIZES)
        and not (cell.table == "core" and cell.row == left_out)
    ]
    rows = {(cell.table, cell.row) for cell in mine}
    pairs = [pair for pair in results.pairs if pair.model == first]
    own = [
        pair._replace(model=SECOND)
        for pair in pairs
        if {(pair.table, pair.first), (pair.table, pair.second)} <= rows
    ]
    found = [one for one in results.found if one.model == first]
    others = [one for one in results.found if one.counted == "measured" or not one.model]
    return Results(
        [*runs, *map(_renamed, runs)],
        [*cells, *mine],
        [*pairs, *own, *(pair for pair in results.pairs if pair.counted == "measured")],
        [*found, *(one._replace(model=SECOND) for one in found), *others],
    )


def _renamed(run: Any) -> dict[str, Any]:
    tables = [table for table in run["tables"] if table["name"] != "pruners"]
    return {**run, "model": run["model"] | {"name": SECOND}, "tables": tables}
