"""Flags for settings, made from the options of every registered method."""

import argparse
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rotatek.methods.channels import CHANNELS
from rotatek.methods.options import Method, Option
from rotatek.methods.registry import Registry
from rotatek.methods.settings import USUAL, Settings
from rotatek.methods.tokens import TOKENS

log = logging.getLogger("rotatek")
_PREFIX: Final = "setting:"  # of what argparse stores, so that no other argument is meant
Owned = Sequence[
    tuple[type[Method], Option]
]  # the methods that have an option, and their fields of that name


def add_settings(parser: argparse.ArgumentParser, usual: str) -> None:
    """A flag for either method, and one for each option that any of them has.

    Args:
        parser: of a command.
        usual: what it does where none of them is given.
    """
    group = parser.add_argument_group("compression", f"where none is given: {usual}")
    for registry, kind in ((TOKENS, "tokens"), (CHANNELS, "channels")):
        names = "; ".join(f"{name}: {method.label}" for name, method in registry.items())
        add_flag(group, kind, metavar="NAME", help=f"{names}. Default: {registry.default.name}")
        for key, owned in registry.options().items():
            add_option(group, key, owned, registry)


def add_option(group: Any, key: str, owned: Owned, registry: Registry) -> None:
    """The flag of one option.

    Args:
        group: an argparse group or parser.
        key: the option's flat name.
        owned: the methods that have it.
        registry: of these methods.
    """
    option = owned[0][1]
    metavar = {"choice": "NAME", "path": "FILE", "integer": "N"}.get(option.kind, "F")
    add_flag(group, key, metavar=metavar, help=_help(owned, len(registry)))


def add_flag(group: Any, key: str, **spec: Any) -> None:
    """The flag of a setting, found again by `given`; `help` may hold any character."""
    spec["help"] = spec["help"].replace("%", "%%")
    name = _PREFIX + key
    try:
        group.add_argument(flag_of(name), dest=name, default=argparse.SUPPRESS, **spec)
    except argparse.ArgumentError:  # an option from outside must not take the command down
        log.warning("The option %s is not available here: its flag has another meaning.", key)


def flag_of(name: str) -> str:
    """`--some-key`, of what argparse calls an argument."""
    return "--" + name.removeprefix(_PREFIX).replace("_", "-")


def given(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that a command line gave, by their flat names, as text: `Settings` reads it."""
    found = vars(args).items()
    return {name.removeprefix(_PREFIX): value for name, value in found if name.startswith(_PREFIX)}


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings of a command line; `USUAL` where it chooses nothing.

    Raises:
        SettingError: for a method that there is not, or an option that it does not take.
    """
    return Settings.from_dict(given(args), USUAL)


def split(options: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """Settings, and what of `options` is for channel methods other than the chosen one.

    Raises:
        SettingError: as `settings_of`.
    """
    chosen = CHANNELS.find(options.get("channels", CHANNELS.default.name))
    owners = {key: [method for method, _ in owned] for key, owned in CHANNELS.options().items()}
    others = {
        key: value for key, value in options.items() if chosen not in owners.get(key, [chosen])
    }
    own = {key: value for key, value in options.items() if key not in others}
    return Settings.from_dict(own), others


def _help(owned: Owned, methods: int) -> str:
    """One sentence: what it does, for which methods, the valid values, and the default."""
    words: dict[str, list[str]] = {}
    for method, option in owned:
        said = f"{option.help} ({', '.join(option.values)})" if option.values else option.help
        words.setdefault(said, []).append(method.name)
    everyone = len(owned) == methods and len(words) == 1
    parts = [
        f"{'' if everyone else ', '.join(names) + ': '}{said}" for said, names in words.items()
    ]
    defaults = dict.fromkeys(str(option.default) for _, option in owned)
    return f"{'; '.join(parts)}. Default: {' or '.join(defaults).replace('None', 'none')}"
