"""Taking answers away: JSON, a program that gives them again, and the page's address as a link that
brings everything back, with settings as short text."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

import gradio as gr
import numpy as np

import rotatek
from rotatek.errors import SettingError
from rotatek.inputs.request import MAX_NEW_TOKENS, MAX_QUESTION
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings
from rotatek.page import markup, settings
from rotatek.page.binding import QUIET, Shown, Widgets
from rotatek.page.markup import message
from rotatek.page.page_context import PageContext, digest
from rotatek.service.service import Run

FROM_LINK: Final = "These settings come from the link. Press Ask for their answers."
NOTHING: Final = "There is no answer to take away yet. Ask first."
MAX_CODE: Final = 400  # characters of an encoded setting
MAX_QUERY: Final = 8_000  # characters of a link's query
LEAST_TIMES: Final = 2  # of the third column's slider
MOST_TIMES: Final = 32
KEYS: Final = {  # of a link, by the widget whose value they bring back; "s" is the settings'
    "others": "x", "what_if": "w", "times": "t", "question": "q", "model": "model",
    "max_new_tokens": "length", "image": "image", "temperature": "temperature", "seed": "seed",
}  # fmt: skip
PROGRAM: Final = """from pathlib import Path

from rotatek import Engine, Sampling, Settings, make_request, open_image
from rotatek.engine.conversation import Conversation
from rotatek.engine.events import Finished

engine, talk = Engine({model!r}), Conversation()
picture = open_image(Path({image!r}))
columns = {{
{columns}}}
{asked}talk.close()"""
TURN: Final = """for event in engine.{}:
    if isinstance(event, Finished):
        print(f"{{event.column}}: {{event.answer}} ({{event.metrics['kv_bytes']}} bytes)")
"""


def as_json(run: Run) -> str:
    """The whole conversation: what was asked under which settings, and all that was measured."""
    height, width = run.pixels.shape[:2]
    record = {
        "rotatek": rotatek.__version__,
        "model": run.model,
        "image": {"width": width, "height": height, "sha256": digest(run.pixels).split(":")[1]},
        "max_new_tokens": run.max_new_tokens,
        "turns": [
            {
                "question": turn.question,
                "columns": {
                    title: column.report()
                    | {
                        "failure": column.failure, "new_tokens": len(column.pieces),
                        "kl_by_token": column.kl, "same_token": column.same,
                    }
                    for title, column in turn.columns.items()
                },
            }
            for turn in run.turns
        ],
    }  # fmt: skip
    return json.dumps(record, ensure_ascii=False, indent=2)


def python(run: Run, image: str) -> str:
    """A program that gives these answers again."""
    asked = ""
    for number, turn in enumerate(run.turns):
        drawn = f", sampling=Sampling({_given(turn.sampling.as_dict())})"
        given = f"{turn.question!r}, {turn.max_new_tokens}{drawn if turn.sampling.draws else ''}"
        first = f"compare(make_request(picture, {given}), columns, conversation=talk)"
        asked += TURN.format(f"follow(talk, {given})" if number else first)
    columns = "".join(
        f"    {title!r}: Settings.of({_given(settings.changed(column.settings))}),\n"
        for title, column in run.columns.items()
    )
    return PROGRAM.format(model=run.model, image=image, columns=columns, asked=asked)


def _given(values: Mapping[str, Any]) -> str:
    """`tokens='fastv', keep_tokens=0.4`."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def code_of(run: Run | None, image: str = "") -> str:
    """The program that gives the present answers again, and the button that copies it."""
    if run is None:
        return markup.aside(NOTHING)
    return (
        '<figure class="rk-code"><figcaption>In Python<button type="button" data-copy '
        'aria-label="Copy the program">Copy</button></figcaption><pre tabindex="0">'
        f"<code>{escape(python(run, image))}</code></pre></figure>"
    )


def encode(chosen: Settings) -> str:
    """Settings as short text for links: `tokens:fastv,keep_tokens:0.4`; only what differs from the
    defaults, never a path."""
    known = settings.fields()
    return ",".join(
        f"{name}:{value}"
        for name, value in settings.changed(chosen).items()
        if name not in known or known[name].is_shared
    )


def decode(text: str) -> Settings:
    """The inverse of `encode`, for text from anywhere.

    Raises:
        SettingError: for a name or a value that there is not.
    """
    if len(text) > MAX_CODE:
        raise SettingError("settings", f"at most {MAX_CODE} characters", text)
    parts = (part.partition(":") for part in text.split(",") if part)
    return Settings.from_dict({name: value for name, _, value in parts}, shared=True)


