"""The page: widgets, wiring and launch settings. `python app.py` serves it at port 7860.

What the widgets say, show and do is in `rotatek.page` and `viz`; who answers is `rotatek.engine`.
"""

import logging
import threading
from pathlib import Path
from typing import Any, Final, NamedTuple

import gradio as gr

from rotatek.channels import CHANNELS
from rotatek.config import Limits
from rotatek.page import api, cards
from rotatek.page.choices import (
    PRESETS,
    START,
    Example,
    load_examples,
    models_on_offer,
)
from rotatek.page.handlers import FIGURES, RUN_FIGURES, WIDTH, Handlers, preset_settings
from rotatek.page.image import image_box
from rotatek.page.service import Service
from rotatek.tokens import TOKENS
from viz.headmap import QUANTITIES

ASSETS: Final = Path(__file__).resolve().parent / "assets"
MODEL_WORK: Final = {"concurrency_id": "model", "concurrency_limit": 4}
QUIET: Final = {"show_progress": "hidden", "api_visibility": "private"}
DRAWING: Final = QUIET | {
    "trigger_mode": "always_last",
    "concurrency_id": "drawing",
    "concurrency_limit": 4,
}
FONT: Final = ["ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
MONO: Final = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]


class Question(NamedTuple):
    """What is asked, and the buttons."""

    image: gr.Image
    text: gr.Textbox
    suggestions: gr.Radio
    ask: gr.Button
    stop: gr.Button
    gallery: gr.Gallery | None


class Controls(NamedTuple):
    """The settings, in the order handlers take them, and what is read off them."""

    tokens: gr.Dropdown
    token_sparsity: gr.Slider
    channels: gr.Dropdown
    channel_sparsity: gr.Slider
    weighting: gr.Dropdown
    presets: gr.Radio
    model: gr.Dropdown
    length: gr.Slider
    others: gr.CheckboxGroup
    token_reading: gr.HTML
    channel_reading: gr.HTML
    budget: gr.HTML

    @property
    def values(self) -> list[Any]:
        """The widgets that make up the settings."""
        return list(self[:5])

    @property
    def readings(self) -> list[gr.HTML]:
        """What follows the sliders."""
        return list(self[9:])


class Lens(NamedTuple):
    """Which head is looked at, and the figures that show it."""

    layer: gr.Slider
    head: gr.Slider
    quantity: gr.Radio
    picked: gr.Textbox
    figures: list[Any]


def figure(name: str, title: str, reading: str = "") -> list[Any]:
    """A framed figure: its caption and its plot."""
    with gr.Column(elem_classes="rk-figure", min_width=260):
        caption = gr.HTML(cards.caption(title, reading), elem_id=f"{name}-caption")
        plot = gr.Plot(show_label=False, container=False, elem_id=f"{name}-plot")
    return [caption, plot]


def picture_part(examples: list[Example]) -> tuple[gr.Image, gr.Gallery | None]:
    """The image and the gallery it may be chosen from."""
    image = image_box(
        value=str(examples[0].image) if examples else None,
        label="Image",
        show_label=False,
        height=340,
        elem_id="image",
        buttons=["fullscreen"],
        placeholder="Drop, paste or choose a PNG, JPEG or WebP image",
        alt_text="The image that is asked about",
    )
    if not examples:
        return image, None
    gallery = gr.Gallery(
        [(str(example.image), example.title) for example in examples],
        show_label=False,
        columns=4,
        height="auto",
        object_fit="cover",
        allow_preview=False,
        interactive=False,
        buttons=[],
        elem_id="examples",
    )
    return image, gallery


