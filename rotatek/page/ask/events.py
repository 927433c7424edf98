"""What the buttons of the first tab do: ask, ask a follow-up, stop.

Handlers take values of widgets by name and return what they change by name (`page.binding`).
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import gradio as gr
from PIL.Image import Image as Picture

from rotatek.errors import ConversationGone, PdfDamaged, Stopped
from rotatek.inputs.pdf import PdfFile
from rotatek.inputs.token_grid import Grid
from rotatek.inspect.answer_attention import AnswerAttention
from rotatek.page import markup
from rotatek.page.ask import answers
from rotatek.page.ask.widgets import UNSEEN
from rotatek.page.binding import AT_ONCE, MODEL_WORK, QUIET, Shown, Widgets, refusal
from rotatek.page.page_context import PageContext
from rotatek.page.settings import columns_of, sampling_of, settings_of
from rotatek.service.service import Run

IN_TALK: Final = "Ask answers the first question again under these settings."
CARDS: Final = "card_0 card_1 card_2 further status run"


class AskEvents:
    """Questions and their answers, for one page."""

    def __init__(self, context: PageContext) -> None:
        self.context = context

    def ask(self, session: str = "", **asked: Any) -> Iterator[Shown]:
        """Stream every column; `asked` has the widgets' values, the settings among them."""
        several = (asked.get(name, ()) for name in ("others", "what_if"))
        columns = columns_of(settings_of(asked), asked["times"], *several)
        service, model = self.context.service, asked["model"]
        asking = partial(
            service.ask, model, asked["image"], asked["question"], columns,
            asked["max_new_tokens"], session, talk=True,
            sampling=sampling_of(asked.get("temperature"), asked.get("seed")),
        )  # fmt: skip
        return self._stream(asking, "Looking at the image…", service.loading(model, session))

    def halt(self, run: Run | None, session: str = "") -> None:
        """End what runs, because the same visitor is about to ask again; a conversation goes on."""
        if run is not None and run.previous is None:
            self.context.service.replace_run(session)

    def again(self, run: Run | None, session: str = "", **asked: Any) -> Iterator[Shown]:
        """`ask` under moved sliders, where there is an answer to renew; a conversation stays as it
        is, because its caches would be lost."""
        if run is None or asked["image"] is None or not asked["question"].strip():
            return
        if run.previous is not None:
            yield {"status": markup.line(IN_TALK)}
            return
        for shown in self.ask(session, **asked):
            if (new := shown.get("run")) is not None:
                new.recall(run)  # what was measured of the same uncompressed answer
            yield shown

    def follow(
        self,
        run: Run | None,
        follow_text: str,
        max_new_tokens: int,
        session: str = "",
        temperature: float = 0.0,
        seed: float | None = None,
    ) -> Iterator[Shown]:
        """A further question about the same image."""
        if run is None:
            raise ConversationGone
        asking = partial(
            self.context.service.follow, run, follow_text, max_new_tokens, session,
            sampling_of(temperature, seed),
        )  # fmt: skip
        return self._stream(asking, "Going on from the kept caches…")

    def _stream(
        self, asking: Callable[[], Iterator[Run]], first_words: str, loading: Iterable[str] = ()
    ) -> Iterator[Shown]:
        """A run as it grows; `asking` begins it, once its model is there."""
        busy = {"ask": gr.update(interactive=False), "stop": gr.update(interactive=True)}
        run = None
        try:
            for words in loading:
                yield busy | {"status": markup.line(words)}
            yield busy | {"status": markup.line(first_words)}
            with closing(asking()) as runs:  # type: ignore[type-var]
                for run in runs:
                    if not run.superseded:
                        yield busy | self._shown(run)
        except Stopped as stopped:
            yield _idle(None) | {"status": markup.line(stopped.message)}
        except Exception as error:
            said = str(refusal(error).message)
            gr.Warning(said, title="Not possible", duration=8)
            gone = isinstance(error, ConversationGone)
            yield _idle(False if gone else None) | {"status": markup.line(said, whole=True)}
        else:
            if run is not None and run.superseded:
                yield _idle(None)
            else:
                shown = _idle(run is not None and run.goes_on) | {"run": run}
                if run is not None and run.previous is not None:  # what was typed has been asked
                    shown["follow_text"] = gr.update(value="")
                yield shown

    def _shown(self, run: Run) -> Shown:
        """Cards and status of a run so far."""
        on_cpu = self.context.service.engine(run.model).vlm.device.type == "cpu"
        return answers.cards(run, on_cpu=on_cpu) | {"status": answers.status(run)}

    def greet(self, session: str = "") -> Iterator[Shown]:
        """The first example's answers, unless the visitor has asked before the model was loaded."""
        service = self.context.service
        if not self.context.examples:
            return
        try:
            for words in service.loading(service.models[0].name):
                if not service.is_asking(session):
                    yield {"status": markup.line(words)}
        except Exception as error:
            yield {"status": markup.line(str(refusal(error).message), whole=True)}
            return
        run = None if service.is_asking(session) else self.context.greeting()
        if run is None:
            return
        filled = run.chosen.prefilled
        count = None if filled is None else filled.visual_tokens
        yield self._shown(run) | {"run": run, "count": count}

    def forget(self, session: str = "") -> Shown:
        """Another image: free the caches of the last answer."""
        self.context.service.conversations.drop(session)
        return {"follow": gr.update(visible=False)}

    def stop(self, session: str = "") -> None:
        """End the visitor's run within one token."""
        self.context.service.stop(session)

    def count(self, image: Picture | None, model: str) -> Shown:
        """Visual tokens of an image to the chosen model, or None."""
        service = self.context.service
        return {"count": None if image is None else service.visual_tokens(model, image)}

    def upload(self, image: Picture | None) -> Shown:
        """A picture of a format that browsers cannot show, as one that they can; no questions are
        suggested about it."""
        shown: Shown = {"suggestions": gr.update(visible=False)}
        return shown | ({"image": image} if image is not None and image.info.get(UNSEEN) else {})

    def first_page(self, pdf: str | None) -> Shown:
        """A PDF's first page as the picture."""
        if pdf is None:
            return {}
        with PdfFile(Path(pdf)) as document:
            page = next(iter(document))
            if page.image is None:
                raise page.error or PdfDamaged()
            said = f"Page 1 of {document.pages} is ready to ask about."
            if self.context.collects and document.pages > 1:
                said += " The Collection tab asks all of them."
        return {"image": page.image, "status": markup.line(said)}

    def choose(self, number: int) -> Shown:
        """A picture of the gallery."""
        example = self.context.examples[number]
        first = example.questions[0]
        suggestions = gr.update(choices=list(example.questions), value=first, visible=True)
        return {"image": str(example.image), "question": first, "suggestions": suggestions}


