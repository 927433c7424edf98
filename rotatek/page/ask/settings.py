"""What the settings keep, in words; and what their controls do: presets, options, columns."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

import gradio as gr

from rotatek.compare.columns import matched, title_of
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings
from rotatek.methods.shares import channels_kept, tokens_kept
from rotatek.page.binding import AT_ONCE, QUIET, listen
from rotatek.page.form import settings_of, shown_fields, values_of
from rotatek.page.links import decode, encode
from rotatek.page.user_errors import refusing
from rotatek.service.model_list import presets
from rotatek.service.run import Run
from viz.theme import percent

WIDTH: Final = 128  # channels of a Key until a run says otherwise; so in the first embedded model
MOST_OTHERS: Final = max(4, len(CHANNELS))  # columns beside the uncompressed one and the settings'
Shown = dict[str, Any]  # what changes, by the names of the outputs


def readings(settings: Settings, tokens: int | None = None, width: int = WIDTH) -> dict[str, str]:
    """What the settings keep, as HTML: "tokens", "channels", "budget".

    Args:
        settings: of the controls.
        tokens: visual tokens of the picture, if known.
        width: channels of a Key.
    """
    share, method = settings.tokens.kept_share, settings.channels
    if tokens:
        count = tokens_kept(tokens, share)
        kept = f"{count} of {tokens} tokens" if share < 1 else f"all {tokens} tokens"
    else:
        kept = f"{percent(share)} of the visual tokens" if share < 1 else "every visual token"
    if method.stores_everything:
        channels = f"keeps all {width} channels"
    elif method.times_smaller is not None:
        channels = f"becomes {method.times_smaller:g} times smaller, Values too"
    else:
        channels = f"keeps {channels_kept(width, method.key_share)} of {width} channels"
    return {
        "tokens": f'<p class="rk-reading">{escape(f"keeps {kept}")}</p>',
        "channels": f'<p class="rk-reading">{escape(channels)}</p>',
        "budget": f'<p class="rk-budget"><b>{percent(settings.nominal_kv)}</b> of the visual KV '
        "cache, nominally; the answer says what it takes</p>",
    }


def dropped(settings: Settings) -> str:
    """`60 % of tokens dropped, 75 % of Key channels dropped`."""
    method, shares = settings.channels, {"tokens": settings.tokens.kept_share}
    if method.times_smaller is None:
        shares["Key channels"] = method.key_share
    parts = [f"{percent(1 - kept)} of {what} dropped" for what, kept in shares.items() if kept < 1]
    if method.times_smaller is not None:
        parts.append(f"{method.times_smaller:g} times smaller")
    return ", ".join(parts) or "nothing dropped"


@refusing
def read(count: int | None, run: Run | None, **form: Any) -> Shown:
    """What the settings keep, in words. Changes: `Controls.readings`."""
    layers = run.trace.layers if run is not None and run.trace is not None else ()
    width = next((int(layer.keys.shape[-1]) for layer in layers), WIDTH)
    return readings(settings_of(form), count, width)


@refusing
def choose_methods(tokens: str, channels: str) -> Shown:
    """Show the options of the chosen methods, and no others. Changes: `Controls.options`."""
    methods = {"tokens": tokens, "channels": channels}
    return {
        key: gr.update(visible=field.is_visible(methods))
        for key, field in shown_fields().items()
        if not field.is_main
    }


@refusing
def preset(label: str) -> Shown:
    """A budget of the paper, or a method's own form. Changes: `Controls.budgeted`."""
    return values_of(presets()[label])


@refusing
def every(**form: Any) -> Shown:
    """Every method at the budget of the present settings. Changes: others."""
    chosen = settings_of(form)
    found = dict.fromkeys(matched(chosen).values())
    return {"others": columns_shown(s for s in found if not s.is_baseline and s != chosen)}


@refusing
def pin(others: Sequence[str], **form: Any) -> Shown:
    """The present settings beside those already kept. Changes: others."""
    kept = [*map(decode, others), settings_of(form)]
    if kept[-1].is_baseline:
        gr.Info("The uncompressed answer is always there.", duration=4)
        return {}
    return {"others": columns_shown(list(dict.fromkeys(kept))[-MOST_OTHERS:])}


@refusing
def unpin(others: Sequence[str]) -> Shown:
    """A column was taken off. Changes: others."""
    return {"others": columns_shown(decode(code) for code in others)}


def columns_shown(columns: Iterable[Settings]) -> Any:
    """Further columns as a group of boxes, all ticked; unseen while there are none."""
    choices = [(f"{title_of(one)}, {percent(one.nominal_kv)}", encode(one)) for one in columns]
    codes = [code for _, code in choices]
    return gr.update(choices=choices, value=codes, visible=bool(codes))


def wire_settings(controls: Any, count: gr.State, run: gr.State) -> None:
    """Readings follow the controls (`ask.controls.Controls`), methods show their options, presets
    set them; columns are added and taken off."""
    state = {"count": count, "run": run}
    changed = [widget.change for widget in (*controls.inputs.values(), count, run)]
    last = AT_ONCE | {"trigger_mode": "always_last"}
    listen(changed, read, state | controls.inputs, controls.readings, **last)
    chosen = [menu.change for menu in controls.methods.values()]
    further = {key: w for key, w in controls.options.items() if not controls.fields[key].is_main}
    listen(chosen, choose_methods, controls.methods, further, **AT_ONCE)
    moved = [widget.input for widget in controls.inputs.values()]
    gr.on(moved, None, None, controls.presets, js="() => null", **QUIET)
    listen(controls.presets.input, preset, {"label": controls.presets}, controls.inputs, **QUIET)
    others = {"others": controls.others}
    listen(controls.every.click, every, controls.inputs, others, **AT_ONCE)
    listen(controls.pin.click, pin, others | controls.inputs, others, **AT_ONCE)
    listen(controls.others.input, unpin, others, others, **AT_ONCE)
