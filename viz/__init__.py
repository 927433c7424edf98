"""Figures: arrays in, what plotly draws and its words out; nothing knows of models or pages."""

from .theme import Drawing

__all__ = ["Drawing"]
