"""Flags for settings and for how tokens are drawn: what people type; the rest is --option."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any, Final

from rotatek.errors import SettingError
from rotatek.inputs.sampling import HOTTEST, Sampling
from rotatek.methods.settings import REGISTRIES, USUAL, Settings

_PREFIX: Final = "setting:"  # of what argparse stores, so that no other argument is meant
NAMED: Final = ("keep_tokens", "keep_channels", "smaller")  # options with a flag of their own
# Ways to draw a token that --option takes, and what reads them.
DRAWN: Final[Mapping[str, Callable[[str], float]]] = {"top_p": float, "top_k": int, "min_p": float}


def _pair(text: str) -> tuple[str, str]:
    """Of NAME=VALUE; who reads the value checks it."""
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not (name and equals):
        raise SettingError("--option", "NAME=VALUE", text)
    return name, value


def add_settings(parser: argparse.ArgumentParser, usual: str) -> None:
    """Flags for either method and for `NAMED` options, and one for all others. usual: what a
    command does where none of them is given."""
    group = parser.add_argument_group("compression", f"where none is given: {usual}")
    flags: dict[str, str] = {}
    others = []
    for kind, registry in REGISTRIES.items():
        labels = "; ".join(f"{name}: {method.label}" for name, method in registry.items())
        flags[kind] = f"{labels}. Default: {registry.default.name}"
        for key, owned in registry.options().items():
            names, option = ", ".join(method.name for method, _ in owned), owned[0][1]
            if key in NAMED:
                flags[key] = f"{names}: {option.help}"
            else:
                known = dict.fromkeys(value for _, one in owned for value in one.values)
                values = f" ({', '.join(known)})" if known else ""
                others.append(f"{key} of {names}: {option.help}{values}")
    for key, said in flags.items():
        group.add_argument(
            "--" + key.replace("_", "-"), dest=_PREFIX + key, default=argparse.SUPPRESS,
            metavar="NAME" if key in REGISTRIES else "F", help=said.replace("%", "%%"),
        )  # fmt: skip
    draws = parser.get_default("temperature") is not None
    drawn = "; top_p, top_k, min_p: of the sampling" if draws else ""
    said = "a rarer option; may be repeated. " + "; ".join(others) + drawn
    group.add_argument(
        "--option", action="append", type=_pair, default=[], metavar="NAME=VALUE",
        help=said.replace("%", "%%"),
    )  # fmt: skip


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Flags for how, and how many, tokens are drawn; without them answers are greedy."""
    parser.add_argument("--graph", action="store_true", help="decode by CUDA graph (GPU only)")
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N")
    group = parser.add_argument_group("sampling", "answers are greedy without a temperature")
    group.add_argument(
        "--temperature", type=float, default=0.0, metavar="T",
        help=f"0: the likeliest token; 1: draws as the model says; up to {HOTTEST:g}. Default: 0",
    )  # fmt: skip
    group.add_argument(
        "--seed", type=int, metavar="N", help="the same draws every time. Default: a new one, "
        "which --json has",
    )  # fmt: skip


def sampling_of(args: argparse.Namespace) -> Sampling:
    """How tokens are chosen, by the flags."""
    drawn: dict[str, Any] = {}
    for name, value in args.option:
        if name in DRAWN:
            try:
                drawn[name] = DRAWN[name](value)
            except ValueError as error:
                raise SettingError(name, "a number", value) from error
    return Sampling(temperature=args.temperature, seed=args.seed, **drawn)


def given(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that a command line gave, by their flat names, as text: `Settings` reads it."""
    flags = {n.removeprefix(_PREFIX): v for n, v in vars(args).items() if n.startswith(_PREFIX)}
    drawn = DRAWN if hasattr(args, "temperature") else ()
    return flags | {name: value for name, value in args.option if name not in drawn}


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings of a command line; `USUAL` where it chooses nothing."""
    return Settings.from_dict(given(args), USUAL)
