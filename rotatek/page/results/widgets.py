"""The widgets of the Results tab: what is counted, frames for what was measured, a table."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import gradio as gr

from rotatek.evaluation.report import claim_lines
from rotatek.page import markup, plot_transport
from rotatek.page.browser_messages import message_box
from rotatek.page.results.answers import answers
from rotatek.page.results.files import (
    EVERY,
    MEASURES,
    Asked,
    Drawings,
    Files,
    categories,
    load,
)
from rotatek.page.results.measurements import efficiency_rows, measurements
from rotatek.page.results.overview_figure import AGAIN_TITLE, asked_again, opening

HEADINGS: Final = {
    "answers": ("Answers, table by table",
                "What each embedded model answers under each method, on documents of training's "
                "own renderers with other seeds. Bytes are those of live tensors: text, bases and "
                "masks included."),
    "real": ("Real Keys",
             "Pretrained text models whose context is compressed as a picture would be: the first "
             "question stands behind it at that time, a second one comes afterwards."),
    "kernels": ("Kernels", "One decode step of attention on an H200, against the best dense kernel "
                "there is, and what the saved memory is worth."),
    "models": ("Full-size models", "The paper's two architectures with random weights on an H200: "
               "their speed and bytes are real, their answers mean nothing."),
    "efficiency": ("Efficiency", "Real shapes with random weights on an H200, over the length of "
                   "the prompt and the number of questions at once."),
}  # fmt: skip
CLAIMS_TITLE: Final = "Claims, one by one"
CLAIMS_TEXT: Final = (
    "What the paper claims, and what is expected beyond it, beside what was found: the mean over "
    "all pairs of rows in points with its 95 % interval. A claim is found only if no pair "
    "contradicts it, and mixed if some do. Open is what was not measured, or what the data do not "
    "tell. Of a hundred pairs of equals two or three contradict by chance."
)
MISSING: Final = (
    "There are no measurements in this copy of the repository; python -m rotatek evaluate makes "
    "them."
)


class ResultsWidgets:
    """A sentence where nothing was measured, else frames for what was.

    Args:
        folder: of the committed files.

    Attributes:
        files: what was measured.
        measure: how answers are counted.
        category: which of them.
        drawn: the unseen box that takes the figures.
    """

    def __init__(self, folder: Path) -> None:
        self.files = files = load(folder)
        drawn = {"answers": answers(files, Asked())} | measurements(files)
        said, first = opening(files)
        said = said or ("" if any(drawn.values()) else MISSING)
        gr.HTML(markup.section("Results", said), js_on_load=None, elem_id="results-opening")
        again = asked_again(files.results)
        if again:
            gr.HTML(table(again, AGAIN_TITLE, AGAIN_TITLE, opened=True), js_on_load=None)
        if first:
            titles = {name: title for name, (title, _) in first.items()}
            rows = plot_transport.rows_of(list(first), 2)
            plot_transport.sheet(titles, rows, "opening-results")
        if not drawn["answers"]:
            self._add_counting()
        with gr.Column(elem_id="results-groups"):
            for name, found in drawn.items():
                if found:
                    self._add_group(name, found)
            if files.results.found:
                with gr.Accordion(CLAIMS_TITLE, open=False, elem_id="claims-group"):
                    gr.HTML(markup.aside(CLAIMS_TEXT), js_on_load=None)
                    for name, lines in claims(files).items():
                        gr.HTML(table(lines, name, name, opened=True), js_on_load=None)
        self.drawn = message_box("results-drawn")

    def _add_group(self, name: str, found: Drawings) -> None:
        """The figures of one kind of measurement."""
        title, text = HEADINGS[name]
        with gr.Accordion(title, open=False, elem_id=f"{name}-group"):
            gr.HTML(markup.aside(text), js_on_load=None)
            if name == "answers":
                self._add_counting()
            titles = {key: title for key, (title, _) in found.items()}
            plot_transport.sheet(titles, _pairs(found), f"{name}-results")
            if name == "efficiency":
                rows = table(efficiency_rows(self.files), "The same as a table", "Efficiency")
                gr.HTML(rows, js_on_load=None)

    def _add_counting(self) -> None:
        """How answers are counted, and which; unseen where none were."""
        kinds = categories(self.files)
        with gr.Row(visible=bool(self.files.results.main), elem_id="measures"):
            self.measure = gr.Radio(
                [(label.capitalize(), name) for name, label in MEASURES.items()],
                value="score",
                label="Counted by",
                elem_id="measure",
            )
            self.category = gr.Dropdown(
                [("all questions", EVERY), *kinds],
                value=EVERY,
                label="Questions (scores only)",
                visible=bool(kinds),
                elem_id="category",
            )


def _pairs(found: Drawings) -> list[list[str]]:
    """Two figures a row where they are about as tall; one alone where its neighbour is not."""
    rows: list[list[str]] = []
    for name, (_, drawing) in found.items():
        last = found[rows[-1][0]][1] if rows and len(rows[-1]) == 1 else None
        if last and 0.8 < last.figure.layout["height"] / drawing.figure.layout["height"] < 1.25:
            rows[-1].append(name)
        else:
            rows.append([name])
    return rows


def claims(files: Files) -> dict[str, list[dict[str, str]]]:
    """What the paper claims and what was found of it, by what a table of claims is about."""
    found = files.results.found
    return {
        "Of answers, at equal live bytes and nominal":
            claim_lines([one for one in found if one.counted != "measured"]),
        "Of latency, memory and throughput":
            claim_lines([one for one in found if one.counted == "measured"]),
    }  # fmt: skip


def table(rows: Sequence[Mapping[str, Any]], title: str, label: str, opened: bool = False) -> str:
    """Rows of named columns as an HTML table; numbers with at most four digits.

    Args:
        rows: a line each.
        title: what opens and closes it.
        label: its name for a screen reader.
        opened: whether it is open at first.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f'<th scope="col">{escape(name.replace("_", " "))}</th>' for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(row.get(name)))}</td>" for name in names) + "</tr>"
        for row in rows
    )
    return (
        f'<details class="rk-table"{" open" * opened}><summary>{escape(title)}</summary>'
        f'<div tabindex="0" role="region" aria-label="{escape(label)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
