"""The widgets of the Results tab: what is counted, frames for what was measured, a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import gradio as gr

from rotatek.evaluation import claim_rows
from rotatek.page import figures, markup
from rotatek.page.results.answers import answers
from rotatek.page.results.files import (
    EVERY,
    MEASURES,
    Asked,
    Drawings,
    Files,
    categories,
    efficiency_rows,
    evaluations,
    load,
)
from rotatek.page.results.measurements import efficiency, kernels, models
from rotatek.page.results.opening import opening

HEADINGS: Final = {
    "answers": ("Answers, table by table",
                "What each embedded model answers under each method, on questions it was not "
                "trained on. Bytes are those of live tensors: text, bases and masks included."),
    "kernels": ("Kernels", "One decode step of attention on an H200, against the best dense kernel "
                "there is, and what the saved memory is worth."),
    "models": ("Full-size models", "The paper's two architectures with random weights on an H200: "
               "their speed and bytes are real, their answers mean nothing."),
    "efficiency": ("Efficiency", "Real shapes with random weights on an H200, over the length of "
                   "the prompt and the number of questions at once."),
}  # fmt: skip
CLAIMS_TITLE: Final = "Claims, one by one"
CLAIMS_TEXT: Final = (
    "What the paper claims, and what is expected beyond it, beside what was found: differences in "
    "points with 95 % intervals. Open is what was not measured, or what the data do not tell."
)
MISSING: Final = (
    "There are no measurements in this copy of the repository; python -m rotatek evaluate makes "
    "them."
)


@dataclass(frozen=True)
class ResultsWidgets:
    """The tab's widgets.

    Args:
        files: what was measured.
        measure: how answers are counted.
        category: which of them.
        drawn: the unseen box that takes the figures.
    """

    files: Files
    measure: gr.Radio
    category: gr.Dropdown
    drawn: gr.HTML


def results_part(folder: Path) -> ResultsWidgets:
    """A sentence where nothing was measured, else frames for what was.

    Args:
        folder: of the committed files.
    """
    files = load(folder)
    drawn = {
        "answers": answers(files, Asked()),
        "kernels": kernels(files),
        "models": models(files),
        "efficiency": efficiency(files),
    }
    said, first = opening(files)
    said = said or ("" if any(drawn.values()) else MISSING)
    gr.HTML(markup.section("Results", said), js_on_load=None, elem_id="results-opening")
    if first:
        titles = {name: title for name, (title, _) in first.items()}
        figures.sheet(titles, figures.rows_of(list(first), 2), "opening-results")
    counting = None if drawn["answers"] else _counting(files)
    with gr.Column(elem_id="results-groups"):
        for name, found in drawn.items():
            if not found:
                continue
            title, text = HEADINGS[name]
            with gr.Accordion(title, open=False, elem_id=f"{name}-group"):
                gr.HTML(markup.aside(text), js_on_load=None)
                if name == "answers":
                    counting = _counting(files)
                titles = {key: title for key, (title, _) in found.items()}
                figures.sheet(titles, _pairs(found), f"{name}-results")
                if name == "efficiency":
                    rows = table(efficiency_rows(files), "The same as a table", "Efficiency")
                    gr.HTML(rows, js_on_load=None)
        if files:
            with gr.Accordion(CLAIMS_TITLE, open=False, elem_id="claims-group"):
                gr.HTML(markup.aside(CLAIMS_TEXT), js_on_load=None)
                for name, lines in claims(files).items():
                    gr.HTML(table(lines, name, name, opened=True), js_on_load=None)
    assert counting is not None
    return ResultsWidgets(files, *counting, figures.box("results-drawn"))


def _counting(files: Files) -> tuple[gr.Radio, gr.Dropdown]:
    """How answers are counted, and which; unseen where none were."""
    with gr.Row(visible=bool(evaluations(files)), elem_id="measures"):
        measure = gr.Radio(
            [(label.capitalize(), name) for name, label in MEASURES.items()],
            value="score",
            label="Counted by",
            elem_id="measure",
        )
        category = gr.Dropdown(
            [("all questions", EVERY), *categories(files)],
            value=EVERY,
            label="Questions (scores only)",
            visible=bool(categories(files)),
            elem_id="category",
        )
    return measure, category


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


def claims(files: Files) -> dict[str, list[Mapping[str, Any]]]:
    """What the paper claims and what was found of it, by what a table of claims is about."""
    models = list(evaluations(files).values())
    made = {
        "Of answers, at equal live bytes and nominal": claim_rows.of_answers(models),
        "Of latency, memory and throughput": claim_rows.of_speed(files),
    }
    return {name: [_line(lines.heads, row) for row in lines.rows]
            for name, lines in made.items()}  # fmt: skip


def _line(heads: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    """A line by its columns; of columns with one heading each belongs to the model before it."""
    named: dict[str, str] = {}
    last = ""
    for head, cell in zip(heads, row, strict=True):
        last = head.partition(",")[0] if "," in head else last
        named[f"{last}, {head}" if head in named or head == "nominal" else head] = cell
    return named


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
