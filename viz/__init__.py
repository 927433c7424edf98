"""Figures: arrays in, what plotly draws and its words out.

Every function `draw...` returns a `Drawing`: the figure, a one-sentence reading, and a
summary in words for those who do not see it. Nothing here knows of models, requests or pages.
"""

from .theme import Drawing

__all__ = ["Drawing"]
