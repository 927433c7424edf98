"""A visitor's settings: one token pruner and one channel method, each with its own options."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from rotatek.errors import SettingError, SettingRemoved, SettingUnknown
from rotatek.methods.channels import CHANNELS, ChannelMethod
from rotatek.methods.channels.base import Full
from rotatek.methods.channels.bits import DEFAULT_TIMES
from rotatek.methods.channels.rotatek import RotateK
from rotatek.methods.options import Method, Option, Registry, flat, options_of
from rotatek.methods.tokens import TOKENS, TokenPruner
from rotatek.methods.tokens.base import KeepAll

REGISTRIES: Final[Mapping[str, Registry]] = MappingProxyType(
    {"tokens": TOKENS, "channels": CHANNELS}
)
# What is no longer offered, and what to do instead: said wherever one of these names comes from.
_SMALLER: Final = "choose `smaller`, how many times fewer bytes the visual tokens take"
REMOVED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "allot": "layers always share one budget",
        "bits": _SMALLER,
        "cache_dtype": _SMALLER,
        "text_dtype": "text stays as the model computes it",
        "text_window": "text stays as the model computes it",
        "widths": _SMALLER,
        "values": f"{_SMALLER}, Values included",
        "keep_values": f"{_SMALLER}, Values included",
        "weighting=consistent": "choose `paper`, `none` or `general`",
        "tokens=adakv": "choose another pruner",
        "tokens=sparsevlm": "choose another pruner",
        "tokens=cdpruner": "choose another pruner",
    }
)


@dataclass(frozen=True)
class Settings:
    """One column of a comparison: which visual tokens stay, and how their channels are stored.

    Settings(tokens=FastV(keep=0.4), channels=RotateK(keep=0.25))
    Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=0.25)  # the same, by flat names
    """

    tokens: TokenPruner = field(default_factory=KeepAll)
    channels: ChannelMethod = field(default_factory=lambda: CHANNELS.default())

    def __post_init__(self) -> None:
        for name, base in (("tokens", TokenPruner), ("channels", ChannelMethod)):
            if not isinstance(getattr(self, name), base):
                expected = f"a {base.__name__}; by its name with Settings.of({name}=...)"
                raise SettingError(name, expected, getattr(self, name))

    @property
    def prunes_tokens(self) -> bool:
        """Whether any visual token may be dropped."""
        return self.tokens.kept_share < 1

    @property
    def pruning(self) -> TokenPruner:
        """Equal for settings that drop the same tokens."""
        return self.tokens if self.prunes_tokens else KeepAll()

    @property
    def is_baseline(self) -> bool:
        """Whether nothing at all is compressed: the plain transformers cache serves it."""
        return self.channels.stores_everything and not self.prunes_tokens

    @property
    def nominal_kv(self) -> float:
        """Share of the visual cache that is kept as the paper counts it, in (0, 1]: of tokens and
        channels; `RotateKCache.bytes` counts text, bases, masks and complete layers, too."""
        return self.tokens.kept_share * self.channels.nominal_share

    def as_dict(self) -> dict[str, Any]:
        """Both methods' names and options by their flat names, ready for JSON."""
        tokens, channels = self.tokens, self.channels
        own = {"tokens": tokens.name, **flat(tokens)}
        return own | {"channels": channels.name, **flat(channels)}

    @classmethod
    def of(cls, /, **given: Any) -> "Settings":
        """Settings by flat names, `tokens`, `channels`, and the options of the methods they name:
        as `from_dict`, which refuses an option that another one given here replaces."""
        return cls.from_dict(given, cls())

    @classmethod
    def from_dict(
        cls, given: Mapping[str, Any], usual: "Settings | None" = None, shared: bool = False
    ) -> "Settings":
        """The inverse of `as_dict`, and the one check of names and values from anywhere.

        An option that neither method has is refused, unless it changes nothing: so a full record of
        every option can be read back, and an option without effect is an error.

        Args:
            given: by flat names.
            usual: where `given` names no method, its method and options are kept, but for what
                rules out the given ones; without it, missing options have their defaults. With it,
                `given` is what someone chose: an option that another one of these replaces is
                refused, not set back.
            shared: whether it comes from another machine, so that paths are refused.

        Raises:
            SettingError: for an unknown name, or a value out of range.
        """
        known = {*REGISTRIES, *TOKENS.options(), *CHANNELS.options()}
        known -= path_names() if shared else set()
        for name, value in given.items():
            for gone in REMOVED.keys() & {name, f"{name}={value}"}:
                raise SettingRemoved(gone, REMOVED[gone])
            if name not in known:
                raise SettingUnknown(name, ", ".join(sorted(known)))
        values = dict(given)
        for kind in () if usual is None else REGISTRIES:
            if kind not in given:
                method = getattr(usual, kind).yielding_to(given)
                values = {kind: method.name, **flat(method)} | values
        made = cls(*(_made(registry, kind, values) for kind, registry in REGISTRIES.items()))
        for method in () if usual is None else (made.tokens, made.channels):
            own = {one.key: one for one in options_of(method) if one.key in given}
            for key, one in own.items():
                if one.read(given[key]) not in (getattr(method, one.name), one.default):
                    beside = ", ".join(name for name in own if name != key)
                    where = f" beside {beside}" if beside else ": nothing asks for it"
                    raise SettingError(key, f"left out{where}", given[key])
        return made

    def with_options(self, **given: Any) -> "Settings":
        """These settings with some options, by their flat names, or a method, changed."""
        every = self.as_dict() | given
        methods = [registry.find(every[kind]) for kind, registry in REGISTRIES.items()]
        known = {one.key for method in methods for one in options_of(method)} | REGISTRIES.keys()
        return Settings.from_dict({n: every[n] for n in every if n in known or n in given})

    def without_paths(self) -> "Settings":
        """These settings without the names of files of this machine."""
        given = self.as_dict()
        files = [name for name in path_names() & given.keys() if given[name] is not None]
        return self.with_options(**dict.fromkeys(files)) if files else self


