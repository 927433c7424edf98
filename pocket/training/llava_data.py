"""Training batches of the second pocket model: pictures of one size, and so of one tiling."""

import random
from typing import Final

import numpy as np
import torch

from pocket.generate import pick_size
from pocket.layouts.registry import REGISTRY
from pocket.models import tokenizer
from pocket.models.batch import TileBatch
from pocket.models.config import PATCH, UNIT, text_length
from pocket.models.llava_tiles import glyph_places, order, tile_places, tiling, views
from pocket.training.answer_positions import told_places
from pocket.training.data import EASY, BatchOptions, draw_document, packed
from pocket.training.packing import pack

LONGEST_TEXT: Final = 640  # tokens: beyond, a picture's questions cost more than its tiles
ROUND: Final = 128  # tokens: attention plans anew for every length of sequence, 110 ms each
MEASURED: Final = 4.0  # times as often, what the project's own documents are measured on


def lengths(visual: int, width: int, height: int) -> tuple[int, int]:
    """Tokens of the text beside `visual` ones and of the whole sequence, which is a round number.

    Lengths are few that way, and so are sizes of batches, which depend on nothing else.
    """
    before = len(tokenizer.prefix()) + visual
    whole = -(-(before + min(LONGEST_TEXT, text_length(width, height))) // ROUND) * ROUND
    return whole - before, whole


def batch_size(length: int, cost: int) -> int:
    """Pictures a batch of `cost`: about decoder tokens, attention counted in."""
    return max(2, int(cost / (length * (1 + length / 3000))))


def pick_renderer(rng: random.Random, width: int, height: int) -> tuple[str, ...]:
    """The renderer of the next document: by the registry's weights, not by the first pocket's
    needs.

    That pocket's mixture is a quarter of long receipts, whose type is lost on tiles of this size.
    """
    drawn = {
        name: r.weight * (MEASURED if "own" in r.splits else 1.0)
        for name, r in REGISTRY.items()
        if not r.held_out and r.smallest <= min(width, height)
    }
    return tuple(rng.choices(list(drawn), list(drawn.values())))


def make_tiles(
    options: BatchOptions, side: int, index: int, progress: float, world: int = 1
) -> TileBatch:
    """One batch of the second pocket model's training.

    Args:
        options: What all batches of the run have in common.
        side: Of a tile, in pixels.
        index: Which batch of the run.
        progress: How far the run is, in [0, 1] of the curriculum.
        world: Ranks that train together; their batches of one step are of one size.
    """
    seed, step = options.seed, index // world
    size = random.Random(f"tiling/{seed}/{step}")
    width, height, names = curriculum(size, progress)
    hidden = random.Random(f"alone/{seed}/{step}").random() < options.alone
    rng = random.Random(f"tiles/{seed}/{index}")
    orders = options.orders(rng, index)
    plan = tiling(width, height, side)
    packing = order(plan)
    length, whole = lengths(len(packing), width, height)
    features = plan.tiles * (side // PATCH) ** 2
    shown = token_of(packing, features)
    base, grid, turns, glyphs = [], [], [], []
    for i in range(batch_size(whole, options.cost)):
        drawn = names or pick_renderer(rng, width, height)
        document = draw_document(rng, width, height, drawn, options.pages, early=names is not None)
        first, rest = views(document.image, plan)
        base.append(first)
        grid.append(rest)
        tokens = shown[tile_places(document.glyphs, plan)]
        packs = [pack(order, document.questions, length, hidden) for order in orders]
        turns.append([(*row, told_places(row[1], document, tokens)) for row in packs])
        where, which = glyph_places(document.glyphs, plan)
        glyphs.append((where + i * features, which))
    text, labels, weights, places = packed(turns)
    patch, kind = (torch.from_numpy(np.concatenate(c)) for c in zip(*glyphs, strict=True))
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
        places=places,
        alone=hidden,
    )


def token_of(packing: torch.Tensor, features: int) -> np.ndarray:
    """The visual token that shows each feature, int64 [features + 1]: -1 if none, or of none."""
    shown = np.full(features + 1, -1, np.int64)
    shown[packing.numpy()] = np.arange(len(packing))
    shown[-1] = -1  # the entry of the row ends
    return shown


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
        return *pick_size(rng, 180, 676), None
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
