"""Look inside: one head's figures, and what makes them change."""

from typing import Any, Final, NamedTuple

import gradio as gr

from rotatek.config import Settings
from rotatek.page import inside, plots
from rotatek.page.controls import Controls
from rotatek.page.handlers import calm
from rotatek.page.run import Run
from rotatek.page.wires import DRAWING, QUIET
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
    "scores": "Attention scores, exact and compressed",
}
ROWS: Final = (
    ("map",),
    ("raw", "rotated"),
    ("think", "spark", "rotatek"),
    ("energy", "spectrum"),
    ("kept", "attention", "scores"),
)
BUDGET: Final = {"budget": "Where the bytes are"}


class Lens(NamedTuple):
    """Which head is looked at, and where its figures are sent."""

    layer: gr.Slider
    head: gr.Slider
    quantity: gr.Radio
    picked: gr.Textbox
    drawn: gr.HTML
    overview: gr.HTML


def budget_part() -> gr.HTML:
    """The frame of the figure that shows where the bytes of every column are."""
    return plots.sheet(BUDGET, [["budget"]], "budget-sheet")


def lens_part() -> Lens:
    """Layer, head, and the frames of everything drawn of them."""
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
    plots.sheet(FIGURES, ROWS, "figures")
    return Lens(layer, head, quantity, picked, plots.box("drawn"), plots.box("overview"))


@calm
def overview(run: Run | None) -> tuple[Any, Any, Any]:
    """What a new run changes. Outputs: layer, head, overview."""
    trace = None if run is None else run.trace
    if run is None or trace is None:
        return gr.skip(), gr.skip(), gr.skip()
    layers, heads = trace.shape
    drawings = {"budget": inside.budget_drawing(run), "kept": inside.kept_drawing(run, trace)}
    return (
        gr.update(maximum=layers - 1),
        gr.update(maximum=max(1, heads - 1)),
        plots.payload(drawings, inside.pictures(run)),
    )


@calm
def redraw(
    run: Run | None,
    layer: float,
    head: float,
    quantity: str,
    channel_sparsity: float,
    weighting: str,
) -> Any:
    """One head, at the width the slider asks for. Output: drawn."""
    trace = None if run is None else run.trace
    if run is None or trace is None:
        return gr.skip()
    layers, heads = trace.shape
    row, column = min(int(layer), layers - 1), min(int(head), heads - 1)
    settings = Settings(
        keep_channels=round(1.0 - channel_sparsity, 6),
        weighting=weighting,  # type: ignore[arg-type]  # Settings checks it
    )
    drawings = inside.head_drawings(run, trace, row, column, settings)
    drawings["map"] = inside.head_map(run, trace, quantity, row, column, settings)
    return plots.payload(drawings)


@calm
def pick(cell: str) -> tuple[Any, Any]:
    """A click on the map, as "layer,head,time". Outputs: layer, head."""
    parts = cell.split(",")
    if len(parts) != 3 or not all(part.isdecimal() and len(part) < 16 for part in parts):
        return gr.skip(), gr.skip()
    return int(parts[0]), int(parts[1])


def wire_lens(lens: Lens, controls: Controls, run: gr.State) -> None:
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
        redraw,
        needs,
        lens.drawn,
        **DRAWING,
    )
    picked = lens.picked.change(pick, lens.picked, [lens.layer, lens.head], queue=False, **QUIET)
    picked.then(redraw, needs, lens.drawn, **DRAWING)
