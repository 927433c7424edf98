"""Handlers of the settings: readings, widgets of the chosen method, further columns."""

from collections.abc import Iterable, Sequence
from typing import Any

import gradio as gr

from rotatek.compare.columns import matched, title_of
from rotatek.compare.equal_bytes import matched_live
from rotatek.compare.report import VISUAL
from rotatek.inspect import trace_analysis
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings
from rotatek.page.ask.controls import is_visible
from rotatek.page.ask.events import Shown, most_others
from rotatek.page.ask.settings_summary import (
    WIDTH,
    beyond_reading,
    budget_reading,
    channel_reading,
    token_reading,
)
from rotatek.page.ask.widgets import AskWidgets
from rotatek.page.binding import AT_ONCE, QUIET, listen
from rotatek.page.form import settings_of, shown_fields, values_of
from rotatek.page.inspect import drawings
from rotatek.page.links import decode, encode
from rotatek.page.user_errors import refusing
from rotatek.service.model_list import presets
from rotatek.service.run import Run
from viz.theme import percent


@refusing
def read(count: int | None, run: Run | None, **form: Any) -> Shown:
    """What the settings keep, in words. Changes: `Controls.readings`."""
    settings, width = settings_of(form), full_width(run)
    return {
        "tokens": token_reading(settings, count),
        "channels": channel_reading(settings, width),
        "budget": budget_reading(settings, predicted(run, settings)),
        "beyond": beyond_reading(settings, width, head_widths(run, settings)),
    }


def full_width(run: Run | None) -> int:
    """Channels of a Key in the model that answered last."""
    layers = run.trace.layers if run is not None and run.trace is not None else ()
    return next((int(layer.keys.shape[-1]) for layer in layers), WIDTH)


def predicted(run: Run | None, settings: Settings) -> tuple[int, int] | None:
    """Bytes that the last answer's cache would hold under `settings`, and those of a full one."""
    trace, done = (None, None) if run is None else (run.trace, run.chosen.finished)
    if run is None or trace is None or done is None:
        return None
    full, parts = done.metrics["kv_bytes_full"], done.metrics["bytes"]
    rest = sum(size for part, size in parts.items() if part not in VISUAL)
    method = settings.channels  # widths that adapt follow from the spectra of a rotation
    energies = drawings.spectra(run, trace, method if method.rotates else CHANNELS.default())
    return rest + trace_analysis.visual_bytes(trace, settings, energies), full


def head_widths(run: Run | None, settings: Settings) -> tuple[int, int] | None:
    """The fewest and the most Key channels that a head of the run's image gets, if they differ."""
    method, trace = settings.channels, None if run is None else run.trace
    if run is None or trace is None or not (method.adapts and method.rotates):
        return None
    widths = drawings.key_widths(run, trace, method)
    return int(widths.min()), int(widths.max())


@refusing
def choose_methods(tokens: str, channels: str) -> Shown:
    """Show the options of the chosen methods, and no others. Changes: `Controls.options`."""
    methods = {"tokens": tokens, "channels": channels}
    return {
        key: gr.update(visible=is_visible(field, methods))
        for key, field in shown_fields().items()
        if not field.is_main
    }


@refusing
def preset(label: str) -> Shown:
    """A budget, and nothing else that is beyond the paper. Changes: `Controls.budgeted`."""
    return values_of(presets()[label])


@refusing
def every(**form: Any) -> Shown:
    """Every method at the budget of the present settings. Changes: others."""
    chosen = settings_of(form)
    found = dict.fromkeys(matched(chosen).values())
    return {"others": columns_shown(s for s in found if not s.is_baseline and s != chosen)}


@refusing
def alike(run: Run | None, **form: Any) -> Shown:
    """Every method at the live bytes of the settings on the last image. Changes: others."""
    chosen = settings_of(form)

    def weigh(settings: Settings) -> float:
        found = predicted(run, settings)
        return 0.0 if found is None else found[0]

    target = weigh(chosen)
    if not target:
        gr.Info("Ask first: what live bytes come to follows from the image.", duration=4)
        return {}
    found = dict.fromkeys(matched_live(chosen, target, weigh).values())
    others = [one for one in found if not one.is_baseline and one != chosen]
    return {"others": columns_shown(others[-most_others() :])}


@refusing
def pin(others: Sequence[str], **form: Any) -> Shown:
    """The present settings beside those already kept. Changes: others."""
    kept = [*map(decode, others), settings_of(form)]
    if kept[-1].is_baseline:
        gr.Info("The uncompressed answer is always there.", duration=4)
        return {}
    return {"others": columns_shown(list(dict.fromkeys(kept))[-most_others() :])}


@refusing
def unpin(others: Sequence[str]) -> Shown:
    """A column was taken off. Changes: others."""
    return {"others": columns_shown(decode(code) for code in others)}


def columns_shown(columns: Iterable[Settings]) -> Any:
    """Further columns as a group of boxes, all ticked; unseen while there are none."""
    choices = [
        (f"{title_of(settings)}, {percent(settings.nominal_kv)}", encode(settings))
        for settings in columns
    ]
    codes = [code for _, code in choices]
    return gr.update(choices=choices, value=codes, visible=bool(codes))


def wire_settings(widgets: AskWidgets) -> None:
    """Readings follow the controls; methods show their options; presets set them."""
    controls, place = widgets.controls, widgets.answers
    state = {"count": place.count, "run": place.run}
    changed = [widget.change for widget in (*controls.inputs.values(), place.count, place.run)]
    listen(
        changed,
        read,
        state | controls.inputs,
        controls.readings,
        trigger_mode="always_last",
        **AT_ONCE,
    )
    chosen = [menu.change for menu in controls.methods.values()]
    further = {key: w for key, w in controls.options.items() if not controls.fields[key].is_main}
    listen(chosen, choose_methods, controls.methods, further, **AT_ONCE)
    moved = [widget.input for widget in controls.budgeted.values()]
    gr.on(moved, None, None, controls.presets, js="() => null", **QUIET)
    listen(controls.presets.input, preset, {"label": controls.presets}, controls.budgeted, **QUIET)


def wire_columns(widgets: AskWidgets) -> None:
    """Further settings are put beside the present ones, and taken off again."""
    controls, others = widgets.controls, {"others": widgets.controls.others}
    listen(controls.every.click, every, controls.inputs, others, **AT_ONCE)
    state = {"run": widgets.answers.run}
    listen(controls.alike.click, alike, state | controls.inputs, others, **AT_ONCE)
    listen(controls.pin.click, pin, others | controls.inputs, others, **AT_ONCE)
    listen(controls.others.input, unpin, others, others, **AT_ONCE)
