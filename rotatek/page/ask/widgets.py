"""The widgets of the first tab, one function a part. The settings are made from the registries: a
method that another package adds is in its menu, and its options have widgets."""

from abc import ABCMeta
from pathlib import Path
from typing import Any, Final

import gradio as gr
from gradio.data_classes import ImageData
from PIL.Image import Image as Picture

from rotatek import errors
from rotatek.inputs import pdf
from rotatek.inputs.images import open_image
from rotatek.inputs.request import Limits
from rotatek.inputs.sampling import HOTTEST
from rotatek.methods.channels import CHANNELS
from rotatek.methods.channels.bits import DEFAULT_TIMES
from rotatek.methods.settings import REGISTRIES
from rotatek.page import export, markup
from rotatek.page.ask import answers
from rotatek.page.binding import Widgets, refusal, refusing
from rotatek.page.export import KEYS, LEAST_TIMES, MOST_TIMES
from rotatek.page.markup import message_box
from rotatek.page.page_context import PageContext
from rotatek.page.settings import RIVALS, Field, readings, shown_fields, values_of
from rotatek.service.model_list import presets

TOPS: Final = {"tokens": 0.95, "channels": 0.97}  # the most that is dropped of them
HINT: Final = (
    '<p class="rk-lit" role="status">Choose a word of an answer to see where it looked.</p>'
)
SEEN: Final = (b"\x89PNG", b"\xff\xd8", b"GIF8", b"RIFF", b"BM")  # browsers show such files
UNSEEN: Final = "unseen"  # the key of a picture's `info`: whether browsers cannot show its file


def add_ask(widgets: Widgets, context: PageContext) -> None:
    """The tab down to where its figures begin."""
    widgets |= {"run": gr.State(time_to_live=3600), "count": gr.State(time_to_live=3600)}
    with gr.Row(elem_id="desk"):
        with gr.Column(scale=4, min_width=280, elem_id="picture-part"):
            _add_picture(widgets, context)
        with gr.Column(scale=9, min_width=300, elem_id="work"):
            offered = list(context.examples[0].questions) if context.examples else []
            first = offered[0] if offered else None
            with gr.Row(elem_id="buttons", equal_height=True):
                widgets["question"] = question_box(
                    "question", "Question", value=first or "", scale=8, min_width=200,
                    placeholder="What would you like to know about the image?",
                )  # fmt: skip
                widgets |= ask_and_stop("Ask")
            widgets["suggestions"] = gr.Radio(
                offered, value=first, label="Questions about this example", show_label=False,
                container=False, visible=bool(offered), elem_id="suggestions",
            )  # fmt: skip
            _add_answers(widgets, renews=context.renews)
            with gr.Row(visible=False, elem_id="follow", equal_height=True) as widgets["follow"]:
                widgets["follow_text"] = question_box(
                    "follow-text", "Follow-up question", scale=6, max_lines=4,
                    placeholder="Ask on: every column continues from its own cache",
                )  # fmt: skip
                widgets["follow_ask"] = gr.Button(
                    "Ask on", scale=1, min_width=110, elem_id="follow-ask"
                )
            with gr.Row(elem_id="drawers"):
                with gr.Accordion("Methods", open=False, elem_id="setup"):
                    _add_methods(widgets)
                with gr.Accordion("Model and length", open=False, elem_id="more"):
                    _add_model_and_length(widgets, context)


def _add_picture(widgets: Widgets, context: PageContext) -> None:
    examples = context.examples
    widgets["image"] = SafeImage(
        type="pil", format="png", sources=["upload", "clipboard"], image_mode="RGB",
        value=str(examples[0].image) if examples else None, label="Image", show_label=False,
        elem_id="image", buttons=["fullscreen"], placeholder="Drop, paste or choose an image",
        alt_text="The image that is asked about",
    )  # fmt: skip
    gr.HTML(HINT, js_on_load=None, elem_id="lit")
    widgets["gallery"] = gr.Gallery(
        [(str(example.image), example.title) for example in examples],
        show_label=False, columns=8, height="auto", object_fit="cover", allow_preview=False,
        interactive=False, buttons=[], visible=bool(examples), elem_id="examples",
    )  # fmt: skip
    widgets["pdf"] = gr.UploadButton(
        "Or ask about a PDF", file_types=[".pdf"], size="sm", visible=pdf.can_be_read(),
        elem_id="pdf",
    )  # fmt: skip


