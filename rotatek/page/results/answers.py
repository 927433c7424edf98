"""Figures of an evaluation: frontiers, channels kept, fixed budgets, what is beyond the paper."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rotatek.compare.columns import UNCOMPRESSED, pruners
from rotatek.methods.channels.ablation_tables import HEAD
from rotatek.page.results.files import (
    EVERY,
    MEASURES,
    SAME,
    Asked,
    Drawings,
    Files,
    evaluations,
    model_of,
    tables_of,
)
from rotatek.page.results.styles import style_of
from viz import Drawing, dot_plot, frontier
from viz.theme import Style

ORDER: Final = (
    "rivals", "frontier", "sparsity", "channels", "budget", "bits", "beyond", "pruners", "ablation"
)  # fmt: skip
# A row of rivals: what needs a pruner, the bits it has there, and how many times smaller it is.
RIVAL: Final = re.compile(r"^(?:\w+ \+ )?(.*?)( \([0-9.]+ bits\))?(, \d+x)$")


def answers(files: Files, asked: Asked) -> Drawings:
    """Figures of every model's evaluation, a table's beside each other."""
    models = evaluations(files)
    found = {end: _answers(built, asked) for end, built in models.items()}
    tables = [table for built in models.values() for table in tables_of(built)]
    drawn: Drawings = {}
    for name in dict.fromkeys(table["name"] for table in sorted(tables, key=_place)):
        having = {end: one[name] for end, one in found.items() if name in one}
        missing = [model_of(models[end]) for end in found if end not in having]
        for end, (title, drawing) in having.items():
            if len(models) > 1:
                title = f"{title}: {model_of(models[end])}"
            if missing:
                lacking = f"{' and '.join(missing)}: not measured yet."
                drawing = drawing._replace(reading=f"{drawing.reading} {lacking}")
            drawn[f"{name}{end}"] = title, drawing
    return drawn


def _answers(built: Mapping[str, Any], asked: Asked) -> Drawings:
    """Figures of one evaluation: frontiers, channels kept, fixed budgets, beyond the paper."""
    drawn: Drawings = {}
    for table in tables_of(built):
        rows = [row for row in (_measured(r, asked) for r in table["rows"]) if row]
        kind = table["name"].partition("-")[0]
        if len(rows) < 2:
            continue
        if kind in ("frontier", "channels", "sparsity"):
            drawing = _lines(rows, kind != "frontier", MEASURES[asked.measure])
        elif kind == "rivals":
            drawing = _lines(_forms(rows), False, MEASURES[asked.measure])
        elif kind == "pruners":
            drawing = _pruners(rows, MEASURES[asked.measure])
        else:
            drawing = _rows(rows, MEASURES[asked.measure])
        title = table["title"].replace("Accuracy against the KV budget", "Answers against bytes")
        reading = f"{_counted(built, table, asked)} {drawing.reading}"
        drawn[table["name"]] = (title, drawing._replace(reading=reading))
    return drawn


def _place(table: Mapping[str, Any]) -> int:
    """Where a table's figure stands; one that is not named here comes last."""
    kind = table["name"].partition("-")[0]
    return ORDER.index(kind) if kind in ORDER else len(ORDER)


def _counted(built: Mapping[str, Any], table: Mapping[str, Any], asked: Asked) -> str:
    """How many questions a figure rests on, and of which kinds."""
    whole = table["questions"] == table.get("of", table["questions"])
    one = asked.category if asked.category != EVERY and asked.measure == "score" else ""
    if one and whole:
        return f"{built['suite']['categories'][one]:,} questions of {one}."
    if one:
        return f"Those of {one} among {table['questions']:,} questions."
    kinds = ", ".join(table["rows"][0].get("by_category", {}))
    return f"{table['questions']:,} questions{' of ' * bool(kinds)}{kinds}."


class Measured(NamedTuple):
    """One row of a table by the chosen measure: shares in [0, 1]."""

    label: str
    style: Style
    kv: float
    value: float
    low: float
    high: float


