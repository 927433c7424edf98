"""Documents from seeds: which renderer, how large, how much degraded."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pocket import mixture, shards
from pocket.augmentation.degradation import degrade
from pocket.augmentation.distractors import distract
from pocket.augmentation.lens import photographed
from pocket.augmentation.paper import LIGHT, on_paper
from pocket.document import Document
from pocket.layouts.registry import REGISTRY
from pocket.layouts.style import pick_style
from pocket.models.config import UNIT

DISTRACTED_SHARE: Final = 0.2
SMALL_PRINT_SHARE: Final = 0.12  # of the documents to train on are set small ...
MORE_SMALL_PRINT: Final = 0.3  # of the large ones
UNHARMED: Final = 0.65  # of small print, whose letters a camera would take
SPLITS: Final = ("own", "fonts", "renderers", "topics", "scanned", "small")
UNSEEN_TYPE: Final = ("fonts", "scanned", "small")  # set in families that training never sees


@dataclass(frozen=True)
class ForTraining:
    """Differences of training: documents are degraded by the fast functions, as `degrade`
    describes.

    Attributes:
        pages: A folder of stored documents to mix in, or none.
        stored: The share of those.
    """

    pages: Path | None = None
    stored: float = mixture.STORED


def make_document(
    seed: int,
    width: int,
    height: int,
    split: str = "train",
    renderers: Sequence[str] | None = None,
    severity: float = 1.0,
    training: ForTraining | None = None,
) -> Document:
    """The document of a seed: the same arguments give the same pixels.

    Args:
        seed: Any whole number.
        width: Pixels.
        height: Pixels.
        split: `train` (and `own`, the same with seeds that training does not use), `fonts`
            (families training never sees), `renderers` (renderers it never sees), `topics`
            (subjects it never sees, asked about freely), `scanned` (layouts, type and printers it
            never sees, scanned and photographed) or `small` (a layout and type it never sees, in
            small print).
        renderers: Names in `layouts.registry.REGISTRY` to draw from; all of the split otherwise.
        severity: How much it is degraded, as by a camera; 0: not at all.
        training: Given, it is a document to train on.

    Raises:
        RuntimeError: if none of twenty drawings has anything to be asked, which does not happen.
    """
    pages, fast = (training.pages, True) if training else (None, False)
    stored = training.stored if training else 0.0
    rng = random.Random(f"{split}/{seed}/{width}x{height}")
    if pages is not None and rng.random() < stored:
        document = shards.draw(rng, pages, width, height)
        if document is not None:
            return degrade(rng, document, severity, fast) if severity > 0 else document
    names = list(renderers or renderers_of(split))
    fit = [n for n in names if REGISTRY[n].smallest <= min(width, height)] or ["forms"]
    weights = [_weight(n, split, width, height) for n in fit]
    for _ in range(20):
        name = rng.choices(fit, weights)[0]
        style = pick_style(rng, width, height, "unseen" if split in UNSEEN_TYPE else "train")
        share = MORE_SMALL_PRINT if _is_large(width, height) else SMALL_PRINT_SHARE
        if training and rng.random() < share:
            style = replace(style, size=rng.uniform(9.0, 12.0))
        document = REGISTRY[name].draw(rng, style)
        document.questions = [q for q in document.questions if q.answer]
        if document.questions and len(document.glyphs):
            document.renderer = name
            return _seen(rng, document, split, severity, fast)
    raise RuntimeError(f"no document for seed {seed} at {width} x {height}")


def _is_large(width: int, height: int) -> bool:
    return width * height >= mixture.LARGE * UNIT**2


def _weight(name: str, split: str, width: int, height: int) -> float:
    """Weights of renderers: measured splits keep theirs, training has its mixture."""
    if split == "train":
        shape = mixture.TALL.get(name, 1.0) if height > mixture.SLENDER * width else 1.0
        room = mixture.MANY.get(name, 1.0) if _is_large(width, height) else 1.0
        return mixture.SHARES.get(name, REGISTRY[name].weight) * shape * room
    return REGISTRY[name].weight


def _seen(
    rng: random.Random, document: Document, split: str, severity: float, fast: bool
) -> Document:
    """A drawn document as it comes to be a picture: from a screen, a sheet of paper, a place."""
    camera = REGISTRY[document.renderer].camera
    if camera == "lens":
        return photographed(rng, document, severity)
    if camera == "none" or (camera == "print" and rng.random() < UNHARMED):
        return document
    if camera == "print":
        severity *= rng.uniform(0.2, 0.6)
        return (
            on_paper(rng, document, severity)
            if _is_light(document) and rng.random() < 0.5
            else (degrade(rng, document, severity, fast))
        )
    if severity > 0 and rng.random() < DISTRACTED_SHARE:
        document = distract(rng, document)
    if _is_paper(rng, document, split):
        return on_paper(rng, document, severity)
    return degrade(rng, document, severity, fast) if severity > 0 else document


def _is_paper(rng: random.Random, document: Document, split: str) -> bool:
    """Whether a document is to be printed and scanned instead of shown on a screen."""
    if REGISTRY[document.renderer].camera == "paper":
        return True
    share = mixture.ON_PAPER.get(document.renderer, 0.0) if split == "train" else 0.0
    if share == 0.0 or rng.random() > share or any(q.kind == "colour" for q in document.questions):
        return False
    return _is_light(document)


def _is_light(document: Document) -> bool:
    """Whether it is dark on light, as paper is."""
    return sum(document.image.resize((8, 8)).convert("L").tobytes()) / 64 > LIGHT


def renderers_of(split: str) -> list[str]:
    """The names of what draws a split, `train` for what training draws."""
    if split == "train":
        return [n for n, r in REGISTRY.items() if not r.held_out]
    return [n for n, r in REGISTRY.items() if split in r.splits]


def pick_size(rng: random.Random, least: int, most: int) -> tuple[int, int]:
    """A size of page: areas are log-uniform, shapes range from tall receipts to wide screens.

    Args:
        rng: Says which.
        least: Visual tokens at least.
        most: Visual tokens at most.

    Returns:
        Width and height in pixels, both in whole visual tokens.
    """
    return _sized(rng, least, most, (0.12, 0.36))


def tall_size(rng: random.Random, least: int, most: int) -> tuple[int, int]:
    """A size as `pick_size` has it, of a receipt or a telephone's screen."""
    return _sized(rng, least, most, (-0.68, 0.2))


def _sized(
    rng: random.Random, least: int, most: int, shape: tuple[float, float]
) -> tuple[int, int]:
    """A size whose width over height is log-normal, with `shape` as mean and deviation."""
    area = math.exp(rng.uniform(math.log(least), math.log(most)))
    aspect = min(2.4, max(0.42, math.exp(rng.gauss(*shape))))
    w = max(8, round(math.sqrt(area * aspect)))
    h = max(8, min(round(area / w), most // w))
    return w * UNIT, h * UNIT