def question_part(image: gr.Image, gallery: gr.Gallery | None, examples: list[Example]) -> Question:
    """The question and the buttons."""
    offered = list(examples[0].questions) if examples else []
    text = gr.Textbox(
        offered[0] if offered else "",
        label="Question",
        placeholder="What would you like to know about the image?",
        lines=1,
        max_lines=6,
        elem_id="question",
    )
    suggestions = gr.Radio(
        offered,
        value=offered[0] if offered else None,
        label="Questions about this example",
        visible=bool(offered),
        elem_id="suggestions",
    )
    with gr.Row(elem_id="buttons"):
        ask = gr.Button("Ask", variant="primary", scale=3, min_width=120, elem_id="ask")
        stop = gr.Button("Stop", interactive=False, scale=1, min_width=90, elem_id="stop")
    return Question(image, text, suggestions, ask, stop, gallery)


def slider_part(
    name: str, label: str, choices: list, method: str, dropped: float, top: float, reading: str
) -> tuple[gr.Dropdown, gr.Slider, gr.HTML]:
    """A method, how much it drops, and what that leaves."""
    with gr.Column(min_width=230, elem_classes="rk-panel"):
        box = gr.Dropdown(choices, value=method, label=f"{label} method", elem_id=f"{name}s")
        slider = gr.Slider(
            0,
            top,
            dropped,
            step=0.01,
            label=f"{label} sparsity",
            buttons=[],
            elem_id=f"{name}-sparsity",
        )
        words = gr.HTML(reading, elem_id=f"{name}-reading")
    return box, slider, words


def controls_part(models: list[tuple[str, str]]) -> Controls:
    """Budgets from the paper, the two sliders with their readings, and what is seldom changed."""
    start = preset_settings(START)
    presets = gr.Radio(
        list(PRESETS),
        value=START,
        label="Budget: share of the visual KV cache that is kept",
        elem_id="presets",
    )
    with gr.Row(equal_height=True):
        tokens, token_sparsity, token_reading = slider_part(
            "token",
            "Token",
            [(pruner.label, name) for name, pruner in TOKENS.items()],
            start.tokens,
            1 - start.keep_tokens,
            0.95,
            cards.token_reading(start, None),
        )
        channels, channel_sparsity, channel_reading = slider_part(
            "channel",
            "Channel",
            [(method.label, name) for name, method in CHANNELS.items()],
            start.channels,
            1 - start.keep_channels,
            0.97,
            cards.channel_reading(start, WIDTH),
        )
    budget = gr.HTML(cards.budget_reading(start), elem_id="budget-reading")
    with gr.Accordion(
        "More: model, further columns, weighting, length", open=False, elem_id="more"
    ):
        model = gr.Dropdown(models, value=models[0][1], label="Model", elem_id="model")
        others = gr.CheckboxGroup(
            [(method.label, name) for name, method in CHANNELS.items() if name != "full"],
            label="Further columns with the same shares of tokens and channels",
            elem_id="others",
        )
        weighting = gr.Dropdown(
            [("by the queries, as in the paper", "paper"), ("none", "none"),
             ("by the queries, in one consistent metric", "consistent")],
            value=start.weighting,
            label="How RotateK weighs channels",
            elem_id="weighting",
        )  # fmt: skip
        length = gr.Slider(
            16,
            Limits().max_new_tokens,
            Limits().kept_answer_tokens,
            step=16,
            label="Longest answer, in tokens",
            buttons=[],
            elem_id="length",
        )
    return Controls(
        tokens, token_sparsity, channels, channel_sparsity, weighting,
        presets, model, length, others, token_reading, channel_reading, budget,
    )  # fmt: skip


