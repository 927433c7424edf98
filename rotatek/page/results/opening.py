"""The figure that Results opens with: what every method's best settings score in which bytes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rotatek.compare.columns import UNCOMPRESSED
from rotatek.page.results.files import Drawings, Files, evaluations, model_of, tables_of
from rotatek.page.results.styles import style_of
from viz import frontier
from viz.theme import UNCOMPRESSED as WHOLE
from viz.theme import Style, percent

TITLE: Final = "Every method at its best"
READING: Final = (
    "Each line joins the settings of one method, out of all tables below, that no other of its "
    "settings beats in fewer bytes; bands are 95 % intervals."
)
OPENING: Final = "opening"  # how the names of these figures begin
NEARLY: Final = 0.85  # of the most questions: a run that was cut short asked tables unequally
NEAR: Final = 0.02  # of the uncompressed score, which counts as keeping it


class Best(NamedTuple):
    """A method's settings that no other of its settings beats in fewer bytes.

    Attributes:
        name: of the line.
        style: the method's.
        rows: of the tables, by rising share of live bytes.
    """

    name: str
    style: Style
    rows: tuple[Mapping[str, Any], ...]

    def nearest(self, score: float) -> Mapping[str, Any] | None:
        """The row with the fewest bytes whose score is at least `score`."""
        return next((row for row in self.rows if row["score"] >= score), None)


def opening(files: Files) -> tuple[str, Drawings]:
    """A sentence and a figure for every model; none where nothing was measured."""
    said, drawn, models = [], Drawings(), evaluations(files)
    for end, built in models.items():
        found, whole = bests(built), reference(built)
        if not found or whole is None:
            continue
        name = model_of(built) if len(models) > 1 else ""
        lines = [frontier.Line(best.name, best.style, _points(best.rows)) for best in found]
        axes = frontier.Axes("of the cache's live bytes", "score")
        drawing = frontier.draw(lines, whole, axes)._replace(reading=READING + _measured(built))
        said.append(f"{name}: {sentence(found, whole)}" if name else sentence(found, whole))
        drawn[f"{OPENING}{end}"] = f"{TITLE}: {name}" if name else TITLE, drawing
    return "\n".join(said), drawn


def _measured(built: Mapping[str, Any]) -> str:
    """On how many questions, with which weights, in what type and where."""
    model, ran = built.get("model", {}), built.get("ran_on", {})
    if "weights" not in model:
        return ""
    most = max(table["questions"] for table in tables_of(built))
    where = f", on {ran['device']}" if "device" in ran else ""
    return f" Up to {most:,} questions; weights {model['weights'][:8]}, {model['dtype']}{where}."


def reference(built: Mapping[str, Any]) -> float | None:
    """The uncompressed model's score, on the questions that most tables ask."""
    rows = (row for table in _large(built) for row in table["rows"])
    return next((row["score"] for row in rows if row["label"] == UNCOMPRESSED), None)


def _large(built: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tables that asked the most questions, or nearly as many."""
    tables = tables_of(built)
    most = max((table["questions"] for table in tables), default=0)
    return [table for table in tables if table["questions"] >= NEARLY * most]


def bests(built: Mapping[str, Any]) -> list[Best]:
    """A line a method, over the tables that asked the most questions, or nearly as many."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    styles: dict[str, Style] = {}
    for table in _large(built):
        for row in table["rows"]:
            style = style_of(row["label"], row.get("settings"))
            if style is not WHOLE:
                styles[style.label] = style
                rows.setdefault(style.label, []).append(row)
    names = {label: label if isinstance(style, type) else f"{label} alone"
             for label, style in styles.items()}  # fmt: skip
    return [Best(names[label], styles[label], unbeaten(mine)) for label, mine in rows.items()]


def unbeaten(rows: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """By rising bytes, those with a higher score than all that take fewer."""
    kept: list[Mapping[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["actual_kv"], -row["score"])):
        if not kept or row["score"] > kept[-1]["score"]:
            kept.append(row)
    return tuple(kept)


def sentence(found: Sequence[Best], whole: float) -> str:
    """What each method needs to stay within `NEAR` of the uncompressed score."""
    near = {best.name: best.nearest(whole - NEAR) for best in found}
    reached = sorted(
        ((row["actual_kv"], name, row["label"]) for name, row in near.items() if row is not None),
    )
    missed = [name for name, row in near.items() if row is None]
    parts = [f"{name} {percent(share)}" for share, name, _ in reached]
    if reached:
        share, name, label = reached[0]
        parts[0] = f"{name} needs {percent(share)} of the live bytes ({label})"
    said = f"Within two points of the uncompressed {100 * whole:.1f} %, {', '.join(parts)}"
    return said + (f"; {' and '.join(missed)} do not get there." if missed else ".")


def _points(rows: Sequence[Mapping[str, Any]]) -> frontier.Points:
    low, high = zip(*(row.get("interval", (row["score"],) * 2) for row in rows), strict=True)
    return frontier.Points(
        np.array([row["actual_kv"] for row in rows]),
        np.array([row["score"] for row in rows]),
        np.array(low),
        np.array(high),
    )
