"""The part of the page for taking things away: data, code, a link, and how programs ask."""

import json
import time
from typing import Any, Final, NamedTuple

import gradio as gr
from PIL.Image import Image as Picture

from rotatek.page import cards, carry
from rotatek.page.choices import decode, settings_of, widgets_of
from rotatek.page.controls import Controls
from rotatek.page.handlers import Handlers, calm, columns_shown
from rotatek.page.question import Question
from rotatek.page.run import Run
from rotatek.page.wires import QUIET

TAKE: Final = (
    "const take = () => window.rotatekAway.take(props.value); watch('value', take); take();"
)
FROM_LINK: Final = "These settings come from the link. Press Ask for their answers."
NOTHING: Final = "There is no answer to take away yet. Ask first."


class Away(NamedTuple):
    """Buttons, code, and the unseen boxes through which the browser is told and tells."""

    json: gr.Button
    csv: gr.Button
    link: gr.Button
    code: gr.HTML
    sent: gr.HTML
    address: gr.Textbox


def away_part(model: str) -> Away:
    """A closed drawer below the answers."""
    with gr.Accordion("Take it with you: data, code, link, API", open=False, elem_id="away"):
        with gr.Row(elem_id="away-buttons"):
            as_json = gr.Button("Answers as JSON", size="sm", elem_id="away-json")
            as_csv = gr.Button("Answers as CSV", size="sm", elem_id="away-csv")
            link = gr.Button("Copy a link to these settings", size="sm", elem_id="away-link")
        gr.HTML('<p class="rk-said" role="status"></p>', js_on_load=None, elem_id="away-said")
        code = gr.HTML(code_of(None), js_on_load=None, elem_id="away-code")
        gr.HTML(api_words(model), js_on_load=None, elem_id="away-api")
    sent = gr.HTML(
        "", html_template="<i></i>", js_on_load=TAKE, elem_id="sent", elem_classes="rk-unseen"
    )
    address = gr.Textbox(elem_id="address", label="Query", elem_classes="rk-unseen")
    return Away(as_json, as_csv, link, code, sent, address)


def code_of(run: Run | None, image: str = carry.PICTURE) -> str:
    """Program and command line that give the present answers again."""
    if run is None:
        return f'<p class="rk-aside">{NOTHING}</p>'
    return carry.code("In Python", carry.python(run, image), "python") + carry.code(
        "On the command line, your settings", carry.command(run, image), "command"
    )


def api_words(model: str) -> str:
    """How a program asks this page."""
    return (
        '<div class="rk-api"><h3>From another program</h3><p class="rk-aside">This page is a '
        "service: <code>/ask</code> answers under one setting, <code>/compare</code> under several "
        "channel methods beside the uncompressed answer. Fractions say what is kept, in (0, 1]; "
        "beyond the paper there are <code>keep_values</code>, <code>widths</code> and "
        "<code>cache_dtype</code>. "
        "<code>pip install gradio_client</code>, and:</p>"
        + carry.code("With gradio_client", carry.client(model), "client")
        + "</div>"
    )


def _told(**message: Any) -> str:
    """A message to the browser; no two are alike, so that each is heard."""
    return json.dumps(message | {"at": time.time_ns()})


@calm
def save_json(run: Run | None) -> str:
    """Answers and figures as a file. Output: sent."""
    if run is None:
        return _told(said=NOTHING)
    return _told(file="rotatek.json", type="application/json", text=carry.as_json(run))


@calm
def save_csv(run: Run | None) -> str:
    """One line a turn and column as a file. Output: sent."""
    if run is None:
        return _told(said=NOTHING)
    return _told(file="rotatek.csv", type="text/csv", text=carry.as_csv(run))


class Links:
    """Settings to a link and back, for one page's examples and models."""

    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers

    @calm
    def code(self, run: Run | None) -> str:
        """Code for a finished run. Output: code."""
        return code_of(run, self.picture_of(run))

    def picture_of(self, run: Run | None) -> str:
        """What code calls the run's image: an example's path, or a stand-in."""
        name = None if run is None else self.handlers.pictures.get(carry.digest(run.pixels))
        return carry.PICTURE if name is None else f"assets/examples/{name}"

    @calm
    def share(
        self,
        image: Picture | None,
        question: str,
        model: str,
        length: int,
        others: list[str],
        *values: Any,
    ) -> str:
        """A link to what the page is set to. Output: sent."""
        name = None if image is None else self.handlers.picture_name(image)
        example = None if name is None else name.rpartition(".")[0]
        kept = [decode(code) for code in others]
        query = carry.query(settings_of(*values), kept, question, example, model, int(length))
        own = image is not None and example is None
        said = "Link copied. Your own image is not part of it." if own else "Link copied."
        return _told(query=query, said=said)

    @calm
    def restore(self, text: str) -> list[Any]:
        """What the page's address says. Outputs: image, question, suggestions, model, length,
        further columns, presets, settings, status."""
        examples = self.handlers.examples
        models = [model.name for model in self.handlers.service.models]
        found = carry.read_query(text or "", examples, models)
        shown: list[Any] = [gr.skip()] * 16
        if "example" in found:
            example = examples[found["example"]]
            shown[0] = str(example.image)
            shown[2] = gr.update(choices=list(example.questions), value=None, visible=True)
        for place, name in ((1, "question"), (3, "model"), (4, "length")):
            shown[place] = found.get(name, gr.skip())
        if "settings" in found:
            shown[5], shown[6] = columns_shown(found["others"]), None
            shown[7:] = [*widgets_of(found["settings"]), cards.line(FROM_LINK)]
        return shown


def wire_away(
    handlers: Handlers, away: Away, question: Question, controls: Controls, run: gr.State
) -> Links:
    """Buttons send files and links to the browser."""
    links = Links(handlers)
    away.json.click(save_json, run, away.sent, **QUIET)
    away.csv.click(save_csv, run, away.sent, **QUIET)
    away.link.click(
        links.share,
        [question.image, question.text, controls.model, controls.length, controls.others]
        + controls.values,
        away.sent,
        **QUIET,
    )
    return links


def wire_link(
    links: Links, away: Away, question: Question, controls: Controls, status: gr.HTML, greeted: Any
) -> None:
    """Once the page has greeted, what its address says is set."""
    asked = greeted.then(None, None, away.address, js="() => location.search", **QUIET)
    asked.then(
        links.restore,
        away.address,
        [question.image, question.text, question.suggestions, controls.model, controls.length]
        + [controls.others, controls.presets, *controls.values, status],
        **QUIET,
    )
