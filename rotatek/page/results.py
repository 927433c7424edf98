"""The Results tab: one figure and one table of committed answers to follow-up questions."""

from collections.abc import Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Final

import gradio as gr
import numpy as np

from rotatek.evaluation.report import EVERY, LATER, Record, rows
from rotatek.evaluation.tables import UNCOMPRESSED
from rotatek.methods.channels import CHANNELS
from rotatek.methods.tokens import TOKENS
from rotatek.page import markup, plot_transport
from rotatek.page.binding import AT_ONCE, Shown, Widgets
from rotatek.page.markup import message_box
from viz import Drawing, frontier
from viz.theme import PlainStyle, Style, percent

FIGURE: Final = {"frontier": "Follow-up questions against bytes"}
MISSING: Final = "Nothing is measured in this copy: python -m rotatek evaluate makes the figures."
SAID: Final = (
    "Each picture is asked several questions; the figures count those after the first, which read "
    "the compressed cache from their first token. Bytes are those of live tensors, text and bases "
    "included; intervals are 95 %, resampled by picture."
)
HEADS: Final = ("setting", "score of follow-ups", "same answers", "bytes")
Figures = dict[str, list[Record]]  # follow-up records of every setting, by model


def read(path: Path) -> Figures:
    """What a file of answers says, over all its splits; nothing where there is no such file."""
    return _read(path, path.stat().st_mtime) if path.exists() else {}


@lru_cache(maxsize=2)
def _read(path: Path, changed: float) -> Figures:
    found: Figures = {}
    for one in rows(path):
        if one.turn == LATER:
            found.setdefault(one.model, []).append(one)
    for model, mine in found.items():
        if any(one.split == EVERY for one in mine):
            found[model] = [one for one in mine if one.split == EVERY]
    return found


def figure(records: Sequence[Record]) -> Drawing:
    """A line a method: its settings that none of its others beats in fewer bytes."""
    lines: dict[str, list[Record]] = {}
    styles: dict[str, Style] = {}
    for one in sorted(records, key=lambda one: (one.bytes, -one.score)):
        style = style_of(one.setting)
        best = lines.setdefault(style.label, [])
        styles[style.label] = style
        if not best or one.score > best[-1].score:
            best.append(one)
    whole = lines.pop(UNCOMPRESSED, None)
    drawn = [
        frontier.Line(
            styles[name],
            *(np.array([getattr(one, part) for one in mine])
              for part in ("bytes", "score", "low", "high")),
        )
        for name, mine in lines.items()
    ]  # fmt: skip
    return frontier.draw(drawn, whole[0].score if whole else None)


def style_of(setting: str) -> Style:
    """Of the channel method that a setting's name has, else of its pruner, else plain."""
    for method in CHANNELS.values():
        if method.label in setting:
            return method
    for pruner in TOKENS.values():
        if pruner.label in setting:
            return PlainStyle(
                pruner.label, colour=pruner.colour, marker=pruner.marker, dash=pruner.dash
            )
    return PlainStyle(setting)


def table(records: Sequence[Record]) -> str:
    """A row a setting, as HTML."""
    body = [
        (
            one.setting,
            f"{100 * one.score:.1f} % ({100 * one.low:.1f} to {100 * one.high:.1f})",
            percent(one.same),
            percent(one.bytes),
        )
        for one in records
    ]
    cells = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in body
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in HEADS)
    return (
        '<div class="rk-table" tabindex="0" role="region" aria-label="Every setting"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{cells}</tbody></table></div>"
    )


def results_part(path: Path, tab: gr.Tab) -> None:
    """The tab, read from the file of answers at `path` when it is opened; a sentence where there
    is no such file."""
    said = SAID if path.exists() else MISSING
    gr.HTML(markup.section("Results", said), js_on_load=None, elem_id="results-opening")
    if not path.exists():
        return
    widgets = Widgets(model=gr.Radio([], label="Model", visible=False, elem_id="results-model"))
    plot_transport.sheet(FIGURE, [list(FIGURE)], "results-figure")
    widgets["table"] = gr.HTML("", js_on_load=None, elem_id="results-table")
    widgets["drawn"] = message_box("results-drawn")

    def shown(model: str | None) -> Shown:
        found = read(path)
        if not found:
            return {"table": markup.aside(MISSING)}
        chosen = model if model in found else next(iter(found))
        records = found[chosen]
        several = gr.update(choices=list(found), value=chosen, visible=len(found) > 1)
        payload = plot_transport.payload({"frontier": figure(records)})
        return {"model": several, "drawn": payload, "table": table(records)}

    widgets.listen([tab.select, widgets["model"].input], shown, "model drawn table", **AT_ONCE)
