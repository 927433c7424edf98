"""The widgets of the Collection tab."""

from typing import Final

import gradio as gr

from rotatek.methods.channels.bits import DEFAULT_TIMES
from rotatek.methods.settings import STORED, Settings
from rotatek.page import markup
from rotatek.page.ask.widgets import ask_and_stop, question_box
from rotatek.page.binding import Widgets
from rotatek.page.collection import drawing
from rotatek.page.collection.pages import Bounds, Collection
from rotatek.page.markup import message_box

SAID: Final = (
    "Drop receipts, slides or a PDF. Each page is read once, without a question, and kept "
    "compressed. A question then reads its own words alone."
)
AS_ASKED: Final = "page"
KEEPS: Final = {f"{times}": f"{times} times smaller" for times in (DEFAULT_TIMES, 8, 16)}
QUESTION: Final = "What is the title?"


def add_collection(page: Widgets, bounds: Bounds) -> Widgets:
    """The tab, empty: its own widgets, with the model, length and settings of the first tab.

    keep is how pages are stored, twice what asking took beside reading again, chosen the number of
    the page that was clicked; sent and opened are messages to `assets/page.js`: a file to save, and
    the page to show large.
    """
    form = page.groups["form"]
    widgets = Widgets({name: page[name] for name in ("model", "max_new_tokens", *form)})
    widgets.groups["form"] = form
    gr.HTML(markup.section("Collection", SAID), js_on_load=None, elem_id="collection-opening")
    with gr.Row(elem_id="collection"):
        with gr.Column(scale=5, min_width=300, elem_id="collection-pages"):
            _add_pages(widgets, bounds)
        with gr.Column(scale=8, min_width=300, elem_id="collection-work"):
            _add_question(widgets)
    widgets["sent"] = message_box("collection-sent", "rotatekExport")
    widgets["opened"] = message_box("collection-opened", "rotatekOpened")
    widgets["chosen"] = gr.Textbox(
        label="Page", elem_id="collection-chosen", elem_classes="rk-unseen"
    )
    return widgets


def _add_pages(widgets: Widgets, bounds: Bounds) -> None:
    """Where files are dropped, and what became of them; the box is empty once they are read."""
    widgets["files"] = gr.File(
        file_count="multiple",
        label=f"Pictures and PDF files, up to {bounds.pages} pages",
        height=160,
        elem_id="collection-files",
    )
    with gr.Row(elem_id="collection-settings", equal_height=True):
        widgets["keep"] = gr.Dropdown(
            [*((label, times) for times, label in KEEPS.items()),
             ("as set under Ask a picture", AS_ASKED)],
            value=f"{STORED.channels.times_smaller:g}",
            label="Pages are kept at",
            scale=3,
            min_width=160,
            elem_id="collection-keep",
        )  # fmt: skip
        widgets["clear"] = gr.Button(
            "Empty it", scale=1, min_width=90, size="sm", elem_id="collection-clear"
        )
    tiles = drawing.tiles(Collection())
    widgets["tiles"] = gr.HTML(tiles, js_on_load=None, elem_id="collection-tiles")


def _add_question(widgets: Widgets) -> None:
    """The question to every page, and the answers."""
    with gr.Row(elem_id="collection-buttons", equal_height=True):
        widgets["question"] = question_box(
            "collection-question", "Question to every page", value=QUESTION, scale=8,
            min_width=180, placeholder="What would you like to know about every page?",
        )  # fmt: skip
        widgets |= ask_and_stop("Ask all", "collection-")
    widgets["status"] = gr.HTML(markup.line(""), elem_id="collection-status")
    widgets["twice"] = gr.HTML("", js_on_load=None, elem_id="collection-twice")
    table = drawing.table(Collection())
    widgets["table"] = gr.HTML(table, js_on_load=None, elem_id="collection-table")
    widgets["csv"] = gr.Button(
        "Answers as CSV", size="sm", interactive=False, elem_id="collection-csv"
    )


def settings_kept(keep: str, given: Settings) -> Settings:
    """What pages are stored under: the tab's own choice, or the settings of the first tab."""
    return given if keep not in KEEPS else Settings.of(smaller=float(keep))