def lens_part() -> tuple[Lens, list[Any]]:
    """Layer, head, everything drawn of them; and the kept tokens, which only a new run redraws."""
    drawn: dict[str, list[Any]] = {}
    with gr.Row(elem_id="lens"):
        layer = gr.Slider(
            0, 5, 2, step=1, label="Layer", buttons=[], elem_id="layer", min_width=180
        )
        head = gr.Slider(
            0, 1, 0, step=1, label="KV head", buttons=[], elem_id="head", min_width=180
        )
        quantity = gr.Radio(
            [(q.title.capitalize(), name) for name, q in QUANTITIES.items() if name != "bytes"],
            value="energy",
            label="Map shows",
            elem_id="quantity",
            min_width=200,
        )
    picked = gr.Textbox(elem_id="picked", label="Cell of the map", elem_classes="rk-unseen")
    drawn["map"] = figure("map", FIGURES["map"])
    for row, names in (
        ("rk-two", ("raw", "rotated")),
        ("rk-three", ("think", "spark", "rotatek")),
        ("rk-two", ("energy", "spectrum")),
        ("rk-three", ("kept", "attention", "scores")),
    ):
        with gr.Row(elem_classes=row):
            for name in names:
                drawn[name] = figure(name, (FIGURES | RUN_FIGURES)[name])
    figures = [part for name in FIGURES for part in drawn[name]]
    return Lens(layer, head, quantity, picked, figures), drawn["kept"]


def build(handlers: Handlers) -> gr.Blocks:
    """The whole page, wired."""
    service, examples = handlers.service, handlers.examples
    with gr.Blocks(title="RotateK", analytics_enabled=False, delete_cache=(600, 3600)) as page:
        run, count = gr.State(time_to_live=3600), gr.State(time_to_live=3600)
        gr.HTML(cards.masthead([model.label for model in service.models]), elem_id="masthead")
        with gr.Row(elem_id="desk"):
            with gr.Column(scale=5, min_width=300):
                image, gallery = picture_part(examples)
            with gr.Column(scale=6, min_width=300):
                question = question_part(image, gallery, examples)
                controls = controls_part([(model.label, model.name) for model in service.models])
        status = gr.HTML(cards.line(""), elem_id="status")
        answers = gr.HTML(cards.answers(None, on_cpu=False), elem_id="answers")
        budget = figure("budget", RUN_FIGURES["budget"])
        gr.HTML(cards.section(*cards.INSIDE), elem_id="inside")
        lens, kept = lens_part()
        gr.HTML(cards.footer(), elem_id="footer")
        api.publish(service, **MODEL_WORK)
        told = [answers, status, run]
        wire_settings(handlers, question, controls, count)
        overview = [lens.layer, lens.head, *budget, *kept]
        wire_asking(handlers, page, question, controls, [*told, count], overview)
        wire_lens(handlers, lens, controls, run)
    return page


def wire_settings(handlers: Handlers, question: Question, controls: Controls, count: Any) -> None:
    """Readings follow the sliders; presets and examples set them."""
    question.image.change(handlers.count, [question.image, controls.model], count, **QUIET)
    gr.on(
        [widget.change for widget in controls.values] + [count.change],
        handlers.read,
        [count, *controls.values],
        controls.readings,
        trigger_mode="always_last",
        queue=False,
        **QUIET,
    )
    moved = [widget.input for widget in controls.values[:4]]
    gr.on(moved, None, None, controls.presets, js="() => null", **QUIET)
    controls.presets.input(handlers.preset, controls.presets, controls.values[:4], **QUIET)
    if question.gallery is not None:
        question.gallery.select(
            handlers.choose,
            None,
            [question.image, question.text, question.suggestions],
            queue=False,
            **QUIET,
        )
    question.text.input(None, None, question.suggestions, js="() => null", **QUIET)
    question.suggestions.input(
        lambda text: text, question.suggestions, question.text, queue=False, **QUIET
    )
    question.image.upload(
        lambda: gr.update(visible=False), None, question.suggestions, queue=False, **QUIET
    )


def wire_asking(
    handlers: Handlers,
    page: gr.Blocks,
    question: Question,
    controls: Controls,
    told: list[Any],
    overview: list[Any],
) -> None:
    """Ask streams, Stop ends it at once, and a finished run is drawn."""
    asked = gr.on(
        [question.ask.click, question.text.submit],
        handlers.ask,
        [question.image, question.text, controls.model, controls.length, controls.others]
        + controls.values,
        [*told[:3], question.ask, question.stop],
        **QUIET,
        **MODEL_WORK,
    )
    question.stop.click(handlers.stop, None, None, queue=False, **QUIET)
    page.unload(handlers.stop)
    for finished in (asked, page.load(handlers.greet, None, told, **QUIET)):
        finished.then(handlers.overview, told[2], overview, **QUIET)