def check_taken(columns: Iterable[Settings], options: Mapping[str, Any]) -> None:
    """Refuse one of `options`, by flat names, that has no effect in any column of a comparison, by
    a `SettingError` with the methods that would take it."""
    held = [settings.as_dict() for settings in columns]
    for kind, registry in REGISTRIES.items():
        for key, owners in registry.options().items():
            if key in options and not any(
                key in one and one[key] == _read(owners, options[key]) for one in held
            ):
                _check_idle(kind, key, options[key], owners)


def path_names() -> set[str]:
    """Flat names of the options that name files of this machine."""
    every = CHANNELS.options() | TOKENS.options()
    return {key for key, owners in every.items() if owners[0][1].kind == "path"}


def _made(registry: Registry, kind: str, given: Mapping[str, Any]) -> Any:
    method = registry.find(given.get(kind, registry.default.name))
    own = options_of(method)
    for key, owners in registry.options().items():
        if key in given and key not in {one.key for one in own}:
            _check_idle(kind, key, given[key], owners)
    return method(**{one.name: given[one.key] for one in own if one.key in given})


def _check_idle(
    kind: str, key: str, value: Any, owners: Sequence[tuple[type[Method], Option]]
) -> None:
    """Refuse an option of other methods than the chosen one, unless it changes nothing."""
    found = _read(owners, value)
    if not any(one.changes_nothing(found) for _, one in owners):
        names = " or ".join(owner.name for owner, _ in owners)
        only = owners[0][1].default if owners[0][1].kind == "choice" else "left out"
        raise SettingError(key, f"{only} unless {kind} is {names}", value)


def _read(owners: Sequence[tuple[type[Method], Option]], value: Any) -> Any:
    """`value` as the first method reads it that can; refused in the last one's words."""
    for _, one in owners[:-1]:
        with suppress(SettingError):
            return one.read(value)
    return owners[-1][1].read(value)


BASELINE: Final = Settings(tokens=KeepAll(), channels=Full())
# Where nothing is chosen; by class: a name would read all plug-ins.
USUAL: Final = Settings(channels=RotateK(smaller=DEFAULT_TIMES))
STORED: Final = Settings(channels=RotateK(smaller=8))  # of pictures in a store


