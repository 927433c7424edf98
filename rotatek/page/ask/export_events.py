"""Taking answers away: files, code, and a link that brings the page back."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import gradio as gr
import numpy as np
from PIL.Image import Image as Picture

from rotatek.page import export, markup
from rotatek.page.ask.settings import boxes
from rotatek.page.binding import QUIET, Shown, Widgets
from rotatek.page.browser_messages import message
from rotatek.page.form import sampling_of, settings_of, values_of
from rotatek.page.links import Link, read_query
from rotatek.page.page_context import PageContext
from rotatek.page.user_errors import refusing
from rotatek.service.run import Run

FROM_LINK: Final = "These settings come from the link. Press Ask for their answers."
NOTHING: Final = "There is no answer to take away yet. Ask first."


@refusing
def save_json(run: Run | None) -> Shown:
    """Answers and figures as a file."""
    if run is None:
        return {"sent": message(said=NOTHING)}
    return {"sent": message(file="rotatek.json", type="application/json", text=export.as_json(run))}


def code_of(run: Run | None, image: str = export.PICTURE) -> str:
    """The program that gives the present answers again, and the button that copies it."""
    if run is None:
        return markup.aside(NOTHING)
    return (
        '<figure class="rk-code"><figcaption>In Python<button type="button" data-copy '
        'aria-label="Copy the program">Copy</button></figcaption><pre tabindex="0">'
        f"<code>{escape(export.python(run, image))}</code></pre></figure>"
    )


class ExportEvents:
    """Code and links, for one page's examples and models."""

    def __init__(self, context: PageContext) -> None:
        self.context = context

    @refusing
    def code(self, run: Run | None) -> Shown:
        """Code for a finished run, which calls an example by its path."""
        name = None if run is None else self.context.picture_name(run.pixels)
        return {"code": code_of(run, f"assets/examples/{name}" if name else export.PICTURE)}

    @refusing
    def share(
        self,
        image: Picture | None,
        question: str,
        model: str,
        max_new_tokens: int,
        times: float,
        others: Sequence[str] = (),
        what_if: Sequence[str] = (),
        temperature: float = 0.0,
        seed: float | None = None,
        **form: Any,
    ) -> Shown:
        """A link to what the page is set to."""
        name = None if image is None else self.context.picture_name(np.asarray(image))
        link = Link(
            settings=settings_of(form),
            times=times,
            others=others,
            what_if=what_if,
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
    def restore(self, address: str) -> Shown:
        """What the page's address says."""
        models = [model.name for model in self.context.service.models]
        link = read_query(address or "", self.context.examples, models)
        named = {
            "question": link.question, "model": link.model, "max_new_tokens": link.max_new_tokens,
            "times": link.times, "others": link.others,
        }  # fmt: skip
        shown: Shown = {name: value for name, value in named.items() if value}
        if link.sampling.draws:
            shown |= {"temperature": link.sampling.temperature, "seed": link.sampling.seed}
        if link.what_if:
            shown["what_if"] = boxes(link.what_if)
        for example in self.context.examples:
            if example.image.stem == link.example:
                choices = list(example.questions)
                shown["image"] = str(example.image)
                shown["suggestions"] = gr.update(choices=choices, value=None, visible=True)
        if link.settings is not None:
            shown |= {"preset": None, "status": markup.line(FROM_LINK)}
            shown |= values_of(link.settings)
        return shown


def wire_export(events: ExportEvents, widgets: Widgets, greeted: Any) -> None:
    """Buttons send files and links to the browser; code follows the run; and once the page has
    greeted, what its address says is set."""
    widgets.listen(widgets["json"].click, save_json, "sent", **QUIET)
    widgets.listen(widgets["link"].click, events.share, "sent", **QUIET)
    widgets.listen(widgets["run"].change, events.code, "code", **QUIET)
    asked = greeted.then(None, None, widgets["address"], js="() => location.search", **QUIET)
    shown = (
        "image question suggestions model max_new_tokens times others what_if temperature seed "
        "preset status"
    )
    widgets.listen(asked.then, events.restore, " ".join([shown, *widgets.settings]), **QUIET)
