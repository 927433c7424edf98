"""The attention of each column, sent to the browser: `assets/page.js` shows it on the picture."""

import base64
import json
from collections.abc import Iterable
from typing import Any

from rotatek.inputs.token_grid import Grid
from rotatek.inspect.answer_attention import AnswerAttention
from rotatek.page.ask.widgets import AskWidgets
from rotatek.page.binding import QUIET, listen
from rotatek.page.user_errors import refusing
from rotatek.service.run import Run


@refusing
def highlights(run: Run | None) -> dict[str, str]:
    """The attention of every finished column of a run. Changes: highlights."""
    return {} if run is None else {"highlights": packed(run)}


def packed(run: Run) -> str:
    """JSON: of every column rows, columns, steps, and the cells [steps, rows * columns] in
    base64; they are those of the first image."""
    found: dict[str, Any] = {}
    for title, column in run.columns.items():
        filled, done = column.prefilled, column.finished
        if filled is None or done is None or done.attention is None or not filled.grids:
            continue
        found[title] = look_of(filled.grids[0], done.attention)
    return json.dumps({"run": run.key, "columns": found}, separators=(",", ":"))


def look_of(grid: Grid, attention: AnswerAttention) -> dict[str, Any]:
    """The attention of one answer on the picture of a grid, as `assets/page.js` reads it."""
    return {
        "rows": grid.rows, "columns": grid.columns, "steps": list(attention.steps),
        "cells": base64.b64encode(grid.to_cells(attention.cells).tobytes()).decode(),
    }  # fmt: skip


def wire_highlights(widgets: AskWidgets, finished: Iterable[Any]) -> None:
    """After every answer, send the attention of its columns to the browser."""
    place = widgets.answers
    for event in finished:
        listen(
            event.then, highlights, {"run": place.run}, {"highlights": place.highlights}, **QUIET
        )
