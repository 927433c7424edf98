"""Taking answers away: files, code, and a link that brings the page back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import gradio as gr
import numpy as np
from PIL.Image import Image as Picture

from rotatek.page import export, markup
from rotatek.page.ask.settings import Shown, columns_shown
from rotatek.page.ask.widgets import NOTHING, AskWidgets, code_of
from rotatek.page.binding import QUIET, listen
from rotatek.page.browser_messages import message
from rotatek.page.form import sampling_of, settings_of, values_of
from rotatek.page.links import Link, decode, read_query
from rotatek.page.page_context import PageContext
from rotatek.page.user_errors import refusing
from rotatek.service.run import Run

FROM_LINK: Final = "These settings come from the link. Press Ask for their answers."


@refusing
def save_json(run: Run | None) -> Shown:
    """Answers and figures as a file. Changes: sent."""
    if run is None:
        return {"sent": message(said=NOTHING)}
    return {"sent": message(file="rotatek.json", type="application/json", text=export.as_json(run))}


class ExportEvents:
    """Code and links, for one page's examples and models."""

    def __init__(self, context: PageContext) -> None:
        self.context = context

    @refusing
    def code(self, run: Run | None) -> Shown:
        """Code for a finished run. Changes: code."""
        return {"code": code_of(run, self.picture_of(run))}

    def picture_of(self, run: Run | None) -> str:
        """What code calls the run's image: an example's path, or a stand-in."""
        name = None if run is None else self.context.picture_name(run.pixels)
        return export.PICTURE if name is None else f"assets/examples/{name}"

    @refusing
    def share(
        self,
        image: Picture | None,
        question: str,
        model: str,
        max_new_tokens: int,
        others: Sequence[str],
        temperature: float = 0.0,
        seed: float | None = None,
        **form: Any,
    ) -> Shown:
        """A link to what the page is set to. Changes: sent."""
        name = None if image is None else self.context.picture_name(np.asarray(image))
        link = Link(
            settings=settings_of(form),
            others=[decode(code) for code in others],
            question=question,
            example=None if name is None else Path(name).stem,
            model=model,
            max_new_tokens=int(max_new_tokens),
            sampling=sampling_of(temperature, seed),
        )
        own = image is not None and name is None
        said = "Link copied. Your own image is not part of it." if own else "Link copied."
        return {"sent": message(query=link.query(), said=said)}

    @refusing
    def restore(self, text: str) -> Shown:
        """What the page's address says. Changes: image, question, suggestions, model,
        max_new_tokens, temperature, seed, others, presets, status, and `Controls.inputs`."""
        models = [model.name for model in self.context.service.models]
        link = read_query(text or "", self.context.examples, models)
        named = {
            "question": link.question, "model": link.model, "max_new_tokens": link.max_new_tokens,
        }  # fmt: skip
        shown: Shown = {name: value for name, value in named.items() if value}
        if link.sampling.draws:
            shown |= {"temperature": link.sampling.temperature, "seed": link.sampling.seed}
        for example in self.context.examples:
            if example.image.stem == link.example:
                choices = list(example.questions)
                shown["image"] = str(example.image)
                shown["suggestions"] = gr.update(choices=choices, value=None, visible=True)
        if link.settings is not None:
            shown |= {"others": columns_shown(link.others), "presets": None}
            shown |= values_of(link.settings) | {"status": markup.line(FROM_LINK)}
        return shown


def wire_export(events: ExportEvents, widgets: AskWidgets) -> None:
    """Buttons send files and links to the browser; code follows the run."""
    part, question, controls = widgets.export, widgets.question, widgets.controls
    run, sent = {"run": widgets.answers.run}, {"sent": part.sent}
    listen(part.json.click, save_json, run, sent, **QUIET)
    request = {
        "image": question.image, "question": question.text, "model": controls.model,
        "others": controls.others, **controls.length_and_chance,
    }  # fmt: skip
    listen(part.link.click, events.share, request | controls.inputs, sent, **QUIET)
    listen(widgets.answers.run.change, events.code, run, {"code": part.code}, **QUIET)


def wire_link(events: ExportEvents, widgets: AskWidgets, greeted: Any) -> None:
    """Once the page has greeted, what its address says is set."""
    part, question, controls = widgets.export, widgets.question, widgets.controls
    asked = greeted.then(None, None, part.address, js="() => location.search", **QUIET)
    shown = {
        "image": question.image, "question": question.text, "suggestions": question.suggestions,
        "model": controls.model, "others": controls.others, "presets": controls.presets,
        "status": widgets.answers.status, **controls.length_and_chance,
    }  # fmt: skip
    listen(asked.then, events.restore, {"text": part.address}, shown | controls.inputs, **QUIET)
