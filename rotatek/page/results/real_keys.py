"""Figures of real Keys: what settings do to pretrained models, and how their Keys are spread."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from rotatek.evaluation.cells import pareto_front
from rotatek.evaluation.real_keys import LATER, Divergence, Spectrum
from rotatek.methods.channels import CHANNELS
from rotatek.methods.tokens import TOKENS
from rotatek.page.results.files import Drawings, Files
from rotatek.page.results.styles import style_named
from viz import dot_plot, frontier

AXES: Final = frontier.Axes("of the context's live bytes", "tokens that stay the same")
READING: Final = (
    "The share of next tokens whose most likely one is the uncompressed model's, over live bytes: "
    "each method's settings that no other of its settings beats in fewer."
)
SHARES: Final = {
    "rank": ("Effective rank of Keys and Values", "effective rank, % of the channels"),
    "quarter": ("Energy in a quarter of the channels", "% of the variation"),
}


def real_keys(files: Files) -> Drawings:
    """A figure a model, context and question, then those of the spectra."""
    drawn: Drawings = {}
    styles = {
        kind.label: name for registry in (TOKENS, CHANNELS) for name, kind in registry.items()
    }
    for number, case in enumerate(dict.fromkeys(one[:3] for one in files.keys)):
        own = [one for one in files.keys if one[:3] == case]
        lines = [
            frontier.Line(label, style_named(name), points)
            for label, name in styles.items()
            if (points := _points(one for one in own if one.method == label)) is not None
        ]
        model, context, asked = case
        when = "a second question" if asked == LATER else "the first question"
        drawing = frontier.draw(lines, 1.0, AXES)._replace(reading=READING)
        drawn[f"real-{number}"] = f"{model}, {context:,} tokens, {when}", drawing
    for field, (title, axis) in SHARES.items():
        if files.spectra:
            scale = dot_plot.Scale(axis, ".0f", " %", more_is_better=field != "rank")
            drawn[f"spectra-{field}"] = title, dot_plot.draw(_dots(files.spectra, field), scale)
    return drawn


def _points(found: Iterable[Divergence]) -> frontier.Points | None:
    """The unbeaten settings of one method; None without any."""
    kept = pareto_front(found, lambda one: one.live, lambda one: -one.kl)
    live, same = (np.array([getattr(one, name) for one in kept]) for name in ("live", "top1"))
    return frontier.Points(live, same, same, same) if kept else None


def _dots(spectra: Sequence[Spectrum], field: str) -> list[dot_plot.Dot]:
    """A model's Keys and Values: the mean over layers, between the least and the most."""
    found = []
    for model in dict.fromkeys(one.model for one in spectra):
        mine = [one for one in spectra if one.model == model]
        mine = [one for one in mine if one.tokens == mine[0].tokens]
        for part in ("keys", "values"):
            shares = [100 * getattr(one, field) for one in mine if one.part == part]
            mean = sum(shares) / len(shares)
            row = f"{model}, {mine[0].tokens:,} tokens"
            found.append(
                dot_plot.Dot(row, mean, min(shares), max(shares), series=part.capitalize())
            )
    return found
