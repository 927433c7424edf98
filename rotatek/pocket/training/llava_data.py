"""Training batches of the second pocket model: pictures of one size, and so of one tiling."""

import random
from typing import Final

import numpy as np
import torch

from rotatek.pocket.generate import pick_size
from rotatek.pocket.models.batch import TileBatch
from rotatek.pocket.models.config import PATCH, UNIT, text_length
from rotatek.pocket.models.llava_tiles import glyph_places, order, tiling, views
from rotatek.pocket.training.data import EASY, BatchOptions, draw_document, packed
from rotatek.pocket.training.packing import pack

LONGEST_TEXT: Final = 640  # tokens: beyond, a picture's questions cost more than its tiles


def batch_size(visual: int, text: int, cost: int) -> int:
    """Pictures a batch of `cost`: about decoder tokens, attention counted in."""
    length = visual + text
    return max(2, int(cost / (length * (1 + length / 3000))))


def make_tiles(
    options: BatchOptions, side: int, index: int, progress: float, world: int = 1
) -> TileBatch:
    """One batch of the second pocket model's training.

    Args:
        options: What all batches of the run have in common; nothing is hidden from each other here.
        side: Of a tile, in pixels.
        index: Which batch of the run.
        progress: How far the run is, in [0, 1] of the curriculum.
        world: Ranks that train together; their batches of one step are of one size.
    """
    seed = options.seed
    size = random.Random(f"tiling/{seed}/{index // world}")
    width, height, names = curriculum(size, progress)
    rng = random.Random(f"tiles/{seed}/{index}")
    orders = options.orders(rng, index)
    plan = tiling(width, height, side)
    packing = order(plan)
    length = min(LONGEST_TEXT, text_length(width, height))
    features = plan.tiles * (side // PATCH) ** 2
    base, grid, turns, places = [], [], [], []
    for i in range(batch_size(len(packing), length, options.cost)):
        document = draw_document(rng, width, height, names, options.pages)
        first, rest = views(document.image, plan)
        base.append(first)
        grid.append(rest)
        turns.append([pack(order, document.questions, length) for order in orders])
        where, which = glyph_places(document.glyphs, plan)
        places.append((where + i * features, which))
    text, labels, weights = packed(turns)
    patch, kind = (torch.from_numpy(np.concatenate(c)) for c in zip(*places, strict=True))
    return TileBatch(
        images=torch.from_numpy(np.stack(base)),
        grid=torch.from_numpy(np.stack(grid)),
        order=packing,
        text=text,
        labels=labels,
        weights=weights,
        glyph_patch=patch,
        glyph_class=kind,
        plan=plan,
    )


def curriculum(rng: random.Random, progress: float) -> tuple[int, int, tuple[str, ...] | None]:
    """Size of the next batch and, early on, the renderers it is limited to.

    One tile first; then two and three; from half of the run on up to four, 2,900 visual tokens.
    Compiling takes the first sixth of a run of five minutes, hence the late first steps.
    """
    if progress < 0.2:
        return 224, 224, ("signs",) if rng.random() < 0.6 else EASY
    if progress < 0.36:
        return *_small(rng), EASY if rng.random() < 0.5 else None
    large, middle = (0.5, 0.78) if progress > 0.54 else (0.06, 0.4)
    r = rng.random()
    if r < large:
        return *pick_size(rng, 280, 676), None
    if r < middle:
        return *_strip(rng), None
    return *_small(rng), None


def _small(rng: random.Random) -> tuple[int, int]:
    """A picture that one tile holds."""
    return rng.randint(8, 12) * UNIT, rng.randint(8, 12) * UNIT


def _strip(rng: random.Random) -> tuple[int, int]:
    """A picture that two or three tiles in a row or a column hold."""
    long, short = rng.randint(13, 24 if rng.random() < 0.7 else 36), rng.randint(9, 12)
    return (long * UNIT, short * UNIT) if rng.random() < 0.5 else (short * UNIT, long * UNIT)
