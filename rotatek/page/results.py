"""The Results tab: one figure and one table of committed answers to follow-up questions."""

from collections.abc import Sequence
from functools import cache
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


@cache
def read(path: Path) -> dict[str, list[Record]]:
    """A file's records of follow-up questions, of every setting over all splits, by model."""
    found: dict[str, list[Record]] = {}
    for one in rows(path):
        if one.turn == LATER:
            found.setdefault(one.model, []).append(one)
    return {
        model: [one for one in mine if one.split == EVERY] or mine for model, mine in found.items()
    }


def figure(records: Sequence[Record]) -> Drawing:
    """A line a method: its settings that none of its others beats in fewer bytes."""
    lines: dict[Style, list[Record]] = {}
    for one in sorted(records, key=lambda one: (one.bytes, -one.score)):
        best = lines.setdefault(style_of(one.setting), [])
        if not best or one.score > best[-1].score:
            best.append(one)
    whole = lines.pop(PlainStyle(UNCOMPRESSED), None)
    parts = ("bytes", "score", "low", "high")
    drawn = [
        frontier.Line(style, *(np.array([getattr(one, part) for one in mine]) for part in parts))
        for style, mine in lines.items()
    ]
    return frontier.draw(drawn, whole[0].score if whole else None)


def style_of(setting: str) -> Style:
    """Of the channel method that a setting's name has, else of its pruner, else plain."""
    for kind in (*CHANNELS.values(), *TOKENS.values()):
        if kind.label in setting:
            rotates = getattr(kind, "rotates", False)
            return PlainStyle(kind.label, "", kind.colour, kind.marker, kind.dash, rotates)
    return PlainStyle(setting)


def table(records: Sequence[Record]) -> str:
    """A row a setting, as HTML."""
    body = ""
    for one in records:
        score = f"{100 * one.score:.1f} % ({100 * one.low:.1f} to {100 * one.high:.1f})"
        cells = "".join(f"<td>{c}</td>" for c in (score, percent(one.same), percent(one.bytes)))
        body += f'<tr><th scope="row">{escape(one.setting)}</th>{cells}</tr>'
    head = "".join(f'<th scope="col">{name}</th>' for name in HEADS)
    return (
        '<div class="rk-table" tabindex="0" role="region" aria-label="Every setting"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
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
        chosen = model if model in found else next(iter(found))
        records = found[chosen]
        several = gr.update(choices=list(found), value=chosen, visible=len(found) > 1)
        payload = plot_transport.payload({"frontier": figure(records)})
        return {"model": several, "drawn": payload, "table": table(records)}

    widgets.listen([tab.select, widgets["model"].input], shown, "model drawn table", **AT_ONCE)
