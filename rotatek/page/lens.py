"""Look inside: one head's figures, and what makes them change."""

from html import escape
from typing import Any, Final, NamedTuple

import gradio as gr

from rotatek.page import inside, plots
from rotatek.page.choices import settings_of
from rotatek.page.controls import Controls
from rotatek.page.handlers import calm
from rotatek.page.run import Run
from rotatek.page.wires import DRAWING, QUIET
from rotatek.settings import Settings
from rotatek.trace import Trace
from viz.headmap import QUANTITIES

FIGURES: Final = {
    "map": "Every layer and head",
    "raw": "Keys as the model makes them",
    "rotated": "The same Keys, rotated",
    "think": "ThinK: one mask for all tokens",
    "spark": "SparK: a mask for every token",
    "rotatek": "RotateK: one straight cut",
    "energy": "What k channels hold",
    "spectrum": "How fast it falls off",
    "kept": "What the model still sees",
    "attention": "Where this head looks",
    "compressed": "Where it looks when compressed",
    "scores": "Attention scores, exact and compressed",
}
ROWS: Final = (
    ("map",),
    ("raw", "rotated"),
    ("think", "spark", "rotatek"),
    ("energy", "spectrum", "scores"),
)
LOOKS: Final = (("kept", "attention", "compressed"),)
BUDGET: Final = {"budget": "Where the bytes are"}


class Lens(NamedTuple):
    """Which head is looked at, and where its figures are sent."""

    layer: gr.Slider
    head: gr.Slider
    quantity: gr.Radio
    step: gr.Slider
    said: gr.HTML
    picked: gr.Textbox
    drawn: gr.HTML
    looks: gr.HTML
    overview: gr.HTML


def budget_part() -> gr.HTML:
    """The frame of the figure that shows where the bytes of every column are."""
    return plots.sheet(BUDGET, [["budget"]], "budget-sheet")


def whole(label: str, top: int, value: int, elem_id: str) -> gr.Slider:
    """A slider over whole numbers from 0."""
    return gr.Slider(0, top, value, step=1, label=label, buttons=[], elem_id=elem_id, min_width=180)


def lens_part() -> Lens:
    """Layer, head, the frames of everything drawn of them, and the answer to step through."""
    with gr.Row(elem_id="lens"):
        layer, head = whole("Layer", 5, 2, "layer"), whole("KV head", 1, 0, "head")
        quantity = gr.Radio(
            [(q.title[0].upper() + q.title[1:], name) for name, q in QUANTITIES.items()],
            value="energy",
            label="Map shows",
            elem_id="quantity",
            min_width=200,
        )
    picked = gr.Textbox(elem_id="picked", label="Cell of the map", elem_classes="rk-unseen")
    plots.sheet(FIGURES, ROWS, "figures")
    with gr.Row(elem_id="scrub"):
        step = whole("Token of the answer", 1, 0, "step")
        said = gr.HTML(words([], [0], 0), elem_id="said")
    plots.sheet(FIGURES, LOOKS, "look-figures")
    boxes = (plots.box("drawn"), plots.box("looks"), plots.box("overview"))
    return Lens(layer, head, quantity, step, said, picked, *boxes)


def words(pieces: list[str], steps: list[int], step: int) -> str:
    """The answer with the token marked that the chosen query was looking for."""
    number = steps[step]
    before, token, after = pieces[:number], pieces[number : number + 1], pieces[number + 1 :]
    if token:
        what = f"token {number + 1} of {len(pieces)}"
    else:
        what = "the end of the answer" if pieces else "the last word of the question"
    marked = escape("".join(token)) if "".join(token).strip() else "\u00b7"
    mark = f"<mark>{marked}</mark>" if token else "<mark>\u25a0</mark>" if pieces else ""
    return (
        f'<p class="rk-step"><span class="rk-sub">The query that chose {what}</span><br>'
        f"{escape(''.join(before))}{mark}{escape(''.join(after))}</p>"
    )


@calm
def overview(run: Run | None) -> tuple[Any, ...]:
    """What a new run changes. Outputs: layer, head, step, overview."""
    trace = None if run is None else run.trace
    if run is None or trace is None:
        return (gr.skip(),) * 4
    layers, heads = trace.shape
    drawings = {"budget": inside.budget_drawing(run), "kept": inside.kept_drawing(run, trace)}
    return (
        gr.update(maximum=layers - 1),
        gr.update(maximum=max(1, heads - 1)),
        gr.update(maximum=max(1, len(trace.steps) - 1), value=0),
        plots.payload(drawings, inside.pictures(run)),
    )


def settings_at(
    channels: float, weighting: str, values: float, adaptive: bool, stored: str
) -> Settings:
    """RotateK as the sliders have it: the figures show every token that the run kept."""
    return settings_of("none", 0.0, "rotatek", channels, weighting, values, adaptive, stored)


def place_in(trace: Trace, layer: float, head: float, step: float) -> inside.Place:
    """Where the sliders stand, kept inside the trace."""
    layers, heads = trace.shape
    tops = (layers - 1, heads - 1, len(trace.steps) - 1)
    at = (min(max(int(v), 0), top) for v, top in zip((layer, head, step), tops, strict=True))
    return inside.Place(*at)


@calm
def redraw(
    run: Run | None, quantity: str, layer: float, head: float, step: float, *sliders: Any
) -> Any:
    """One head, at the width the sliders ask for (`settings_at`). Output: drawn."""
    trace = None if run is None else run.trace
    if run is None or trace is None:
        return gr.skip()
    at, settings = place_in(trace, layer, head, step), settings_at(*sliders)
    drawings = inside.head_drawings(run, trace, at, settings)
    drawings["map"] = inside.head_map(run, trace, quantity, at, settings)
    return plots.payload(drawings)


@calm
def relook(run: Run | None, layer: float, head: float, step: float, *sliders: Any) -> Any:
    """Another token of the answer. Outputs: looks, said."""
    trace = None if run is None else run.trace
    if run is None or trace is None:
        return gr.skip(), gr.skip()
    at = place_in(trace, layer, head, step)
    drawings = inside.look_drawings(run, trace, at, settings_at(*sliders))
    return plots.payload(drawings), words(*inside.answer_tokens(run, trace), at.step)


@calm
def pick(cell: str) -> tuple[Any, Any]:
    """A click on the map, as "layer,head,time". Outputs: layer, head."""
    parts = cell.split(",")
    if len(parts) != 3 or not all(part.isdecimal() and len(part) < 16 for part in parts):
        return gr.skip(), gr.skip()
    return int(parts[0]), int(parts[1])


def wire_lens(lens: Lens, controls: Controls, run: gr.State) -> None:
    """Figures follow their sliders, also while they are dragged: one redraw at a time, the last
    one always."""
    at = [lens.layer, lens.head, lens.step]
    sliders = [
        controls.channel_sparsity, controls.weighting, controls.value_sparsity, controls.adaptive,
        controls.cache_dtype,
    ]  # fmt: skip
    moved = [run, lens.layer, lens.head, lens.quantity, *sliders]
    needs = [run, lens.quantity, *at, *sliders]
    gr.on([widget.change for widget in moved], redraw, needs, lens.drawn, **DRAWING)
    gr.on(
        [run.change, lens.step.change],
        relook,
        [run, *at, *sliders],
        [lens.looks, lens.said],
        **DRAWING,
    )
    lens.picked.change(pick, lens.picked, [lens.layer, lens.head], queue=False, **QUIET)
