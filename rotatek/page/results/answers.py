"""Figures of an evaluation: frontiers, channels kept, fixed budgets, what is beyond the paper."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from rotatek.compare.columns import UNCOMPRESSED
from rotatek.evaluation.cells import Cell, Score
from rotatek.methods.tokens import TOKENS
from rotatek.page.results.files import EVERY, MEASURES, SAME, Asked, Drawings, Files
from rotatek.page.results.styles import style_of
from viz import Drawing, dot_plot, frontier

ORDER: Final = ("live", "channels", "", "pruners")  # of figures, by what they are drawn against


class Counted(NamedTuple):
    """A cell, and what is counted of it."""

    cell: Cell
    score: Score


def answers(files: Files, asked: Asked) -> Drawings:
    """Figures of every model's evaluation, a table's beside each other."""
    models = files.results.main
    shown: dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any], list[Cell]]]] = {}
    for run in models:
        found = files.results.of(run)
        for table in run["tables"]:
            if table["scope"] != "long":  # the pages alone: a kind of question of the others
                shown.setdefault(table["name"], []).append((run, table, found[table["name"]]))
    drawn = conversations(files, asked)
    for name in sorted(shown, key=lambda name: _place(shown[name][0][1])):
        having = [run["model"]["name"] for run, _, _ in shown[name]]
        missing = [run["model"]["name"] for run in models if run["model"]["name"] not in having]
        for run, table, cells in shown[name]:
            made = _table(run, table, cells, asked)
            if made is None:
                continue
            title, drawing = made
            model = run["model"]["name"]
            if missing:
                lacking = f"{' and '.join(missing)}: not measured yet."
                drawing = drawing._replace(reading=f"{drawing.reading} {lacking}")
            drawn[name_of(name, files, run)] = (
                f"{title}: {model}" if len(models) > 1 else title, drawing)  # fmt: skip
    return drawn


def conversations(files: Files, asked: Asked) -> Drawings:
    """A figure a run of second questions, which read the compressed cache from the first token."""
    drawn: Drawings = {}
    for number, run in enumerate(files.results.conversations):
        for table in run["tables"]:
            made = _table(run, table, files.results.of(run)[table["name"]], asked)
            if made is not None:
                title = f"{made[0]}: {run['model']['name']}, {run['suite']['name']}"
                drawn[f"{run['ask']}-{number}"] = title, made[1]
    return drawn


def name_of(name: str, files: Files, run: Mapping[str, Any]) -> str:
    """A figure's name: the first model's has no ending."""
    return name if run is files.results.main[0] else f"{name}-{run['model']['name']}"


def _place(table: Mapping[str, Any]) -> tuple[bool, int]:
    """The order of a table's figure: solved budgets first."""
    return table["name"] != "rivals", ORDER.index(table["across"])


def _table(
    run: Mapping[str, Any], table: Mapping[str, Any], cells: Sequence[Cell], asked: Asked
) -> tuple[str, Drawing] | None:
    """The figure of one table, or None where too little of it is counted so."""
    found = [Counted(cell, score) for cell in cells if (score := asked.of(cell)) is not None]
    if len(found) < 2:
        return None
    measure = MEASURES[asked.measure]
    if table["across"] in ("live", "channels"):
        drawing = _lines(found, table["across"] == "channels", measure)
    else:
        drawing = _dots(found, table["across"] == "pruners", measure)
    title = table["title"].replace("Accuracy against the KV budget", "Answers against bytes")
    reading = f"{_counted(run, table, cells[0], asked)} {drawing.reading}"
    return title, drawing._replace(reading=reading)


def _counted(run: Mapping[str, Any], table: Mapping[str, Any], cell: Cell, asked: Asked) -> str:
    """How many questions a figure rests on, and of which kinds."""
    one = asked.category if asked.category != EVERY and asked.measure != SAME else ""
    if one and table["questions"] == table["of"]:
        return f"{run['suite']['categories'][one]:,} questions of {one}."
    if one:
        return f"Those of {one} among {table['questions']:,} questions."
    kinds = ", ".join(cell.kinds)
    return f"{table['questions']:,} questions{' of ' * bool(kinds)}{kinds}."


def _lines(found: Sequence[Counted], channels: bool, measure: str) -> Drawing:
    """A line a method: against the share of bytes, or of Key channels, that is kept.

    Where two pruners bring a method to one size, the better one counts.
    """
    grouped: dict[str, dict[Any, Counted]] = {}
    for one in found:
        if one.cell.line:
            mine = grouped.setdefault(one.cell.line, {})
            key = one.cell.times or len(mine)
            if key not in mine or one.score.mean > mine[key].score.mean:
                mine[key] = one
    lines = []
    for name, points in grouped.items():
        cells = [one.cell for one in points.values()]
        kept = [cell.settings.get("keep_channels", 1.0) if channels else cell.live
                for cell in cells]  # fmt: skip
        scores = [one.score for one in points.values()]
        lines.append(frontier.Line(name, style_of(cells[0]), points_of(kept, scores)))
    axes = frontier.Axes("of the Key channels" if channels else "of the cache's bytes", measure)
    return frontier.draw(lines, _whole(found), axes)


def points_of(kept: Sequence[float], scores: Sequence[Score]) -> frontier.Points:
    """A line's measurements, each with the share that it keeps."""
    mean, low, high = (np.array(part) for part in zip(*scores, strict=True))
    return frontier.Points(np.array(kept), mean, low, high)


def _dots(found: Sequence[Counted], pruners: bool, measure: str) -> Drawing:
    """A row a setting; or a row for what joins the pruners, and in it a dot for each of them."""
    shown = []
    for cell, score in found:
        mean, low, high = (100 * value for value in score)
        style = style_of(cell)
        if pruners and cell.line:
            one = TOKENS.get(cell.settings["tokens"])
            colour, label = (one.colour, one.label) if one else (style.colour, style.label)
            shown.append(dot_plot.Dot(cell.line, mean, low, high, colour, label))
        elif not pruners and cell.row != UNCOMPRESSED:
            words = f"{cell.row}<br>in {100 * cell.live:.0f} % of the bytes"
            shown.append(dot_plot.Dot(words, mean, low, high, style.colour))
    whole = _whole(found)
    rule = None if whole is None else (100 * whole, "uncompressed")
    return dot_plot.draw(shown, dot_plot.Scale(measure, ".1f", " %"), rule)


def _whole(found: Sequence[Counted]) -> float | None:
    """The uncompressed score, to which all others are compared."""
    return next((one.score.mean for one in found if one.cell.row == UNCOMPRESSED), None)
