"""Settings as a form shows them: every option of every registered method as one widget's value.

The page alone says sparsity, a share that is dropped, where the options say `keep`. An option
declares its own label, help and choices, so that a plug-in's options need no code here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rotatek.inputs.sampling import Sampling
from rotatek.methods.options import Option, flat, options_of
from rotatek.methods.settings import REGISTRIES, Settings

# Names of what else a request has; an option of such a flat name can be set in Python only.
RESERVED: Final = (
    "tokens", "channels", "image", "question", "model", "max_new_tokens", "session", "run", "count",
    "others", "suggestions", "presets", "status", "at_layer", "at_head", "at_step", "map_shows",
    "temperature", "top_p", "seed",
)  # fmt: skip

TOP: Final = 3  # likeliest tokens that are noted of each step


@dataclass(frozen=True)
class Field:
    """One flat name of a registry's options.

    Args:
        kind: the registry: "tokens" or "channels".
        option: as the first method that has it declares it; the choices are those of all of them.
        owners: names of the methods that have it.
    """

    kind: str
    option: Option
    owners: tuple[str, ...]

    @property
    def key(self) -> str:
        """The flat name."""
        return self.option.key

    @property
    def is_shown(self) -> bool:
        """Whether the page has a widget for it."""
        return self.option.place != "hidden" and self.is_shared

    @property
    def is_shared(self) -> bool:
        """Whether links may set it: a path names a file of this machine."""
        return self.option.kind != "path" and self.key not in RESERVED

    @property
    def is_share(self) -> bool:
        """Whether it is a kept share, which the page shows as sparsity."""
        return self.option.kind == "fraction"

    @property
    def is_main(self) -> bool:
        """Whether it is the share that is always shown beside the menu of methods."""
        return self.option.place == "main" and self.is_share

    @property
    def idle(self) -> Any:
        """What the widget shows while no chosen method has the option."""
        return 0.0 if self.is_share else self.shown(self.option.default)

    def is_visible(self, methods: Mapping[str, str]) -> bool:
        """Whether it is shown while `methods` are chosen: with its owners, a main share always."""
        return self.is_main or methods[self.kind] in self.owners

    def shown(self, value: Any) -> Any:
        """An option's value as its widget has it."""
        if self.is_share:
            return round(1.0 - value, 6)
        if self.option.is_optional and value is None:
            return 0.0
        return value

    def read(self, value: Any) -> Any:
        """A widget's value as the option takes it; what is odd stays, for `Settings` to refuse."""
        if self.is_share and isinstance(value, int | float) and not isinstance(value, bool):
            return round(1.0 - value, 6)
        return value


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
    return {key: field for key, field in fields().items() if field.is_shown}


def settings_of(values: Mapping[str, Any]) -> Settings:
    """The settings that a form's values come to.

    Args:
        values: "tokens" and "channels", and by its flat name what each option's widget shows. What
            neither chosen method has is left out.

    Raises:
        SettingError: for a name or a value that there is not.
    """
    chosen = {kind: values[kind] for kind in REGISTRIES}
    given = {
        key: field.read(values[key])
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
    """The inverse of `settings_of`: what every widget must show for `settings`."""
    given = settings.as_dict()
    options = {
        key: field.shown(given[key]) if key in given else field.idle
        for key, field in shown_fields().items()
    }
    return {kind: given[kind] for kind in REGISTRIES} | options


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