def _add_answers(widgets: Widgets, renews: bool) -> None:
    """highlights is a message to `assets/page.js`, the attention of every column; again is pressed
    when a slider stops moving, which asks again where the page `renews`."""
    start = next(iter(presets().values()))
    fields, values, said = shown_fields(), values_of(start), readings(start)
    widgets.groups["form"] = (*REGISTRIES, *fields)
    widgets.groups["asked"] = (*KEYS, *REGISTRIES, *fields)
    widgets["status"] = gr.HTML(markup.line(""), elem_id="status")
    empty = answers.cards(None, on_cpu=False)

    def add_slider(kind: str) -> None:
        for field in fields.values():
            if field.is_main and field.kind == kind:
                widgets[field.option.key] = _widget(field, values)
        widgets[f"{kind}_reading"] = gr.HTML(said[f"{kind}_reading"], elem_id=f"{kind}-reading")

    with gr.Row(elem_id="answers"):
        for number in range(3):
            with gr.Column(min_width=0, elem_classes="rk-column"):
                name = f"card_{number}"
                widgets[name] = gr.HTML(empty[name], elem_id=f"card-{number}")
                with gr.Column(elem_classes="rk-sliders"):
                    if number == 1:
                        add_slider("tokens")
                        add_slider("channels")
                    if number == 2:
                        widgets["times"] = slider(
                            "Times smaller", "times-smaller", LEAST_TIMES, MOST_TIMES, DEFAULT_TIMES
                        )
                        widgets["times_reading"] = gr.HTML(
                            said["times_reading"], elem_id="times-reading"
                        )
        widgets["further"] = gr.HTML("", elem_id="further")
    widgets["highlights"] = message_box("highlights", "rotatekLooks")
    widgets["again"] = gr.Button("Again", elem_id="again", elem_classes="rk-unseen", visible=renews)


def _add_methods(widgets: Widgets) -> None:
    fields, values = shown_fields(), values_of(next(iter(presets().values())))
    widgets["preset"] = gr.Radio(
        list(presets()), value=next(iter(presets())), label="Presets", elem_id="presets"
    )
    with gr.Row():
        for kind, registry in REGISTRIES.items():
            widgets[kind] = gr.Dropdown(
                [(method.label, key) for key, method in registry.items()],
                value=values[kind],
                label=f"{kind[:-1].capitalize()} method",
                elem_id=kind,
            )
    with gr.Row(elem_id="options"):
        for key, field in fields.items():
            if key not in widgets:
                widgets[key] = _widget(field, values)
    widgets["others"] = gr.CheckboxGroup(
        [(RIVALS.get(name, method.label), name) for name, method in CHANNELS.items()],
        label="Answered beside them, at the budget of the second column",
        elem_id="others",
    )


def _add_model_and_length(widgets: Widgets, context: PageContext) -> None:
    models, limits = context.service.models, Limits()
    widgets["model"] = gr.Dropdown(
        [(model.label, model.name) for model in models],
        value=models[0].name,
        label="Model",
        elem_id="model",
    )
    longest, usual = limits.max_new_tokens, limits.kept_answer_tokens
    widgets["max_new_tokens"] = slider(
        "Longest answer, in tokens", "length", 16, longest, usual, step=16
    )
    words = "Temperature: 0 takes the likeliest token, 1 draws as the model says"
    widgets["temperature"] = slider(words, "temperature", 0, HOTTEST, 0, step=0.05)
    widgets["seed"] = gr.Number(
        None,
        precision=0,
        label="Seed of the draws, the same for every column; empty for a new one",
        elem_id="seed",
    )


