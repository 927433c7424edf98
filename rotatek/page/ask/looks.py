"""Where each column looked, sent to the browser: `assets/page.js` lights it on the picture."""

import base64
import json
from collections.abc import Iterable
from typing import Any

from rotatek.page.ask.widgets import AskWidgets
from rotatek.page.binding import QUIET, listen
from rotatek.page.refusals import refusing
from rotatek.page.state import Run


@refusing
def looks(run: Run | None) -> dict[str, str]:
    """The looks of every finished column of a run. Changes: looks."""
    return {} if run is None else {"looks": packed(run)}


def packed(run: Run) -> str:
    """JSON: of every column rows, columns, steps, and the cells [steps, rows * columns] in
    base64; they are those of the first image."""
    found: dict[str, Any] = {}
    for title, column in run.columns.items():
        filled, done = column.prefilled, column.finished
        if filled is None or done is None or done.looks is None or not filled.grids:
            continue
        rows, columns = filled.grids[0]
        cells = done.looks.cells[:, : rows * columns]
        found[title] = {
            "rows": rows, "columns": columns, "steps": list(done.looks.steps),
            "cells": base64.b64encode(cells.tobytes()).decode(),
        }  # fmt: skip
    return json.dumps({"run": run.key, "columns": found}, separators=(",", ":"))


def wire_looks(widgets: AskWidgets, finished: Iterable[Any]) -> None:
    """After every answer the browser knows where its columns looked."""
    place = widgets.answers
    for event in finished:
        listen(event.then, looks, {"run": place.run}, {"looks": place.looks}, **QUIET)
