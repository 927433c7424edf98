"""Measured splits are drawn as before, through all changes to the training mixture."""

import hashlib
import random

import pytest

from pocket.evaluation.questions import FIRST_SEED
from pocket.evaluation.questions import SIZES as OWN_SIZES
from pocket.generate import make_document
from pocket.layouts.html import templates
from pocket.layouts.html.parts import style_sheet
from pocket.layouts.style import pick_style

SIZES = ((224, 224), (336, 588), (448, 448))
DRAWN = {"own": "357298d256dbf837", "fonts": "ec319dc72c27fdae", "renderers": "c0b802ee64c602ef"}
PRINTED = {"scanned": "e1331e9cf85c2a21", "small": "8f4036539eda9e11"}
PAGES = {"tiles": "b337cc101eb9e076", "shop": "d5df4cc8f536eed4"}


def digest(*parts: object) -> str:
    """A short hash of the parts' representations."""
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()[:16]


@pytest.mark.parametrize("split", list(DRAWN))
def test_the_documents_of_a_split_stay_as_they_are(split: str) -> None:
    parts: list[object] = []
    for i in range(8):
        for size in SIZES:
            made = make_document(FIRST_SEED + i, *size, split=split, severity=0)
            parts.append((made.renderer, made.questions, made.content, len(made.glyphs)))
    assert digest(*parts) == DRAWN[split]


@pytest.mark.parametrize("split", list(PRINTED))
def test_what_measures_print_stays_as_it_is(split: str) -> None:
    parts: list[object] = []
    for i in range(6):
        for size in OWN_SIZES[split]:
            made = make_document(FIRST_SEED + i, *size, split=split, severity=0)
            parts.append((made.renderer, made.questions, made.content, len(made.glyphs)))
    assert digest(*parts) == PRINTED[split]


@pytest.mark.parametrize("name", list(PAGES))
def test_the_templates_kept_from_training_stay_as_they_are(name: str) -> None:
    parts = []
    for seed in range(12):
        rng = random.Random(seed)
        style = pick_style(rng, 560, 448, "unseen", fancy=0)
        style_sheet(rng, style, "serif")
        parts.append(templates.HELD_OUT[name](rng, style, 0.8))
    assert digest(*parts) == PAGES[name]
    assert name not in templates.TEMPLATES
