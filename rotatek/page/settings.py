"""Settings as a form shows them: every option of every registered method as one widget's value, the
columns that they come to, and what they keep, in words.

The page alone says sparsity, a share that is dropped, where the options say `keep`. A plug-in's
options need no code here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Final

import gradio as gr

from rotatek.errors import SettingError
from rotatek.inputs.sampling import Sampling
from rotatek.methods.channels import RotateK
from rotatek.methods.channels.bits import DEFAULT_TIMES
from rotatek.methods.channels.what_if import WhatIf
from rotatek.methods.options import Option, channels_kept, flat, options_of, tokens_kept
from rotatek.methods.settings import REGISTRIES, Settings, at_budget, pruners, titled
from rotatek.page.binding import AT_ONCE, QUIET, Shown, Widgets
from rotatek.service.model_list import presets
from rotatek.service.service import Run
from viz.theme import percent

WIDTH: Final = 128  # channels of a Key until a run says otherwise; so in the first embedded model
RIVALS: Final = {"full": "Dropped tokens alone"}  # what a column is called whose method has no name
MOST_OTHERS: Final = 8
MOST_HEADS: Final = 16
WHAT_IF: Final = re.compile(r"(leave|only):(\d{1,3})\.(\d{1,3})")
# Names of what else a request has; an option of such a flat name can be set in Python only.
RESERVED: Final = (
    "tokens", "channels", "image", "question", "model", "max_new_tokens", "session", "run", "count",
    "others", "suggestions", "presets", "status", "at_layer", "at_head", "at_step", "map_shows",
    "temperature", "top_p", "seed",
)  # fmt: skip
TOP: Final = 3  # likeliest tokens that are noted of each step


@dataclass(frozen=True)
class Field:
    """One flat name of the options of a registry, "tokens" or "channels", as the first of the
    methods `owners` declares it; the choices are those of all of them."""

    kind: str
    option: Option
    owners: tuple[str, ...]

    @property
    def is_shared(self) -> bool:
        """Whether links may set it: a path names a file of this machine."""
        return self.option.kind != "path" and self.option.key not in RESERVED

    @property
    def is_share(self) -> bool:
        """Whether it is a kept share, which the page shows as sparsity."""
        return self.option.kind == "fraction"

    @property
    def is_main(self) -> bool:
        """Whether it is the share that is always shown beside the menu of methods."""
        return self.option.place == "main" and self.is_share

    def is_visible(self, methods: Mapping[str, str]) -> bool:
        """Whether it is shown while `methods` are chosen: with its owners, a main share always."""
        return self.is_main or methods[self.kind] in self.owners

    def turned(self, value: Any) -> Any:
        """An option's value as its widget has it, and back; what is odd stays, for `Settings` to
        refuse."""
        if self.is_share and isinstance(value, int | float) and not isinstance(value, bool):
            return round(1.0 - value, 6)
        return 0.0 if self.option.is_optional and value is None else value


def fields() -> dict[str, Field]:
    """Every flat name of every registered option."""
    found = {}
    for kind, registry in REGISTRIES.items():
        for key, owners in registry.options().items():
            choices = dict(pair for _, one in owners for pair in one.choices)
            option = replace(owners[0][1], choices=tuple(choices.items()))
            found[key] = Field(kind, option, tuple(method.name for method, _ in owners))
    return found


def shown_fields() -> dict[str, Field]:
    """Those that have a widget."""
    return {k: one for k, one in fields().items() if one.is_shared and one.option.place != "hidden"}


def settings_of(values: Mapping[str, Any]) -> Settings:
    """The settings that a form's values come to: "tokens" and "channels", and by its flat name what
    each option's widget shows. What neither chosen method has is left out.

    Raises:
        SettingError: for a name or a value that there is not.
    """
    chosen = {kind: values[kind] for kind in REGISTRIES}
    given = {
        key: field.turned(values[key])
        for key, field in shown_fields().items()
        if key in values and chosen[field.kind] in field.owners
    }
    return Settings.from_dict(chosen | given)


def sampling_of(temperature: Any, seed: Any) -> Sampling:
    """How tokens are chosen, by the values of a slider and of a number box; empty, it is None.

    Raises:
        SettingError: for a value out of range.
    """
    if isinstance(seed, float) and seed.is_integer():
        seed = int(seed)
    return Sampling(temperature=temperature or 0.0, seed=seed, top_logprobs=TOP)


def values_of(settings: Settings) -> dict[str, Any]:
    """The inverse of `settings_of`: what every widget must show for `settings`; a share that no
    chosen method has drops nothing."""
    given = settings.as_dict()
    shown = {kind: given[kind] for kind in REGISTRIES}
    for key, field in shown_fields().items():
        usual = 1.0 if field.is_share else field.option.default
        shown[key] = field.turned(given.get(key, usual))
    return shown


def changed(settings: Settings) -> dict[str, Any]:
    """The flat names whose values differ from those of `Settings()` and of their own options."""
    usual, given = Settings(), {}
    for kind in REGISTRIES:
        method = getattr(settings, kind)
        if method.name != getattr(usual, kind).name:
            given[kind] = method.name
        defaults = {one.key: one.default for one in options_of(method)}
        given |= {key: value for key, value in flat(method).items() if value != defaults[key]}
    return given


def columns_of(
    chosen: Settings,
    times: float = DEFAULT_TIMES,
    others: Sequence[str] = (),
    what_if: Sequence[str] = (),
) -> dict[str, Settings]:
    """The page's columns: uncompressed, the chosen settings, `times` smaller, and what is asked
    for beside them.

    Args:
        others: names of channel methods, each in its paper's form at the budget of `chosen`.
        what_if: codes of heads (`what_ifs`).

    Raises:
        SettingError: for a name or a number that there is not.
    """
    pruner = chosen.tokens if chosen.prunes_tokens else pruners()[0]()
    rivals = [at_budget(chosen, pruner, name) for name in others[:MOST_OTHERS]]
    return titled(chosen, [Settings.of(smaller=times), *rivals, *what_ifs(chosen, what_if)])


def what_ifs(chosen: Settings, codes: Sequence[str]) -> list[Settings]:
    """The column of "what if", or none, with the rotation and width of `chosen`.

    Args:
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


def boxes(codes: Sequence[str]) -> Any:
    """Chosen heads as boxes, all ticked; unseen while there are none."""
    said = {"only": "Only layer {}, head {}", "leave": "Layer {}, head {} whole"}
    parts = ((code, *code.partition(":")) for code in codes)
    choices = [(said[kind].format(*at.split(".")), code) for code, kind, _, at in parts]
    return gr.update(choices=choices, value=list(codes), visible=bool(codes))


def readings(
    settings: Settings, times: float = DEFAULT_TIMES, tokens: int | None = None, width: int = WIDTH
) -> Shown:
    """What the settings keep of a picture's visual tokens, if known, and of a Key's width, as HTML
    by the names of widgets."""
    share, method = settings.tokens.kept_share, settings.channels
    if share == 1:
        kept = f"all {tokens} tokens" if tokens else "every visual token"
    elif tokens:
        kept = f"{tokens_kept(tokens, share)} of {tokens} tokens"
    else:
        kept = f"{percent(share)} of the visual tokens"
    some = f"{channels_kept(width, method.key_share)} of {width} channels"
    channels = f"keeps {f'all {width} channels' if method.stores_everything else some}"
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
    shown = " ".join(widgets.groups["form"])
    set_all = widgets["preset"].input
    widgets.listen(set_all, lambda preset: values_of(presets()[preset]), shown, **QUIET)