# -- settings side by side: every method at one nominal budget, and what a column is called ------

UNCOMPRESSED: Final = "Uncompressed"
QUARTER: Final = 0.25  # of the channels, where the settings leave none out


def pruners() -> list[type[TokenPruner]]:
    """Registered pruners that drop tokens."""
    return [pruner for pruner in TOKENS.values() if pruner.stage != "nowhere"]


def reducers() -> list[type[ChannelMethod]]:
    """Registered channel methods that leave channels out, the default last."""
    found = [method for method in CHANNELS.values() if method.drops_channels]
    return sorted(found, key=lambda method: method is CHANNELS.default)


def matched(chosen: Settings, **options: Any) -> dict[str, Settings]:
    """The uncompressed model, dropped tokens alone, and every channel method, at the nominal share
    of the visual cache that `chosen` keeps: by short names, "baseline", "fastv only", "rotatek",
    "spark", "think".

    Every method keeps the chosen share of the Key channels (a quarter where the settings keep all,
    or more where even that would be too few), and the token share follows from the budget;
    the chosen method keeps its own settings. Flat options, e.g. `recovery="mean"`, are for the
    methods that have them.
    """
    budget = chosen.nominal_kv
    pruner = chosen.tokens if chosen.prunes_tokens else pruners()[0]()
    columns = {"baseline": BASELINE}
    columns[f"{pruner.name} only"] = Settings(pruner.with_keep(round(budget, 6)), Full())
    for method in reducers():
        plain = at_budget(chosen, pruner, method.name, **options)
        if method.name != chosen.channels.name:
            columns[method.name] = plain
            continue
        columns[method.name] = chosen
        if chosen.channels != chosen.channels.of_paper():
            columns[f"{method.name} as in its paper"] = plain
    if chosen not in columns.values() and not chosen.channels.stores_everything:
        columns[chosen.channels.name] = chosen
    return columns


def at_budget(chosen: Settings, pruner: TokenPruner, method: str, **options: Any) -> Settings:
    """A channel method as its paper has it, at the nominal budget of `chosen`."""
    budget, made = chosen.nominal_kv, paper_form(chosen, method, options)
    if not made.drops_channels or made.nominal_share < budget:  # tokens are dropped for the rest
        made = made.with_share(budget)
    kept = round(budget / made.nominal_share, 6)
    return Settings(tokens=pruner.with_keep(kept) if kept < 1 else TOKENS.default(), channels=made)


def paper_form(chosen: Settings, method: str, options: Mapping[str, Any]) -> ChannelMethod:
    """A channel method, by name, as its paper has it, with the share of Key channels that `chosen`
    keeps, a quarter where it keeps all, and those of the flat options that it has."""
    known = {one.key for one in options_of(CHANNELS.find(method))}
    own = {name: value for name, value in options.items() if name in known}
    keep = chosen.channels.of_paper().key_share if chosen.channels.drops_channels else QUARTER
    base = chosen if chosen.channels.name == method else Settings()
    return base.with_options(channels=method, **own).channels.of_paper().with_keep(keep)


def title_of(settings: Settings) -> str:
    """A column's title from its settings: `FastV + RotateK`, `ThinK`, `Uncompressed`."""
    method, form = settings.channels, settings.channels.form
    parts = [settings.tokens.label] if settings.prunes_tokens else []
    if not method.stores_everything:
        parts.append(method.label + (f" ({form})" if form else ""))
    return " + ".join(parts) or UNCOMPRESSED


def titled(chosen: Settings, others: Iterable[Settings]) -> dict[str, Settings]:
    """Baseline, the chosen settings, then `others`; equal settings once, each title once."""
    columns = {UNCOMPRESSED: BASELINE}
    for settings in (chosen, *others):
        if settings in columns.values() or settings.is_baseline:
            continue
        title = title_of(settings)
        if title in columns:
            title += f", {100 * settings.nominal_kv:.0f} %"
        number = 2
        while title in columns:
            title, number = f"{title_of(settings)}, {number}", number + 1
        columns[title] = settings
    return columns
