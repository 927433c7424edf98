"""The settings as widgets: budgets of the paper, sliders with their readings, what is rare."""

from typing import Any, NamedTuple

import gradio as gr

from rotatek.channels import CHANNELS
from rotatek.config import Limits
from rotatek.page import cards
from rotatek.page.choices import PRESETS, START
from rotatek.page.handlers import WIDTH, preset_settings
from rotatek.tokens import TOKENS


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
