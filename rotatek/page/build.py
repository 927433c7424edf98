"""Builds the whole page: one call for each part."""

from pathlib import Path
from typing import Final

import gradio as gr

from rotatek.evaluation.answers import ANSWERS
from rotatek.page import api, markup
from rotatek.page.ask.controls import Controls
from rotatek.page.ask.events import (
    AskEvents,
    wire_asking,
    wire_count,
    wire_greeting,
    wire_question,
)
from rotatek.page.ask.export_events import ExportEvents, wire_export, wire_link
from rotatek.page.ask.highlights import wire_highlights
from rotatek.page.ask.settings import wire_settings
from rotatek.page.ask.widgets import (
    Answers,
    AskWidgets,
    Export,
    FollowUp,
    Question,
    picture_part,
)
from rotatek.page.binding import MODEL_WORK
from rotatek.page.collection.events import CollectionEvents, wire_collection
from rotatek.page.collection.widgets import CollectionWidgets
from rotatek.page.input_checks import CheckedBlocks
from rotatek.page.inspect.events import wire_inspect
from rotatek.page.inspect.widgets import InspectWidgets, budget_part
from rotatek.page.page_context import PageContext
from rotatek.page.results import results_part
from rotatek.service.model_list import presets

INSIDE: Final = (
    "Look inside",
    "A vision-language model remembers an image as thousands of Keys and Values. RotateK turns "
    "each head's Keys until a few channels carry everything, and stores only those. Here is one "
    "head at a time: move the layer and the head, or choose a cell of the map, and move channel "
    "sparsity above. Everything is drawn from this image and question.",
)
STATE_S: Final = 3600  # for which what a visitor was shown is kept


def build(context: PageContext, assets: Path) -> gr.Blocks:
    """The whole page.

    Args:
        context: who answers, and the gallery.
        assets: the folder of what the Results tab shows.
    """
    service = context.service
    with CheckedBlocks(title="RotateK", analytics_enabled=False, delete_cache=(600, 3600)) as page:
        run, count = gr.State(time_to_live=STATE_S), gr.State(time_to_live=STATE_S)
        gr.HTML(markup.masthead(), elem_id="masthead")
        with gr.Tabs(selected="ask", elem_id="parts"):
            with gr.Tab("Ask a picture", id="ask"):
                widgets = ask_part(context, run, count)
                inspection = InspectWidgets()
            if context.collects:
                with gr.Tab("Collection", id="collection"):
                    collected = CollectionEvents(context)
                    pages = CollectionWidgets(collected.bounds)
                    wire_collection(page, collected, pages, widgets.controls)
            with gr.Tab("Results", id="results") as tab:
                results_part(assets / "results" / ANSWERS, tab)
        gr.HTML(markup.footer([model.label for model in service.models]), elem_id="footer")
        api.publish(service, **MODEL_WORK)
        events, export = AskEvents(context), ExportEvents(context)
        wire_question(events, widgets)
        wire_settings(widgets.controls, count, run)
        wire_export(export, widgets)
        greeted = wire_greeting(page, events, widgets)
        answered = wire_asking(page, events, widgets)
        finished = [greeted, *answered]
        wire_count(events, widgets, answered)
        wire_highlights(widgets, finished)
        wire_inspect(inspection, widgets.controls.inputs, run, finished)
        wire_link(export, widgets, greeted)
    return page


def ask_part(context: PageContext, run: gr.State, count: gr.State) -> AskWidgets:
    """The first tab down to where its figures begin."""
    service = context.service
    with gr.Row(elem_id="desk"):
        with gr.Column(scale=5, min_width=300, elem_id="picture-part"):
            image, gallery, pdf = picture_part(context.examples)
        with gr.Column(scale=8, min_width=300, elem_id="work"):
            question = Question(image, gallery, pdf, context.examples)
            answers = Answers(run, count, renews=context.renews)
            controls = Controls(next(iter(presets().values())))
            follow = FollowUp()
            controls.add_drawers([(model.label, model.name) for model in service.models])
    budget_part()
    export = Export()
    gr.HTML(markup.section(*INSIDE), elem_id="inside")
    return AskWidgets(question, controls, answers, follow, export)
