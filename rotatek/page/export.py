"""A run as a visitor saves it: JSON, and a program that gives the answers again."""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

import rotatek
from rotatek.engine.column import Column
from rotatek.methods.settings import Settings
from rotatek.page.form import changed
from rotatek.service.run import Run

PICTURE: Final = "picture.png"  # what code calls an image of the visitor's own


def digest(pixels: np.ndarray) -> str:
    """What tells one picture from another: SHA-256 of its RGB bytes, and its size."""
    height, width = pixels.shape[:2]
    return f"{width}x{height}:{hashlib.sha256(pixels.tobytes()).hexdigest()}"


def record(run: Run) -> dict[str, Any]:
    """The whole conversation: what was asked under which settings, and all that was measured."""
    height, width = run.pixels.shape[:2]
    return {
        "rotatek": rotatek.__version__,
        "model": run.model,
        "image": {"width": width, "height": height, "sha256": digest(run.pixels).split(":")[1]},
        "max_new_tokens": run.max_new_tokens,
        "turns": [
            {
                "question": turn.question,
                "columns": {title: _column(column) for title, column in turn.columns.items()},
            }
            for turn in run.turns
        ],
    }


def _column(column: Column) -> dict[str, Any]:
    """One answer, its figures, and how it went token by token."""
    return column.report() | {
        "failure": column.failure,
        "new_tokens": len(column.pieces),
        "kl_by_token": column.kl,
        "same_token": column.same,
    }


def as_json(run: Run) -> str:
    """`record` as text."""
    return json.dumps(record(run), ensure_ascii=False, indent=2)


def csv_of(rows: Iterable[Sequence[Any]]) -> str:
    """Lines of CSV."""
    out = io.StringIO()
    csv.writer(out).writerows([plain(cell) for cell in row] for row in rows)
    return out.getvalue()


def plain(cell: Any) -> Any:
    """Text that a spreadsheet would take for a formula, made plain text."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell


def python(run: Run, image: str) -> str:
    """A program that gives these answers again."""
    first, *later = run.turns
    talk = ", conversation=talk" if later else ""
    drawn = "Sampling, " if any(turn.sampling.draws for turn in run.turns) else ""
    lines = [
        "from pathlib import Path",
        "",
        f"from rotatek import Engine, {drawn}Settings, make_request, open_image",
        *(["from rotatek.engine.conversation import Conversation"] if later else []),
        "from rotatek.engine.events import Finished",
        "",
        f"engine = Engine({run.model!r})",
        f"picture = open_image(Path({image!r}))",
        f"request = make_request(picture, {first.question!r}, {run.max_new_tokens}{_drawn(first)})",
        "columns = {",
        *(f"    {title!r}: {_call(c.settings)}," for title, c in run.columns.items()),
        "}",
        *(["talk = Conversation()"] if later else []),
        f"for event in engine.compare(request, columns{talk}):",
        *_PRINT,
    ]
    for turn in later:
        given = f"talk, {turn.question!r}, {turn.max_new_tokens}{_drawn(turn)}"
        lines.append(f"for event in engine.follow({given}):")
        lines += _PRINT
    return "\n".join([*lines, *(["talk.close()"] if later else [])])


_PRINT: Final = (
    "    if isinstance(event, Finished):",
    "        print(f\"{event.column}: {event.answer} ({event.metrics['kv_bytes']} bytes)\")",
)


def _drawn(turn: Run) -> str:
    """The further argument of a turn whose tokens are drawn."""
    if not turn.sampling.draws:
        return ""
    given = ", ".join(f"{name}={value!r}" for name, value in turn.sampling.as_dict().items())
    return f", sampling=Sampling({given})"


def _call(settings: Settings) -> str:
    """`Settings.of(tokens='fastv', keep_tokens=0.4)`, which needs no method's own module."""
    given = ", ".join(f"{name}={value!r}" for name, value in changed(settings).items())
    return f"Settings.of({given})"