def add_export(widgets: Widgets) -> None:
    """`sent` is a message to `assets/page.js`, `address` the query of the page's address."""
    with gr.Accordion("Take it with you: data, code, link", open=False, elem_id="export"):
        with gr.Row(elem_id="export-buttons"):
            widgets["json"] = gr.Button("Answers as JSON", size="sm", elem_id="export-json")
            widgets["link"] = gr.Button(
                "Copy a link to these settings", size="sm", elem_id="export-link"
            )
        gr.HTML('<p class="rk-said" role="status"></p>', js_on_load=None, elem_id="export-said")
        widgets["code"] = gr.HTML(export.code_of(None), js_on_load=None, elem_id="export-code")
    widgets["sent"] = message_box("sent", "rotatekExport")
    widgets["address"] = gr.Textbox(elem_id="address", label="Query", elem_classes="rk-unseen")


def question_box(elem_id: str, label: str, max_lines: int = 3, **more: Any) -> gr.Textbox:
    """A line to type a question into, without a frame; it grows."""
    return gr.Textbox(
        label=label, show_label=False, container=False, lines=1, max_lines=max_lines,
        elem_id=elem_id, **more,
    )  # fmt: skip


def ask_and_stop(text: str, prefix: str = "") -> dict[str, gr.Button]:
    """The buttons beside a question."""
    ask = gr.Button(text, variant="primary", scale=2, min_width=84, elem_id=f"{prefix}ask")
    stop = gr.Button("Stop", interactive=False, scale=1, min_width=64, elem_id=f"{prefix}stop")
    return {"ask": ask, "stop": stop}


def slider(
    label: str, elem_id: str, low: float, high: float, value: float, step: float = 1, **more: Any
) -> gr.Slider:
    """A slider without buttons."""
    return gr.Slider(low, high, value, step=step, label=label, buttons=[], elem_id=elem_id, **more)


def _widget(field: Field, values: dict[str, Any]) -> Any:
    one, value = field.option, values[field.option.key]
    shown: dict[str, Any] = {
        "label": one.label,
        "elem_id": one.key.replace("_", "-"),
        "visible": field.is_visible(values),
    }
    if field.is_main:
        shown["elem_id"] = f"{field.kind[:-1]}-sparsity"
    if field.is_share:
        return slider(low=0, high=TOPS[field.kind], value=value, step=0.01, **shown)
    if one.kind == "choice":
        menu = [(words, name) for name, words in one.choices]
        return gr.Dropdown(menu, value=value, **shown)
    if one.kind == "integer":
        return gr.Number(value, precision=0, minimum=one.low, info=one.help, **shown)
    low, high = one.low or 0.0, one.high or 1.0
    step = (high - low) / 100
    if one.is_optional:  # 0 leaves it out
        low, step = 0.0, low
    return slider(low=low, high=high, value=value, step=step, info=one.help, **shown)


class CheckedUpload:
    """How an image box takes an upload: bytes are checked, and nothing is fetched. Gradio has
    already verified that the path lies in its upload folder."""

    def preprocess(self, payload: ImageData | None) -> Picture | None:
        """The uploaded file as a checked RGB picture, or None while the box is empty.

        Raises:
            gr.Error: with a sentence of `rotatek.errors`.
        """
        if payload is None:
            return None
        with refusing():
            if payload.path is None or (payload.url or "").lower().startswith("data:"):
                raise errors.ImageNotAFile
            picture = open_image(Path(payload.path))
            with Path(payload.path).open("rb") as file:
                picture.info[UNSEEN] = not file.read(4).startswith(SEEN)
            return picture

    async def async_move_resource_to_block_cache(
        self, url_or_file_path: str | Path | None
    ) -> str | None:
        """Keep local files as Gradio does; refuse a URL, which it would download."""
        if str(url_or_file_path).lower().startswith(("http:", "https:")):
            raise refusal(errors.ImageNotAFile())
        move: Any = super()
        try:
            return await move.async_move_resource_to_block_cache(url_or_file_path)
        except FileNotFoundError:  # it was swept away meanwhile
            raise refusal(errors.FileUnreadable()) from None

    def get_block_name(self) -> str:
        """Drawn in the browser as an ordinary image box."""
        return "image"


# A class statement would run gradio's own metaclass, which writes a stub file beside this one.
SafeImage: Final = ABCMeta.__new__(
    type(gr.Image), "SafeImage", (CheckedUpload, gr.Image), {"__module__": __name__}
)
