"""What the settings keep, in words; what their controls do; and the columns they come to."""

import re
from collections.abc import Sequence
from html import escape
from typing import Any, Final

import gradio as gr

from rotatek.errors import SettingError
from rotatek.methods.channels import RotateK
from rotatek.methods.channels.bits import DEFAULT_TIMES
from rotatek.methods.channels.what_if import WhatIf
from rotatek.methods.columns import at_budget, pruners, titled
from rotatek.methods.settings import Settings
from rotatek.methods.shares import channels_kept, tokens_kept
from rotatek.page.binding import AT_ONCE, QUIET, Shown, Widgets
from rotatek.page.form import settings_of, shown_fields, values_of
from rotatek.service.model_list import presets
from rotatek.service.run import Run
from viz.theme import percent

WIDTH: Final = 128  # channels of a Key until a run says otherwise; so in the first embedded model
RIVALS: Final = {"full": "Dropped tokens alone"}  # what a column is called whose method has no name
MOST_OTHERS: Final = 8
MOST_HEADS: Final = 16
WHAT_IF: Final = re.compile(r"(leave|only):(\d{1,3})\.(\d{1,3})")


def columns_of(
    chosen: Settings,
    times: float = DEFAULT_TIMES,
    others: Sequence[str] = (),
    what_if: Sequence[str] = (),
) -> dict[str, Settings]:
    """The page's columns: uncompressed, the chosen settings, `times` smaller, and what is asked
    for beside them.

    Args:
        chosen: of the form.
        times: how many times smaller the third column's visual tokens become.
        others: names of channel methods, each in its paper's form at the budget of `chosen`.
        what_if: codes of heads (`what_ifs`).

    Raises:
        SettingError: for a name or a number that there is not.
    """
    pruner = chosen.tokens if chosen.prunes_tokens else pruners()[0]()
    rivals = [at_budget(chosen, pruner, name) for name in others[:MOST_OTHERS]]
    return titled(chosen, [Settings.of(smaller=times), *rivals, *what_ifs(chosen, what_if)])


def what_ifs(chosen: Settings, codes: Sequence[str]) -> list[Settings]:
    """The column of "what if", or none.

    Args:
        chosen: whose rotation and width a compressed head has.
        codes: `leave:3.1` leaves head 1 of layer 3 whole in the chosen settings, `only:3.1`
            compresses it alone; all of one kind.

    Raises:
        SettingError: for another code.
    """
    if not codes:
        return []
    found = [WHAT_IF.fullmatch(code) for code in codes[:MOST_HEADS]]
    kinds = {one and one[1] for one in found}
    if None in kinds or len(kinds) > 1:
        raise SettingError("what_if", "heads such as leave:3.1, or only:3.1", list(codes))
    heads = frozenset((int(one[2]), int(one[3])) for one in found if one)
    like = chosen.channels if isinstance(chosen.channels, RotateK) else RotateK()
    if kinds == {"leave"}:
        return [Settings(chosen.tokens, WhatIf(like.of_paper(), heads, whole=True))]
    return [Settings(channels=WhatIf(like.of_paper(), heads))]


def head_label(code: str) -> str:
    """A head's code in words."""
    kind, _, place = code.partition(":")
    layer, _, head = place.partition(".")
    return f"{'Only layer' if kind == 'only' else 'Layer'} {layer}, head {head}" + (
        " whole" if kind == "leave" else ""
    )


def boxes(codes: Sequence[str]) -> Any:
    """Chosen heads as boxes, all ticked; unseen while there are none."""
    choices = [(head_label(code), code) for code in codes]
    return gr.update(choices=choices, value=list(codes), visible=bool(codes))


def readings(
    settings: Settings, times: float = DEFAULT_TIMES, tokens: int | None = None, width: int = WIDTH
) -> Shown:
    """What the settings keep, as HTML, by the names of widgets.

    Args:
        settings: of the controls.
        times: of the third column.
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
    else:
        channels = f"keeps {channels_kept(width, method.key_share)} of {width} channels"
    said = {
        "tokens_reading": f"keeps {kept}",
        "channels_reading": f"{channels}: {percent(settings.nominal_kv)} of the visual KV cache",
        "times_reading": f"keeps all tokens, in {percent(1 / times)} of the visual KV cache",
    }
    return {name: f'<p class="rk-reading">{escape(text)}</p>' for name, text in said.items()}


def dropped(settings: Settings) -> str:
    """`60 % of tokens dropped, 75 % of Key channels dropped`."""
    method, shares = settings.channels, {"tokens": settings.tokens.kept_share}
    if method.times_smaller is None:
        shares["Key channels"] = method.key_share
    parts = [f"{percent(1 - kept)} of {what} dropped" for what, kept in shares.items() if kept < 1]
    if method.times_smaller is not None:
        parts.append("rotated channels, each with the bits it earns")
    if isinstance(method, WhatIf):
        kept = f"{percent(method.like.key_share)} of its channels"
        which = "every other head" if method.whole else "each of these heads"
        parts.append(f"Keys of {which} rebuilt from {kept}, at full width")
    return ", ".join(parts) or method.form or "nothing dropped"


def read(times: float, count: int | None, run: Run | None, **form: Any) -> Shown:
    """What the settings keep, in words."""
    layers = run.trace.layers if run is not None and run.trace is not None else ()
    width = next((int(layer.keys.shape[-1]) for layer in layers), WIDTH)
    return readings(settings_of(form), times, count, width)


def choose_methods(tokens: str, channels: str) -> Shown:
    """Show the options of the chosen methods, and no others."""
    methods = {"tokens": tokens, "channels": channels}
    return {
        key: gr.update(visible=field.is_visible(methods))
        for key, field in shown_fields().items()
        if not field.is_main
    }


def preset(preset: str) -> Shown:
    """A budget of the paper, or a method's own form."""
    return values_of(presets()[preset])


def wire_settings(widgets: Widgets) -> None:
    """Readings follow the controls, methods show their options, presets set them all."""
    form = [widgets[name] for name in widgets.groups["form"]]
    changed = [widget.change for widget in (*form, *map(widgets.get, ("times", "count", "run")))]
    last = AT_ONCE | {"trigger_mode": "always_last"}
    widgets.listen(changed, read, "tokens_reading channels_reading times_reading", **last)
    chosen = [widgets[name].change for name in ("tokens", "channels")]
    further = (key for key, field in shown_fields().items() if not field.is_main)
    widgets.listen(chosen, choose_methods, " ".join(further), **AT_ONCE)
    moved = [widget.input for widget in form]
    gr.on(moved, None, None, widgets["preset"], js="() => null", **QUIET)
    widgets.listen(widgets["preset"].input, preset, " ".join(widgets.groups["form"]), **QUIET)
