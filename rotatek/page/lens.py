"""Look inside: one head's figures, and what makes them change."""

from typing import Any, NamedTuple

import gradio as gr

from rotatek.page import cards
from rotatek.page.controls import Controls
from rotatek.page.handlers import FIGURES, RUN_FIGURES, Handlers
from rotatek.page.wires import DRAWING, QUIET
from viz.headmap import QUANTITIES


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