def _idle(goes_on: bool | None) -> Shown:
    """Buttons after an answer, and whether a follow-up may be asked (None: as it was)."""
    shown: Shown = {"ask": gr.update(interactive=True), "stop": gr.update(interactive=False)}
    if goes_on is not None:
        shown["follow"] = gr.update(visible=goes_on)
    return shown


def highlights(run: Run | None) -> Shown:
    """A message to the script of the attention of every finished column: rows, columns, steps, and
    cells [steps, rows * columns] in base64; they are those of the first image."""
    if run is None:
        return {}
    found = {
        title: look_of(column.prefilled.grids[0], column.finished.attention)
        for title, column in run.columns.items()
        if column.prefilled and column.finished
        if column.finished.attention is not None and column.prefilled.grids
    }
    sent = {"run": run.key, "columns": found}
    return {"highlights": json.dumps(sent, separators=(",", ":"))}


def look_of(grid: Grid, attention: AnswerAttention) -> dict[str, Any]:
    """The attention of one answer on the picture of a grid, as `assets/page.js` reads it."""
    return {
        "rows": grid.rows, "columns": grid.columns, "steps": list(attention.steps),
        "cells": base64.b64encode(grid.to_cells(attention.cells).tobytes()).decode(),
    }  # fmt: skip


def wire_asking(
    page: gr.Blocks, events: AskEvents, widgets: Widgets, changed: Iterable[Any] = ()
) -> list[Any]:
    """Sliders that have come to rest ask again, and so do listeners to what has `changed` the
    columns. Returns the events after which a run is complete, the greeting first."""
    w, shown, long = widgets, f"{CARDS} ask stop follow follow_text", QUIET | MODEL_WORK
    greeted = w.listen(page.load, events.greet, f"{CARDS} count", **QUIET)
    asking = [w["ask"].click, w["question"].submit]
    asked = w.listen(asking, events.ask, shown, **long)
    following = [w["follow_ask"].click, w["follow_text"].submit]
    followed = w.listen(following, events.follow, shown, **long)
    w.listen(w["image"].change, events.forget, "follow", **AT_ONCE)
    w.listen(w["stop"].click, events.stop, **AT_ONCE)
    again = [w["again"].click, *(changed if events.context.renews else ())]
    halted = [w.listen(trigger, events.halt, **AT_ONCE) for trigger in again]
    renewed = [w.listen(event.then, events.again, shown, **long) for event in halted]
    w.listen([w["image"].change, w["model"].change], events.count, "count", **QUIET)
    finished = [greeted, asked, followed, *renewed]
    for event in finished:
        w.listen(event.then, highlights, "highlights", **QUIET)
    for event in finished[1:]:  # a model that was chosen is not loaded before an answer
        w.listen(event.then, events.count, "count", **QUIET)
    return finished


def wire_question(events: AskEvents, widgets: Widgets) -> None:
    """Examples fill in image and question; suggestions belong to an example alone."""
    image, question, suggestions = (widgets[name] for name in ("image", "question", "suggestions"))

    def choose(event: gr.SelectData) -> Any:
        return tuple(events.choose(event.index).values())

    widgets["gallery"].select(choose, None, [image, question, suggestions], **AT_ONCE)
    question.input(None, None, suggestions, js="() => null", **QUIET)
    suggestions.input(lambda text: text, suggestions, question, **AT_ONCE)
    widgets.listen(widgets["image"].upload, events.upload, "suggestions image", **QUIET)
    widgets.listen(widgets["pdf"].upload, events.first_page, "image status", **QUIET)
