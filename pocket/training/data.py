"""From documents to training batches: the curriculum, glyph targets, loader workers."""

import gc
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Value
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from pocket import mixture
from pocket.augmentation.degradation import stretched
from pocket.document import Document
from pocket.generate import ForTraining, make_document, pick_size, tall_size
from pocket.models.batch import Batch
from pocket.models.config import PATCH, UNIT, scaled, text_length
from pocket.questions.comparisons import comparisons
from pocket.questions.derived import revised
from pocket.questions.freeform import KIND
from pocket.training.packing import pack

STRETCHED_SHARE: Final = 0.15
STRETCH: Final = 1.2
USUAL: Final = 1024  # visual tokens of the largest pictures, unless a run is to have larger ones
MORE: Final = 0.45  # share of the steps that have those
FEW: Final = 400  # visual tokens, up to which pictures have any multiple of 6
Size = tuple[int, int]  # width and height in pixels
EASY: Final = ("signs", "pages", "forms", "screens", "tables")


@dataclass(frozen=True)
class BatchOptions:
    """The common settings of all batches of a run.

    Attributes:
        seed: The run's.
        cost: Bounds a batch: about the sum over its images of visual tokens + text tokens / 4.
        pages: A folder of stored documents to mix in, or none.
        echo: Uses that the questions of a picture are packed for; the first is the same whatever
            their number.
        alone: Share of the steps that hide the turns of a sequence from each other.
        largest: Visual tokens of the largest pictures; beyond 1024, some batches are tall pages.
    """

    seed: int
    cost: int
    pages: Path | None = None
    echo: int = 1
    alone: float = 0.0
    largest: int = USUAL

    def orders(self, first: random.Random, index: int) -> list[random.Random]:
        """The generator of the order of the questions, use by use, in batch `index`."""
        later = (random.Random(f"echo/{self.seed}/{index}/{k}") for k in range(1, self.echo))
        return [first, *later]