def wire_lens(handlers: Handlers, lens: Lens, controls: Controls, run: gr.State) -> None:
    """Figures are redrawn when a slider is let go, and when there is a new run."""
    needs = [
        run, lens.layer, lens.head, lens.quantity, controls.channel_sparsity, controls.weighting,
    ]  # fmt: skip
    gr.on(
        [
            run.change,
            lens.layer.release,
            lens.head.release,
            lens.quantity.input,
            controls.channel_sparsity.release,
            controls.presets.input,
            controls.weighting.input,
        ],
        handlers.redraw,
        needs,
        lens.figures,
        **DRAWING,
    )
    picked = lens.picked.change(
        handlers.pick, lens.picked, [lens.layer, lens.head], queue=False, **QUIET
    )
    picked.then(handlers.redraw, needs, lens.figures, **DRAWING)


def theme() -> gr.themes.Base:
    """Quiet surfaces and one accent; system fonts, so that nothing is fetched."""
    accent = gr.themes.Color(
        "#effbf8", "#d3f4ec", "#a8e8da", "#6fd6c2", "#37bda6", "#0ca38a", "#08836f", "#0a6959",
        "#0c5448", "#0d463d", "#042a25", name="rotatek",
    )  # fmt: skip
    base = gr.themes.Base(
        primary_hue=accent,
        secondary_hue=accent,
        neutral_hue="slate",
        radius_size="lg",
        font=FONT,
        font_mono=MONO,
    )
    return base.set(
        body_background_fill="#fbfcfc",
        body_background_fill_dark="#0d1117",
        background_fill_primary_dark="#151b23",
        background_fill_secondary_dark="#10151c",
        block_background_fill="#ffffff",
        block_background_fill_dark="#151b23",
        block_border_color="#e2e7ec",
        block_border_color_dark="#27303b",
        border_color_primary_dark="#27303b",
        block_shadow="none",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        input_background_fill="#ffffff",
        input_background_fill_dark="#10151c",
        button_primary_background_fill="#087a68",
        button_primary_background_fill_dark="#0ca38a",
        button_primary_background_fill_hover="#0a6959",
        button_primary_background_fill_hover_dark="#37bda6",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#04211c",
        slider_color="#0ca38a",
        slider_color_dark="#0ca38a",
    )


def head() -> str:
    """Our script, and an early start for plotly, which gradio loads only once it has a figure."""
    script = (ASSETS / "page.js").read_text(encoding="utf-8")
    bundles = (Path(gr.__file__).parent / "templates/frontend/assets").glob("PlotlyPlot-*.js")
    early = [f'<link rel="modulepreload" href="./assets/{bundle.name}">' for bundle in bundles]
    return "".join(early) + f"<script>{script}</script>"


def launch(page: gr.Blocks, **options: Any) -> tuple:
    """Serve `page` with the settings that an open port needs."""
    page.queue(max_size=64, default_concurrency_limit=8, api_open=False)
    return page.launch(
        theme=theme(),
        css_paths=ASSETS / "style.css",
        head=head(),
        footer_links=["api"],
        show_error=False,
        max_file_size="10mb",
        allowed_paths=[],
        state_session_capacity=200,
        enable_monitoring=False,
        run_history=False,
        ssr_mode=False,
        mcp_server=False,
        share=False,
        **options,
    )


def main() -> None:
    """Serve the page and load the first model while visitors read it."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # gradio asks itself whether it is up
    handlers = Handlers(Service(models_on_offer()), load_examples(ASSETS / "examples"))
    threading.Thread(target=handlers.prepare, daemon=True).start()
    launch(build(handlers))


if __name__ == "__main__":
    main()
