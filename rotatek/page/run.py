"""The former name of `rotatek.page.state`, until what imports it has moved."""

from rotatek.page.state import Column, Run, start

__all__ = ["Column", "Run", "start"]
