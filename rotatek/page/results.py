"""The Results tab: one figure and one table of committed answers to follow-up questions."""

from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

import gradio as gr

from rotatek.evaluation.report import EVERY, LATER, SERIES, Record, figure, rows
from rotatek.page import markup
from rotatek.page.binding import AT_ONCE, Shown, Widgets
from viz.theme import percent

MISSING: Final = "Nothing is measured in this copy: python -m rotatek evaluate makes the figures."
SAID: Final = (
    "Each picture is asked several questions; the figures count those after the first, which read "
    "the compressed cache from their first token. Bytes are those of live tensors, text and bases "
    "included; intervals are 95 %, resampled by picture."
)
HEADS: Final = ("setting", "score of follow-ups", "same answers", "bytes")


@cache
def drawn(path: Path) -> str:
    """The evaluation's one figure, a panel a model, as HTML; on a phone its legend stands below."""
    said = "Scores of follow-up questions against bytes. The table has every figure."
    series = SERIES | {"other settings": "#bbbbbb"}
    names = "".join(f'<li style="--c: {colour}">{name}</li>' for name, colour in series.items())
    return (
        f'<div class="rk-table" tabindex="0" role="region" aria-label="{said}">'
        f'{figure(rows(path))}</div><ul class="rk-series" aria-hidden="true">{names}</ul>'
    )


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
    """The tab, read from the file of answers at `path` when it is opened."""
    said = SAID if path.exists() else MISSING
    gr.HTML(markup.section("Results", said), js_on_load=None, elem_id="results-opening")
    if not path.exists():
        return
    widgets = Widgets(drawn=gr.HTML("", js_on_load=None, elem_id="results-figure"))
    widgets["model"] = gr.Radio([], label="Model", visible=False, elem_id="results-model")
    widgets["table"] = gr.HTML("", js_on_load=None, elem_id="results-table")

    def shown(model: str | None) -> Shown:
        found = read(path)
        chosen = model if model in found else next(iter(found))
        several = gr.update(choices=list(found), value=chosen, visible=len(found) > 1)
        return {"model": several, "drawn": drawn(path), "table": table(found[chosen])}

    widgets.listen([tab.select, widgets["model"].input], shown, "model drawn table", **AT_ONCE)
