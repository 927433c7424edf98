"""The settings as widgets: a share a registry, methods, and every other option.

All of it is made from the registries: a method that another package adds is in its menu, and its
options have widgets, without a line of this file.
"""

from collections.abc import Sequence
from typing import Any, Final

import gradio as gr

from rotatek.inputs.limits import Limits
from rotatek.inputs.sampling import HOTTEST
from rotatek.methods.settings import REGISTRIES, Settings
from rotatek.page.ask.settings import readings
from rotatek.page.form import Field, shown_fields, values_of
from rotatek.service.model_list import presets

TOPS: Final = {"tokens": 0.95, "channels": 0.97}  # the most that is dropped of them


class Controls:
    """Every widget of the settings, by name: the sliders first, `add_drawers` makes the others.

    Args:
        start: what they show at first.

    Attributes:
        methods: a menu each of token pruners and channel methods, by the registry's name.
        options: the widget of every option that the page shows, by its flat name.
        fields: what those options are, by the same names.
        readings: what the settings keep, in words: "tokens", "channels", "budget".
        presets: budgets that set them all.
        every: the button that adds a column of every method, at one nominal budget.
        pin: the button that adds the present settings as one.
        others: further columns, as text of `links.encode`.
        model: which model answers.
        length: how long an answer may be.
        temperature: of sampling; 0 is greedy.
        seed: of the draws; empty for new ones.
    """

    def __init__(self, start: Settings) -> None:
        self.values, self.fields = values_of(start), shown_fields()
        self.methods: dict[str, gr.Dropdown] = {}
        self.options: dict[str, Any] = {}
        self.readings: dict[str, gr.HTML] = {}
        said = readings(start)
        with gr.Row(elem_id="sliders"):
            for kind in REGISTRIES:
                with gr.Column(min_width=200, elem_classes="rk-panel"):
                    self._add(lambda f, kind=kind: f.is_main and f.kind == kind)
                    self.readings[kind] = gr.HTML(said[kind], elem_id=f"{kind[:-1]}-reading")
        self.readings["budget"] = gr.HTML(said["budget"], elem_id="budget-reading")

    def add_drawers(self, models: Sequence[tuple[str, str]]) -> None:
        """All other controls, in two drawers that are closed at first.

        models: (label, name) of each on offer, the default first.
        """
        with gr.Row(elem_id="drawers"):
            with gr.Accordion("Methods", open=False, elem_id="setup"):
                self._add_methods()
            with gr.Accordion("Model and length", open=False, elem_id="more"):
                self._add_model_and_length(models)

    def _add_methods(self) -> None:
        """Presets, the methods with their options, and what is answered beside them."""
        self.presets = gr.Radio(
            list(presets()), value=next(iter(presets())), label="Presets", elem_id="presets"
        )
        with gr.Row():
            for kind, registry in REGISTRIES.items():
                self.methods[kind] = gr.Dropdown(
                    [(method.label, key) for key, method in registry.items()],
                    value=self.values[kind],
                    label=f"{kind[:-1].capitalize()} method",
                    elem_id=kind,
                )
        with gr.Row(elem_id="options"):
            self._add(lambda field: True)
        with gr.Row(elem_id="columns"):
            self.every = gr.Button("Compare all methods at this budget", size="sm", elem_id="every")
            self.pin = gr.Button("Keep these settings as a column", size="sm", elem_id="pin")
        self.others = gr.CheckboxGroup(
            [], label="Also answered side by side", visible=False, elem_id="others"
        )

    def _add_model_and_length(self, models: Sequence[tuple[str, str]]) -> None:
        """Answers are greedy until the temperature is moved."""
        self.model = gr.Dropdown(list(models), value=models[0][1], label="Model", elem_id="model")
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
    def length_and_chance(self) -> dict[str, Any]:
        """The length and sampling of an answer, by the names that the events take."""
        return {
            "max_new_tokens": self.length, "temperature": self.temperature, "seed": self.seed
        }  # fmt: skip

    def _add(self, wanted: Any) -> None:
        """The widgets of fields that are wanted and not made yet."""
        for key, field in self.fields.items():
            if key not in self.options and wanted(field):
                self.options[key] = self._widget(field)

    def _widget(self, field: Field) -> Any:
        """A slider, menu or number, as the option's kind asks for."""
        one, value = field.option, self.values[field.key]
        shown: dict[str, Any] = {
            "label": one.label,
            "elem_id": field.key.replace("_", "-"),
            "visible": field.is_visible(self.values),
        }
        if field.is_main:
            shown["elem_id"] = f"{field.kind[:-1]}-sparsity"
        if field.is_share:
            return gr.Slider(0, TOPS[field.kind], value, step=0.01, buttons=[], **shown)
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
