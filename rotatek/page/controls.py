"""The settings as widgets: budgets of the paper, sliders with their readings, what is rare."""

from typing import Any, NamedTuple

import gradio as gr

from rotatek.channels import CHANNELS
from rotatek.limits import Limits
from rotatek.page import cards
from rotatek.page.choices import PRESETS, START
from rotatek.page.handlers import WIDTH
from rotatek.tokens import TOKENS


class Controls(NamedTuple):
    """The settings, in the order of `choices.settings_of`, and what is read off them."""

    tokens: gr.Dropdown
    token_sparsity: gr.Slider
    channels: gr.Dropdown
    channel_sparsity: gr.Slider
    weighting: gr.Dropdown
    value_sparsity: gr.Slider
    adaptive: gr.Checkbox
    cache_dtype: gr.Dropdown
    presets: gr.Radio
    model: gr.Dropdown
    length: gr.Slider
    others: gr.CheckboxGroup
    every: gr.Button
    pin: gr.Button
    token_reading: gr.HTML
    channel_reading: gr.HTML
    budget: gr.HTML
    value_reading: gr.HTML

    @property
    def values(self) -> list[Any]:
        """The widgets that make up the settings."""
        return list(self[:8])

    @property
    def paper(self) -> list[Any]:
        """Those of the values that a budget of the paper sets."""
        return [*self[:4], *self[5:8]]

    @property
    def readings(self) -> list[gr.HTML]:
        """What follows the sliders."""
        return list(self[14:])


def slider_part(
    name: str, label: str, choices: list, method: str, dropped: float, top: float, reading: str
) -> tuple[gr.Dropdown, gr.Slider, gr.HTML]:
    """A method, how much it drops, and what that leaves."""
    with gr.Column(min_width=230, elem_classes="rk-panel"):
        box = gr.Dropdown(choices, value=method, label=f"{label} method", elem_id=f"{name}s")
        slider = sparsity(name, f"{label} sparsity", top, dropped)
        words = gr.HTML(reading, elem_id=f"{name}-reading")
    return box, slider, words


def sparsity(name: str, label: str, top: float, dropped: float) -> gr.Slider:
    """How much is dropped, from nothing to `top`."""
    return gr.Slider(
        0, top, dropped, step=0.01, label=label, buttons=[], elem_id=f"{name}-sparsity"
    )


def controls_part(models: list[tuple[str, str]]) -> Controls:
    """Budgets of the paper, two sliders, further columns, what is beyond the paper or rare."""
    start = PRESETS[START]
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
    with gr.Row(elem_id="columns"):
        every, pin = columns_part()
    others = gr.CheckboxGroup(
        [], label="Also answered side by side", visible=False, elem_id="others"
    )
    value_sparsity, adaptive, cache_dtype, value_reading = beyond_part()
    model, weighting, length = rare_part(models)
    return Controls(
        tokens, token_sparsity, channels, channel_sparsity, weighting, value_sparsity, adaptive,
        cache_dtype, presets, model, length, others, every, pin,
        token_reading, channel_reading, budget, value_reading,
    )  # fmt: skip


def columns_part() -> tuple[gr.Button, gr.Button]:
    """What adds columns: every method at this budget, and these very settings."""
    every = gr.Button("Compare all methods at this budget", size="sm", elem_id="every")
    pin = gr.Button("Keep these settings as a column", size="sm", elem_id="pin")
    return every, pin


def beyond_part() -> tuple[gr.Slider, gr.Checkbox, gr.Dropdown, gr.HTML]:
    """What the paper does not have: rotated Values, adaptive widths, numbers of 8 bits."""
    start = PRESETS[START]
    with gr.Accordion(
        "Beyond the paper: Values, adaptive widths, 8 bits", open=False, elem_id="beyond"
    ):
        gr.HTML(cards.aside(cards.BEYOND))
        with gr.Column(elem_classes="rk-panel"):
            values = sparsity("value", "Value channel sparsity", 0.95, 0.0)
            adaptive = gr.Checkbox(
                False, label="Adaptive widths: each head gets what it needs", elem_id="adaptive"
            )
            cache_dtype = gr.Dropdown(
                [("as the model computes", "model"), ("8-bit floating point", "fp8"),
                 ("8-bit integers", "int8")],
                value="model",
                label="Numbers in the cache",
                elem_id="cache-dtype",
            )  # fmt: skip
            reading = gr.HTML(cards.beyond_reading(start, WIDTH, None), elem_id="value-reading")
    return values, adaptive, cache_dtype, reading


def rare_part(models: list[tuple[str, str]]) -> tuple[gr.Dropdown, gr.Dropdown, gr.Slider]:
    """The model, the weighting and the length of an answer."""
    with gr.Accordion("More: model, weighting, length", open=False, elem_id="more"):
        model = gr.Dropdown(models, value=models[0][1], label="Model", elem_id="model")
        weighting = gr.Dropdown(
            [("by the queries, as in the paper", "paper"), ("none", "none"),
             ("by the queries, in one consistent metric", "consistent")],
            value=PRESETS[START].weighting,
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
    return model, weighting, length
