"""How a measured row is drawn: by the registered method that its record names, else in ink."""

from rotatek.evaluation.cells import Cell
from rotatek.methods.channels import CHANNELS
from rotatek.methods.channels.full import Full
from rotatek.methods.tokens import TOKENS
from viz.theme import UNCOMPRESSED, PlainStyle, Style


def style_of(cell: Cell) -> Style:
    """A cell's style: its channel method's, or where that stores everything its pruner's."""
    channels, tokens = cell.settings["channels"], cell.settings["tokens"]
    if channels == Full.name and "cache_dtype" not in cell.settings:
        return style_named(tokens)
    method: Style = CHANNELS[channels] if channels in CHANNELS else PlainStyle(channels)
    return method


def style_named(name: str) -> Style:
    """The style of a registered method or pruner; ink for what is not registered here."""
    if name in TOKENS and TOKENS[name].stage != "nowhere":
        one = TOKENS[name]
        return PlainStyle(one.label, colour=one.colour, marker=one.marker, dash=one.dash)
    if name in TOKENS or name == Full.name:
        return UNCOMPRESSED
    method: Style = CHANNELS[name] if name in CHANNELS else PlainStyle(name)
    return method
