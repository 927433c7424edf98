"""What the buttons of the first tab do: ask, ask a follow-up, stop.

Handlers take their inputs by name and return what they change by name (`page.binding`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import gradio as gr
from PIL.Image import Image as Picture

from rotatek.compare.columns import titled
from rotatek.errors import ConversationGone, PdfDamaged, Stopped
from rotatek.inputs.pdf import PdfFile
from rotatek.page import confidence, markup
from rotatek.page.ask import answers
from rotatek.page.ask.settings import MOST_OTHERS, Shown
from rotatek.page.ask.widgets import AskWidgets
from rotatek.page.binding import (
    AT_ONCE,
    MODEL_WORK,
    QUIET,
    called_by_name,
    listen,
    listen_to_selection,
)
from rotatek.page.form import sampling_of, settings_of
from rotatek.page.links import decode
from rotatek.page.page_context import PageContext
from rotatek.page.user_errors import refusal, refusing, refusing_stream
from rotatek.service.run import Run

IN_TALK: Final = "Ask answers the first question again under these settings."


class AskEvents:
    """Questions and their answers, for one page.

    Streams change: cards, status, run, ask, stop, follow (whether it is shown), follow_text.
    """

    def __init__(self, context: PageContext) -> None:
        self.context = context

    @refusing
    def ask(
        self,
        image: Picture | None,
        question: str,
        model: str,
        max_new_tokens: int,
        others: Sequence[str],
        session: str | None = None,
        temperature: float = 0.0,
        seed: float | None = None,
        **form: Any,
    ) -> Iterator[Shown]:
        """Stream every column; `form` holds the settings as `settings_of` takes them."""
        further = [decode(code) for code in others[:MOST_OTHERS]]
        columns = titled(settings_of(form), further)
        service = self.context.service
        asking = partial(
            service.ask, model, image, question, columns, max_new_tokens, session,
            talk=True, sampling=sampling_of(temperature, seed),
        )  # fmt: skip
        loading = service.loading(model, session)
        return self._stream(asking, "Looking at the image…", loading)

    @refusing
    def halt(self, run: Run | None, session: str | None = None) -> None:
        """End what runs, because the same visitor is about to ask again; a conversation goes on."""
        if run is not None and run.previous is None:
            self.context.service.replace_run(session)

    @refusing
    def again(
        self, run: Run | None, image: Picture | None, question: str, session: str | None = None,
        **given: Any,
    ) -> Iterator[Shown]:  # fmt: skip
        """`ask` under moved sliders, where there is an answer to renew; a conversation stays as it
        is, because its caches would be lost."""
        if run is None or image is None or not question.strip():
            return iter(())
        if run.previous is not None:
            return iter([{"status": markup.line(IN_TALK)}])
        return self.ask(image=image, question=question, session=session, **given)

    @refusing
    def follow(
        self,
        run: Run | None,
        question: str,
        max_new_tokens: int,
        session: str | None = None,
        temperature: float = 0.0,
        seed: float | None = None,
    ) -> Iterator[Shown]:
        """A further question about the same image."""
        if run is None:
            raise ConversationGone
        asking = partial(
            self.context.service.follow, run, question, max_new_tokens, session,
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
        caution = confidence.note(run)
        cards = answers.cards(run, on_cpu=on_cpu, caution=caution)
        return {"cards": cards, "status": answers.status(run)}

    @refusing_stream
    def greet(self, session: str | None = None) -> Iterator[Shown]:
        """The first example's answers, unless the visitor has asked before the model was loaded.
        Changes: cards, status, run, count."""
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

    @refusing
    def forget(self, session: str | None = None) -> Shown:
        """Another image: free the caches of the last answer. Changes: follow."""
        self.context.service.conversations.drop(session or "")
        return {"follow": gr.update(visible=False)}

    @refusing
    def stop(self, session: str | None = None) -> None:
        """End the visitor's run within one token."""
        self.context.service.stop(session)

    @refusing
    def count(self, image: Picture | None, model: str) -> Shown:
        """Visual tokens of an image to the chosen model, or None. Changes: count."""
        service = self.context.service
        return {"count": None if image is None else service.visual_tokens(model, image)}

    @refusing
    def first_page(self, file: str | None) -> Shown:
        """A PDF's first page as the picture. Changes: image, status."""
        if file is None:
            return {}
        with PdfFile(Path(file)) as document:
            page = next(iter(document))
            if page.image is None:
                raise page.error or PdfDamaged()
            said = f"Page 1 of {document.pages} is ready to ask about."
            if self.context.collects and document.pages > 1:
                said += " The Collection tab asks all of them."
        return {"image": page.image, "status": markup.line(said)}

    @refusing
    def choose(self, number: int) -> Shown:
        """A picture of the gallery. Changes: image, question, suggestions."""
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


