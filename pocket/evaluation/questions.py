"""The questions that measure: of freshly drawn documents, and of a browser's stored pages."""

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from pocket import shards
from pocket.document import Document, Question
from pocket.evaluation.measures import Answered, Pair
from pocket.generate import make_document
from pocket.layouts import scenery
from pocket.questions.declining import declined

# of the splits that are not measured at their family's sizes: tall, or large with small print
SIZES: Final = {
    "scanned": ((448, 896), (560, 1120), (616, 1288), (672, 672), (784, 1008)),
    "small": ((672, 672), (896, 896), (784, 1008), (1120, 700)),
}
SCENERY: Final = "scenery"  # the split of pictures without a word, beside `generate.SPLITS`
FIRST_SEED: Final = 1 << 60  # training draws 48-bit seeds


def drawn(
    size: str,
    splits: list[str],
    documents: int,
    questions: int,
    renderers: Sequence[str] = (),
) -> list[Pair]:
    """Every split's questions about documents of one size.

    Args:
        size: Width and height in pixels, as "448x336".
        splits: Which of `generate.SPLITS`, `train` or `scenery`.
        documents: How many of each split.
        questions: How many of each document, at most.
        renderers: So many documents of each of these; of the split's mixture where none is named.
    """
    width, height = (int(v) for v in size.split("x"))
    kinds: Sequence[list[str] | None] = [[name] for name in renderers] or [None]
    made = (
        draw_items(split, (width, height), documents, questions, names)
        for split in splits
        for names in kinds
    )
    return [(image, item) for each in made for image, items in each for item in items]


def draw_items(
    split: str,
    size: tuple[int, int],
    documents: int,
    questions: int,
    renderers: Sequence[str] | None = None,
) -> list[tuple[np.ndarray, list[Answered]]]:
    """Documents of one split and size, each with up to `questions` of its questions."""
    out = []
    for i in range(documents):
        seed = FIRST_SEED + i
        if split == SCENERY:
            document = wordless(seed, size)
        else:
            document = make_document(seed, *size, split=split, renderers=renderers)
        rng = random.Random(seed)
        chosen = document.questions[:questions]
        if split != SCENERY:
            chosen = _choose(rng, document.questions, questions)
        items = [
            Answered(split, document.renderer, f"{size[0]}x{size[1]}", q.kind, q.text, q.answer)
            for q in chosen
        ]
        out.append((np.asarray(document.image), items))
    return out


def wordless(seed: int, size: tuple[int, int]) -> Document:
    """A picture without a word that training never draws, with questions that it declines."""
    rng = random.Random(f"{SCENERY}/{seed}/{size}")
    other = make_document(seed, 448, 448, split="own")
    asked = declined(rng, [q.text for q in other.questions if len(q.text) < 80])
    image = scenery.draw(rng, *size, held=True)
    return Document(image, np.zeros((0, 3), np.float32), asked, SCENERY)


def stored_items(folder: Path, questions: int) -> list[tuple[np.ndarray, list[Answered]]]:
    """Stored documents (a browser's pages) as the split `browser`."""
    out = []
    for i in range(shards.count(folder)):
        document = shards.read(folder, i)
        chosen = _choose(random.Random(i), document.questions, questions)
        size = "x".join(map(str, document.image.size))
        items = [
            Answered("browser", document.renderer, size, q.kind, q.text, q.answer) for q in chosen
        ]
        out.append((np.asarray(document.image), items))
    return out


def _choose(rng: random.Random, questions: list[Question], n: int) -> list[Question]:
    """`n` questions of as many kinds as possible."""
    kinds: dict[str, list[Question]] = defaultdict(list)
    for q in questions:
        kinds[q.kind].append(q)
    names = list(kinds)
    rng.shuffle(names)
    return [rng.choice(kinds[k]) for k in names[:n]]
