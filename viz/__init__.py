"""Figures: arrays in, what plotly draws and its words out.

One figure a file. Every `draw` returns a `Drawing`: the figure, a one-sentence reading, and a
summary in words for those who do not see it. Nothing here knows of models, requests or pages.
"""

from . import (
    budget,
    compact_json,
    frontier,
    head_heatmap,
    image_overlay,
    keys,
    masks,
    scores,
    spectrum,
    theme,
)
from .theme import Drawing

__all__ = [
    "Drawing",
    "budget",
    "frontier",
    "head_heatmap",
    "keys",
    "masks",
    "image_overlay",
    "scores",
    "spectrum",
    "theme",
    "compact_json",
]