def glyph_targets(document: Document) -> tuple[np.ndarray, np.ndarray]:
    """Patch (in the model's order: 2 x 2 blocks, row by row) and class of each visible glyph."""
    width, height = document.image.size
    g = document.glyphs
    inside = (g[:, 1] >= 0) & (g[:, 1] < width) & (g[:, 2] >= 0) & (g[:, 2] < height)
    g = g[inside]
    c, r = (g[:, 1] // PATCH).astype(np.int64), (g[:, 2] // PATCH).astype(np.int64)
    patch = ((r // 2) * (width // UNIT) + c // 2) * 4 + (r % 2) * 2 + c % 2
    return patch, g[:, 0].astype(np.int64)


def packed(turns: Sequence[Sequence[tuple[np.ndarray, ...]]]) -> Iterator[torch.Tensor]:
    """Each column of the rows: all pictures' first packing, then all pictures' second, ..."""
    rows = [packing for use in zip(*turns, strict=True) for packing in use]
    return (torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True))


def draw_document(
    rng: random.Random,
    width: int,
    height: int,
    names: tuple[str, ...] | None,
    pages: Path | None,
    early: bool = False,
    stored: float = mixture.STORED,
) -> Document:
    """A document to train on.

    Some are squeezed or stretched along one side, as pictures are that a page has resized.

    Args:
        rng: Says which.
        width: Pixels.
        height: Pixels.
        names: The renderers to draw from; None: all.
        pages: A folder of stored documents to mix in, or none.
        early: Whether to degrade it less, and to mix nothing in.
        stored: The share of stored documents.
    """
    severity, mixed = (0.4, None) if early else (1.0, pages)
    seed, w, h = rng.getrandbits(48), width, height
    if rng.random() < STRETCHED_SHARE:
        by = rng.uniform(1 / STRETCH, STRETCH)
        w, h = (max(224, round(w * by)), h) if rng.random() < 0.5 else (w, max(224, round(h * by)))
    document = make_document(seed, w, h, "train", names, severity, ForTraining(mixed, stored))
    whole = next((q.answer for q in document.questions if q.kind == "transcribe"), "")
    compared = comparisons(rng, whole)
    document.questions = revised(rng, document.questions) + compared
    return stretched(document, width, height)


def make_batch(options: BatchOptions, index: int, progress: float, world: int = 1) -> Batch:
    """One batch of the first pocket model's training.

    Args:
        options: What all batches of the run have in common.
        index: Which batch of the run.
        progress: How far the run is, in [0, 1] of the curriculum.
        world: Ranks that train together. Their batches of one step are of one size, so that none
            waits long for another.
    """
    seed, step = options.seed, index // world
    chance = random.Random(f"size/{seed}/{step}")
    size, drawn, names = curriculum(chance, progress, options.largest)
    width, height = size
    hidden = random.Random(f"alone/{seed}/{step}").random() < options.alone
    rng = random.Random(f"batch/{seed}/{index}")
    orders = options.orders(rng, index)
    n = width * height // UNIT**2
    length = text_length(*drawn)
    count = max(2, min(176, int(options.cost / ((n + length / 4) * (1 + n / 2000)))))
    images = np.empty((count, height, width, 3), np.uint8)
    turns, patches, classes = [], [], []
    for i in range(count):
        drawing = draw_document(rng, *drawn, names, options.pages, early=names is not None)
        document = stretched(drawing, width, height)
        images[i] = np.asarray(document.image)
        asked = [q for q in document.questions if q.kind != KIND]  # it has no language for those
        turns.append([pack(order, asked, length, hidden) for order in orders])
        p, c = glyph_targets(document)
        patches.append(p + i * 4 * n)
        classes.append(c)
    patch, glyph = (torch.from_numpy(np.concatenate(x)) for x in (patches, classes))
    text, labels, weights = packed(turns)
    return Batch(torch.from_numpy(images), text, labels, weights, patch, glyph, hidden)


def curriculum(
    rng: random.Random, progress: float, largest: int = USUAL
) -> tuple[Size, Size, tuple[str, ...] | None]:
    """The contents of the next batch. Later on small documents are scaled up, as when served.

    Args:
        rng: Says which.
        progress: How far the run is, in [0, 1].
        largest: Visual tokens at most.

    Returns:
        The batch's size, the size its documents are drawn at and, early on, by which renderers.
    """
    if progress < 0.05:
        return (224, 224), (224, 224), ("signs",) if rng.random() < 0.6 else EASY
    if progress < 0.12:
        drawn = bucket(*pick_size(rng, 64, 160), 160)
        return drawn, drawn, EASY if rng.random() < 0.5 else None
    if progress < 0.4:
        drawn = bucket(*pick_size(rng, 72, 300), 300)
        return drawn, drawn, None
    if largest > USUAL and rng.random() < MORE:
        pick = tall_size if rng.random() < 0.5 else pick_size
        drawn = bucket(*pick(rng, 500, largest), largest)
        return drawn, drawn, None
    least, most = (400, USUAL) if rng.random() < 0.7 else (72, 420)
    drawn = bucket(*pick_size(rng, least, most), most)
    return bucket(*scaled(*drawn), most), drawn, None


def bucket(width: int, height: int, most: int) -> tuple[int, int]:
    """The nearest size of a multiple of 6 visual tokens; those below 100 tokens stay.

    The attention of cuDNN spends 110 ms on a plan for every new count of tokens, so counts of more
    than `FEW` tokens are multiples of 24 where that changes no side by more than two.
    """
    w, h = width // UNIT, height // UNIT
    if w * h < 100:
        return width, height
    near = [(a, b) for a in range(w - 2, w + 3) for b in range(h - 2, h + 3)]
    for step in (24, 6) if w * h > FEW else (6,):
        fit = [s for s in near if min(s) >= 8 and s[0] * s[1] % step == 0 and s[0] * s[1] <= most]
        if fit:
            break
    a, b = min(fit, key=lambda s: (abs(s[0] - w) + abs(s[1] - h), abs(s[0] * s[1] - w * h)))
    return a * UNIT, b * UNIT


class Stream(IterableDataset):
    """Batches of one rank, made by the loader's worker processes."""

    def __init__(
        self, make: Callable[..., Any], start: int, rank: int, world: int, progress: Any
    ) -> None:
        super().__init__()
        self.make, self.progress = make, progress
        self.start, self.rank, self.world = start, rank, world

    def __iter__(self) -> Iterator[Any]:
        torch.set_num_threads(1)
        info = get_worker_info()
        if info:
            gc.freeze()  # what the fork brought along stays: no need to go through it again
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        step = self.start + worker
        while True:
            index = step * self.world + self.rank
            yield self.make(index=index, progress=self.progress.value, world=self.world)
            step += workers


def loader(
    make: Callable[..., Any], start: int, rank: int, world: int, workers: int
) -> tuple[DataLoader, Any]:
    """The loader of a run's batches in worker processes.

    Args:
        make: `make_batch` or its like, to be called with index, progress and world.
        start: The step to begin with.
        rank: This process's, of those that train together.
        world: How many there are.
        workers: Processes that make batches; 0: this one.

    Returns:
        The loader, and the shared progress value that steers its curriculum.
    """
    progress = Value("d", 0.0)
    made = DataLoader(
        Stream(make, start, rank, world, progress),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=2 if workers else None,
        pin_memory=torch.cuda.is_available(),
        multiprocessing_context="fork" if workers else None,
    )
    return made, progress


def spare_cores() -> int:
    """Cores for loaders when every rank keeps three: forward, backward, pinning."""
    return max(1, (os.cpu_count() or 2) - 3 * int(os.environ.get("WORLD_SIZE", 1)))
