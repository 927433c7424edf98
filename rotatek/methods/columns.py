"""Settings side by side: every method at one nominal budget, and what a column is called."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rotatek.methods.channels import CHANNELS
from rotatek.methods.channels.base import ChannelMethod, Full
from rotatek.methods.options import options_of
from rotatek.methods.settings import BASELINE, Settings
from rotatek.methods.tokens import TOKENS, TokenPruner

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
    """The uncompressed model, dropped tokens alone, and every channel method, at one budget.

    Every method keeps the chosen share of the Key channels (a quarter where the settings keep all,
    or more where even that would be too few), and the token share follows from the budget;
    the chosen method keeps its own settings. So all columns but the first keep the same nominal
    share of the visual cache, as the paper counts it.

    Args:
        chosen: what sets the budget.
        options: flat options for the methods that have them, e.g. `recovery="mean"`.

    Returns:
        settings by short names: "baseline", "fastv only", "rotatek", "spark", "think".
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
    """A channel method as its paper has it, with the share of Key channels that `chosen` keeps.

    Args:
        chosen: its share of channels is used; a quarter where it keeps all.
        method: by its name.
        options: flat options; those of the method are used.
    """
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