def _measured(row: Mapping[str, Any], asked: Asked) -> Measured | None:
    """A row by a measure, or None where it does not have it."""
    source = row
    if asked.category != EVERY and asked.measure == "score":
        source = row.get("by_category", {}).get(asked.category, {})
    value = source.get(SAME if asked.measure == SAME else "score")
    if value is None:
        return None
    own = asked.measure != SAME  # the interval is the score's
    low, high = source.get("interval", (value, value)) if own else (value, value)
    style = style_of(row["label"], row.get("settings"))
    return Measured(row["label"], style, row["actual_kv"], value, low, high)


def _lines(rows: Sequence[Measured], channels: bool, measure: str) -> Drawing:
    """A line a method: against the share of bytes, or of Key channels, that is kept."""
    grouped: dict[str, list[tuple[float, Measured]]] = {}
    for row in rows:
        name, _, last = row.label.rpartition(", ")
        if name:
            kept = float(last) / HEAD if channels else row.kv
            grouped.setdefault(name, []).append((kept, row))
    lines = [
        frontier.Line(name, points[0][1].style, _points(points)) for name, points in grouped.items()
    ]
    whole = next((row.value for row in rows if row.label == UNCOMPRESSED), None)
    axes = frontier.Axes("of the Key channels" if channels else "of the cache's bytes", measure)
    return frontier.draw(lines, whole, axes)


def _forms(rows: Sequence[Measured]) -> list[Measured]:
    """The better row of every method at every budget, where two pruners may get it there."""
    best: dict[str, Measured] = {}
    for row in rows:
        label = _form(row.label)
        if label not in best or row.value > best[label].value:
            best[label] = row._replace(label=label)
    return list(best.values())


def _form(label: str) -> str:
    """A rival's words without the pruner that it needs there, and without how many bits it has."""
    return RIVAL.sub(lambda row: f"{row[1]}{' (bits)' * bool(row[2])}{row[3]}", label)


def _pruners(rows: Sequence[Measured], measure: str) -> Drawing:
    """A row for what joins the pruners, and in it a dot for each of them."""
    shown = []
    for row in rows:
        pruner = next((one for one in pruners() if row.label.startswith(one.label)), None)
        if pruner is not None:
            joined = row.label.removeprefix(pruner.label).strip().removeprefix("+ ")
            words = f"tokens {joined}" if joined.startswith("only") else joined
            values = 100 * row.value, 100 * row.low, 100 * row.high
            shown.append(dot_plot.Dot(words, *values, pruner.colour, pruner.label))
    return dot_plot.draw(shown, dot_plot.Scale(measure, ".1f", " %"), _rule(rows))


def _points(measured: Sequence[tuple[float, Measured]]) -> frontier.Points:
    """A line's measurements, each with the share that it keeps."""
    return frontier.Points(
        np.array([kept for kept, _ in measured]),
        np.array([row.value for _, row in measured]),
        np.array([row.low for _, row in measured]),
        np.array([row.high for _, row in measured]),
    )


def _rows(rows: Sequence[Measured], measure: str) -> Drawing:
    """A row a setting, with the share of bytes that it really holds."""
    shown = [
        dot_plot.Dot(
            f"{row.label}<br>in {100 * row.kv:.0f} % of the bytes",
            100 * row.value, 100 * row.low, 100 * row.high, row.style.colour,
        )
        for row in rows
        if row.label != UNCOMPRESSED
    ]  # fmt: skip
    return dot_plot.draw(shown, dot_plot.Scale(measure, ".1f", " %"), _rule(rows))


def _rule(rows: Sequence[Measured]) -> tuple[float, str] | None:
    """The uncompressed score, that all rows are measured against."""
    whole = next((row.value for row in rows if row.label == UNCOMPRESSED), None)
    return None if whole is None else (100 * whole, "uncompressed")
