"""How a measured row is drawn: by the registered method that the data names, else in ink."""

from collections.abc import Mapping
from typing import Any, Final

from rotatek.compare.columns import pruners, reducers
from rotatek.methods.channels import CHANNELS
from rotatek.methods.channels.base import ChannelMethod
from rotatek.methods.options import options_of
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import TOKENS, TokenPruner
from viz.theme import UNCOMPRESSED, PlainStyle, Style

WHOLE: Final = ("uncompressed", "dense", "full width")  # names of rows that leave nothing out


def style_of(label: str, settings: Mapping[str, Any] | None = None) -> Style:
    """The style of a row.

    Args:
        label: its words, in which a method's label may stand; a channel method's goes first.
        settings: the flat settings that it was measured under, where the data has them.
    """
    if settings and {"tokens", "channels"} <= settings.keys():
        return _of_settings(label, settings)
    for method in reducers():
        if method.label in label:
            return method
    for pruner in pruners():
        if pruner.label in label:
            return _of_pruner(pruner)
    whole = label.lower().startswith(WHOLE)
    return UNCOMPRESSED if whole else PlainStyle(label)


def _of_settings(label: str, settings: Mapping[str, Any]) -> Style:
    """By the names of both methods; one that is not registered here is drawn in ink."""
    channels, tokens = settings["channels"], settings["tokens"]
    if channels not in CHANNELS or tokens not in TOKENS:
        return PlainStyle(label)
    method: type[ChannelMethod] = CHANNELS[channels]
    own = {one.key for one in options_of(method)}
    made = Settings.of(channels=channels, **{k: v for k, v in settings.items() if k in own})
    if not made.channels.stores_everything:
        return method
    pruner = TOKENS[tokens]
    return UNCOMPRESSED if pruner.stage == "nowhere" else _of_pruner(pruner)


def _of_pruner(pruner: type[TokenPruner]) -> Style:
    return PlainStyle(pruner.label, colour=pruner.colour, marker=pruner.marker, dash=pruner.dash)
