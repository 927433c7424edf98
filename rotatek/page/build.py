"""Builds the whole page: one call for each part."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import gradio as gr

from rotatek.evaluation.answers import ANSWERS
from rotatek.page import markup
from rotatek.page.ask.events import AskEvents, wire_asking, wire_question
from rotatek.page.ask.widgets import add_ask, add_export
from rotatek.page.binding import AT_ONCE, Widgets
from rotatek.page.collection.events import CollectionEvents, wire_collection
from rotatek.page.collection.widgets import add_collection
from rotatek.page.export import ExportEvents, wire_export
from rotatek.page.inspect.events import wire_inspect
from rotatek.page.inspect.heads import HeadEvents, wire_heads
from rotatek.page.inspect.widgets import add_inspection, budget_part
from rotatek.page.page_context import PageContext
from rotatek.page.results import results_part
from rotatek.page.settings import wire_settings

INSIDE: Final = (
    "Look inside",
    "A vision-language model remembers an image as thousands of Keys and Values. RotateK turns "
    "each head's Keys until a few channels carry everything, and stores only those. Here is one "
    "head at a time: move the layer and the head, or choose a cell of the map, and move channel "
    "sparsity above. Everything is drawn from this image and question.",
)


def build(context: PageContext, assets: Path) -> gr.Blocks:
    """The whole page.

    Args:
        context: who answers, and the gallery.
        assets: the folder of what the Results tab shows.
    """
    service, widgets, collected = context.service, Widgets(), CollectionEvents(context)

    def leave(session: str) -> None:
        service.stop(session)
        collected.leave(session)

    presence = Presence(leave, context.grace_s)

    def lost(request: gr.Request) -> None:
        presence.lost(request.session_hash or "")

    with gr.Blocks(title="RotateK", analytics_enabled=False, delete_cache=(600, 3600)) as page:
        gr.HTML(markup.masthead(), elem_id="masthead")
        with gr.Tabs(selected="ask", elem_id="parts"):
            with gr.Tab("Ask a picture", id="ask"):
                add_ask(widgets, context)
                budget_part()
                add_export(widgets)
                gr.HTML(markup.section(*INSIDE), elem_id="inside")
                add_inspection(widgets)
            if context.collects:
                with gr.Tab("Collection", id="collection"):
                    wire_collection(collected, add_collection(widgets, collected.bounds))
            with gr.Tab("Results", id="results") as tab:
                results_part(assets / "results" / ANSWERS, tab)
        gr.HTML(markup.footer([model.label for model in service.models]), elem_id="footer")
        events = AskEvents(context)
        wire_question(events, widgets)
        wire_settings(widgets)
        changed = wire_heads(HeadEvents(context), widgets)
        finished = wire_asking(page, events, widgets, changed)
        wire_inspect(widgets, finished)
        wire_export(ExportEvents(context), widgets, finished[0])
        # an open page presses this every half minute (`assets/page.js`)
        widgets["here"] = gr.Button("Here", elem_id="here", elem_classes="rk-unseen")
        widgets.listen(widgets["here"].click, presence.here, **AT_ONCE)
        page.unload(lost)
    return page


class Presence:
    """Frees what a visitor has once the page has been silent for a while. A browser's connection
    may be lost while its page stays open, on a telephone asleep or behind a platform that bounds
    every request: nothing is freed for that alone.

    Args:
        free: called with the session of a visitor who has gone.
        grace_s: seconds of silence; an open page is heard of every half minute.
    """

    def __init__(self, free: Callable[[str], None], grace_s: float) -> None:
        self._free, self.grace_s = free, grace_s
        self._heard: dict[str, float] = {}

    def here(self, session: str) -> None:
        """The page is open."""
        self._heard[session] = time.monotonic()

    def lost(self, session: str) -> None:
        """The page's own connection has ended: whether it was closed is seen later."""
        self._heard.setdefault(session, time.monotonic())
        self._look_later(session, self.grace_s)

    def _look_later(self, session: str, after_s: float) -> None:
        timer = threading.Timer(after_s, self._look, (session,))
        timer.daemon = True
        timer.start()

    def _look(self, session: str) -> None:
        silent = time.monotonic() - self._heard.get(session, 0.0)
        if silent < self.grace_s:
            self._look_later(session, self.grace_s - silent)
        elif self._heard.pop(session, None) is not None:
            self._free(session)