def wire_asking(page: gr.Blocks, events: AskEvents, widgets: AskWidgets) -> tuple[Any, ...]:
    """Ask streams, a follow-up goes on from its caches, Stop ends either at once; sliders that have
    come to rest ask again.

    Returns:
        the events after which a run is complete.
    """
    question, controls, follow = widgets.question, widgets.controls, widgets.follow
    shown = {
        "cards": widgets.answers.cards, "status": widgets.answers.status,
        "run": widgets.answers.run, "ask": question.ask, "stop": question.stop,
        "follow": follow.row, "follow_text": follow.text,
    }  # fmt: skip
    request = {
        "image": question.image, "question": question.text, "model": controls.model,
        "others": controls.others, **controls.length_and_chance,
    }  # fmt: skip
    asking = [question.ask.click, question.text.submit]
    asked = listen(asking, events.ask, request | controls.inputs, shown, **QUIET, **MODEL_WORK)
    further = {
        "run": widgets.answers.run, "question": follow.text, **controls.length_and_chance
    }  # fmt: skip
    following = [follow.button.click, follow.text.submit]
    followed = listen(following, events.follow, further, shown, **QUIET, **MODEL_WORK)
    listen(question.image.change, events.forget, {}, {"follow": follow.row}, **AT_ONCE)
    listen(question.stop.click, events.stop, {}, {}, **AT_ONCE)
    page.unload(called_by_name(events.stop, []))
    state = {"run": widgets.answers.run}
    halted = listen(widgets.answers.again.click, events.halt, state, {}, **AT_ONCE)
    renewing = state | request | controls.inputs
    renewed = listen(halted.then, events.again, renewing, shown, **QUIET, **MODEL_WORK)
    return asked, followed, renewed


def wire_count(events: AskEvents, widgets: AskWidgets, answered: Iterable[Any]) -> None:
    """What an image comes to is counted anew for another image and another model; after an answer,
    too, because a model that was chosen is not loaded before it."""
    question, model = widgets.question, widgets.controls.model
    pictured = {"image": question.image, "model": model}
    count = {"count": widgets.answers.count}
    listen([question.image.change, model.change], events.count, pictured, count, **QUIET)
    for event in answered:
        listen(event.then, events.count, pictured, count, **QUIET)


def wire_question(events: AskEvents, widgets: AskWidgets) -> None:
    """Examples fill in image and question; suggestions belong to an example alone."""
    question = widgets.question
    if question.gallery is not None:
        filled = {
            "image": question.image, "question": question.text,
            "suggestions": question.suggestions,
        }  # fmt: skip
        listen_to_selection(question.gallery.select, events.choose, filled, **AT_ONCE)
    question.text.input(None, None, question.suggestions, js="() => null", **QUIET)
    question.suggestions.input(lambda text: text, question.suggestions, question.text, **AT_ONCE)
    question.image.upload(lambda: gr.update(visible=False), None, question.suggestions, **AT_ONCE)
    read = {"image": question.image, "status": widgets.answers.status}
    listen(question.pdf.upload, events.first_page, {"file": question.pdf}, read, **QUIET)


def wire_greeting(page: gr.Blocks, events: AskEvents, widgets: AskWidgets) -> Any:
    """Every visitor finds the first example answered. Returns the event after which it is."""
    place = widgets.answers
    shown = {
        "cards": place.cards, "status": place.status, "run": place.run, "count": place.count,
    }  # fmt: skip
    return listen(page.load, events.greet, {}, shown, **QUIET)