def query(asked: Mapping[str, Any], example: str | None) -> str:
    """The part of an address after the question mark.

    Args:
        asked: what the widgets show, by name.
        example: the name of an example's file, without its ending; other images are not shared.
    """
    draws = settings.sampling_of(asked.get("temperature"), asked.get("seed"))
    shown = {**asked, "image": example, "temperature": None, "seed": None}
    if draws.draws:
        shown |= {"temperature": draws.temperature, "seed": draws.seed}
    pairs = [("s", encode(settings.settings_of(asked)))]
    for name, key in KEYS.items():
        value = shown.get(name)
        values = value if isinstance(value, list) else [value]
        pairs += [(key, str(one)) for one in values if one is not None and one != ""]
    return urlencode(pairs)


def read_query(text: str, images: Sequence[str], models: Sequence[str]) -> dict[str, Any]:
    """What an address says, checked, by the names of widgets; a name or a number that this page
    does not have is left out.

    Raises:
        SettingError: for settings that there are not.
    """
    try:
        given = parse_qs(text[:MAX_QUERY].lstrip("?"), keep_blank_values=True, max_num_fields=20)
    except ValueError as error:
        raise SettingError("link", "one that this page has made", text) from error
    one = {name: values[0] for name, values in given.items()}

    def whole(key: str, low: int, high: int) -> int | None:
        digits = one.get(key, "")
        is_short = digits.isdecimal() and len(digits) < 6
        return int(digits) if is_short and low <= int(digits) <= high else None

    link: dict[str, Any] = {
        "question": one.get("q", "")[:MAX_QUESTION],
        "model": one.get("model") if one.get("model") in models else None,
        "image": one.get("image") if one.get("image") in images else None,
        "max_new_tokens": whole("length", 1, MAX_NEW_TOKENS),
        "times": whole("t", LEAST_TIMES, MOST_TIMES),
        "what_if": [code for code in given.get("w", ()) if settings.WHAT_IF.fullmatch(code)],
    }
    link = {name: value for name, value in link.items() if value}
    if "s" in one:
        link |= settings.values_of(decode(one["s"]))
        link["others"] = [name for name in given.get("x", []) if name in CHANNELS]
    if "temperature" in one:
        try:
            seed = int(one["seed"]) if "seed" in one else None
            draws = settings.sampling_of(float(one["temperature"]), seed)
        except ValueError as error:
            raise SettingError("temperature", "a number, and the seed a whole one", text) from error
        if draws.draws:
            link |= {"temperature": draws.temperature, "seed": draws.seed}
    return link


class ExportEvents:
    """Files, code and links, for one page's examples and models."""

    def __init__(self, context: PageContext) -> None:
        self.context = context

    def save(self, run: Run | None) -> Shown:
        """Answers and figures as a file."""
        if run is None:
            return {"sent": message(said=NOTHING)}
        return {"sent": message(file="rotatek.json", type="application/json", text=as_json(run))}

    def code(self, run: Run | None) -> Shown:
        """Code for a finished run, which calls an example by its path."""
        name = None if run is None else self.context.pictures.get(digest(run.pixels))
        return {"code": code_of(run, f"assets/examples/{name}" if name else "picture.png")}

    def share(self, **asked: Any) -> Shown:
        """A link to what the page is set to."""
        image = asked["image"]
        name = None if image is None else self.context.pictures.get(digest(np.asarray(image)))
        own = image is not None and name is None
        said = "Link copied. Your own image is not part of it." if own else "Link copied."
        return {"sent": message(query=query(asked, name and Path(name).stem), said=said)}

    def restore(self, address: str) -> Shown:
        """What the page's address says."""
        examples = {example.image.stem: example for example in self.context.examples}
        models = [model.name for model in self.context.service.models]
        shown: Shown = read_query(address or "", list(examples), models)
        if "tokens" in shown:
            shown |= {"preset": None, "status": markup.line(FROM_LINK)}
        if "what_if" in shown:
            shown["what_if"] = settings.boxes(shown["what_if"])
        if "image" in shown:
            example = examples[shown["image"]]
            choices = list(example.questions)
            shown["image"] = str(example.image)
            shown["suggestions"] = gr.update(choices=choices, value=None, visible=True)
        return shown


def wire_export(events: ExportEvents, widgets: Widgets, greeted: Any) -> None:
    """Once the page has greeted, what its address says is set."""
    widgets.listen(widgets["json"].click, events.save, "sent", **QUIET)
    widgets.listen(widgets["link"].click, events.share, "sent", **QUIET)
    widgets.listen(widgets["run"].change, events.code, "code", **QUIET)
    asked = greeted.then(None, None, widgets["address"], js="() => location.search", **QUIET)
    shown = " ".join(["suggestions preset status", *KEYS, *widgets.groups["form"]])
    widgets.listen(asked.then, events.restore, shown, **QUIET)
