"""The settings as widgets: budgets, a method and its share each, and every other option.

All of it is made from the registries: a method that another package adds is in its menu, and its
options have widgets, without a line of this file.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import gradio as gr

from rotatek.inputs.limits import Limits
from rotatek.inputs.sampling import HOTTEST
from rotatek.methods.settings import REGISTRIES, Settings
from rotatek.page import markup
from rotatek.page.ask.settings_summary import (
    beyond_reading,
    budget_reading,
    channel_reading,
    token_reading,
)
from rotatek.page.form import Field, shown_fields, values_of
from rotatek.service.model_list import presets

TOPS: Final = {"channels": 0.97}  # the most that is dropped of them; else `TOP`
TOP: Final = 0.95
BEYOND: Final = (
    "The paper compresses Keys by one width for all heads. Beyond it, Values can be rotated and "
    "cut too, each head can get the channels that its spectrum earns under the same budget, and "
    "what is left can be stored in 8 bits. Nominal shares count channels, not bits; on a small "
    "image the bases can weigh more than they save, which the bytes show."
)


class Controls:
    """Every widget of the settings, by name: the sliders first, `add_drawers` makes the others.

    Args:
        start: what they show at first.

    Attributes:
        methods: a menu each of token pruners and channel methods, by the registry's name.
        options: the widget of every option that the page shows, by its flat name.
        fields: what those options are, by the same names.
        readings: what the settings keep, in words: "tokens", "channels", "budget", "beyond".
        presets: budgets that set them all.
        every: the button that adds a column of every method, at one nominal budget.
        alike: the one that adds them at the live bytes that these settings take.
        pin: the button that adds the present settings as one.
        others: further columns, as text of `links.encode`.
        model: which model answers.
        length: how long an answer may be.
        temperature: of sampling; 0 is greedy.
        seed: of the draws; empty for new ones.
    """

    def __init__(self, start: Settings) -> None:
        self.start, self.values, self.fields = start, values_of(start), shown_fields()
        self.methods: dict[str, gr.Dropdown] = {}
        self.options: dict[str, Any] = {}
        self.readings: dict[str, gr.HTML] = {}
        with gr.Row(elem_id="sliders"):
            self.panel("tokens", token_reading(start, None))
            self.panel("channels", channel_reading(start))
        self.reading("budget", budget_reading(start))

    def add_drawers(self, models: Sequence[tuple[str, str]]) -> None:
        """All other controls, in drawers that are closed at first.

        models: (label, name) of each on offer, the default first.
        """
        with gr.Row(elem_id="drawers"):
            with gr.Accordion("Budgets and methods", open=False, elem_id="setup"):
                self._add_budgets_and_methods()
            with gr.Accordion("Beyond the paper", open=False, elem_id="beyond"):
                gr.HTML(markup.aside(BEYOND))
                with gr.Column(elem_classes="rk-panel"):
                    self.place("beyond")
                    self.reading("beyond", beyond_reading(self.start), "value-reading")
            with gr.Accordion("Model and length", open=False, elem_id="more"):
                self._add_model_and_length(models)

    def _add_budgets_and_methods(self) -> None:
        """Budgets of the paper, the methods, and what is answered beside them."""
        self.presets = gr.Radio(
            list(presets()),
            value=next(iter(presets())),
            label="Budget: share of the visual KV cache that is kept",
            elem_id="presets",
        )
        with gr.Row():
            for kind in REGISTRIES:
                self.menu(kind)
        self.place("main")
        with gr.Row(elem_id="columns"):
            self.every = gr.Button("Compare all methods at this budget", size="sm", elem_id="every")
            self.alike = gr.Button(
                "Compare all methods at these live bytes", size="sm", elem_id="alike"
            )
            self.pin = gr.Button("Keep these settings as a column", size="sm", elem_id="pin")
        self.others = gr.CheckboxGroup(
            [], label="Also answered side by side", visible=False, elem_id="others"
        )

    def _add_model_and_length(self, models: Sequence[tuple[str, str]]) -> None:
        """Answers are greedy until the temperature is moved."""
        self.model = gr.Dropdown(list(models), value=models[0][1], label="Model", elem_id="model")
        self.place("more")
        limits = Limits()
        self.length = gr.Slider(
            16,
            limits.max_new_tokens,
            limits.kept_answer_tokens,
            step=16,
            label="Longest answer, in tokens",
            buttons=[],
            elem_id="length",
        )
        self.temperature = gr.Slider(
            0,
            HOTTEST,
            0,
            step=0.05,
            label="Temperature: 0 takes the likeliest token, 1 draws as the model says",
            buttons=[],
            elem_id="temperature",
        )
        self.seed = gr.Number(
            None,
            precision=0,
            label="Seed of the draws, the same for every column; empty for a new one",
            elem_id="seed",
        )

    @property
    def inputs(self) -> dict[str, Any]:
        """The widgets that make up the settings, by the names that `form.settings_of` takes."""
        return {**self.methods, **self.options}

    @property
    def budgeted(self) -> dict[str, Any]:
        """Those that a preset sets: methods, their shares, and what is beyond the paper."""
        rare = {key for key, field in self.fields.items() if field.option.place == "more"}
        return {name: widget for name, widget in self.inputs.items() if name not in rare}

    @property
    def length_and_chance(self) -> dict[str, Any]:
        """The length and sampling of an answer, by the names that the events take."""
        return {
            "max_new_tokens": self.length, "temperature": self.temperature, "seed": self.seed
        }  # fmt: skip

    def panel(self, kind: str, reading: str) -> None:
        """The share of one registry's methods, and what it keeps."""
        with gr.Column(min_width=200, elem_classes="rk-panel"):
            self.place("main", kind)
            self.reading(kind, reading, f"{kind.removesuffix('s')}-reading")

    def menu(self, kind: str) -> None:
        """The methods of one registry."""
        self.methods[kind] = gr.Dropdown(
            [(method.label, key) for key, method in REGISTRIES[kind].items()],
            value=self.values[kind],
            label=f"{kind.removesuffix('s').capitalize()} method",
            elem_id=kind,
        )

    def place(self, place: str, kind: str | None = None) -> None:
        """The widgets of one place that are not made yet; sliders come first.

        Args:
            place: as the options name it.
            kind: the registry whose shares are meant; None: what is left of all of them.
        """
        for key, field in sorted(self.fields.items(), key=lambda pair: not pair[1].is_share):
            wanted = kind is None or (kind == field.kind and field.is_share)
            if field.option.place == place and wanted and key not in self.options:
                self.options[key] = self.widget(field)

    def reading(self, name: str, html: str, elem_id: str | None = None) -> None:
        """Where the settings are put in words."""
        self.readings[name] = gr.HTML(html, elem_id=elem_id or f"{name}-reading")

    def widget(self, field: Field) -> Any:
        """A slider, box, menu or number, as the option's kind asks for."""
        one, value = field.option, self.values[field.key]
        shown: dict[str, Any] = {
            "label": one.label,
            "elem_id": field.key.replace("_", "-"),
            "visible": is_visible(field, {k: self.values[k] for k in REGISTRIES}),
        }
        if field.is_main:
            shown["elem_id"] = f"{field.kind.removesuffix('s')}-sparsity"
        if field.is_share:
            top = TOPS.get(field.kind, TOP) if field.is_main else TOP
            return gr.Slider(0, top, value, step=0.01, buttons=[], **shown)
        if field.is_switch:
            shown["label"] = f"{one.label}: {dict(one.choices)[one.values[1]]}"
            return gr.Checkbox(value, **shown)
        if one.kind == "choice":
            menu = [(words, name) for name, words in one.choices]
            return gr.Dropdown(menu, value=value, **shown)
        if one.kind == "integer":
            return gr.Number(value, precision=0, minimum=one.low, info=one.help, **shown)
        low, high = one.low or 0.0, one.high or 1.0
        step = (high - low) / 100
        if one.is_optional:  # 0 leaves it out
            low, step = 0.0, low
        return gr.Slider(low, high, value, step=step, info=one.help, buttons=[], **shown)


def is_visible(field: Field, methods: Mapping[str, str]) -> bool:
    """Whether an option is shown while `methods` are chosen: its own, or a main share always."""
    return field.is_main or methods[field.kind] in field.owners
