"""Training batches of the third pocket: documents, pictures that are none, plain conversations."""

import random
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from PIL import Image

from pocket import mixture
from pocket.augmentation import raster
from pocket.augmentation.degradation import stretched
from pocket.content import plain
from pocket.document import Document, Question
from pocket.layouts import scenery
from pocket.models.batch import Batch
from pocket.models.config import UNIT, text_length
from pocket.models.subwords import Subwords
from pocket.questions.declining import KIND as DECLINING
from pocket.questions.declining import declined
from pocket.questions.freeform import freeform
from pocket.training.data import (
    BatchOptions,
    curriculum,
    draw_document,
    glyph_targets,
    packed,
)
from pocket.training.packing import pack

# shares of the pictures of a batch; the rest are documents of the usual mixture
SCENES: Final = 0.07  # pictures without a word
BESIDE: Final = 0.06  # documents in such a picture
LARGE_TYPE: Final = 0.09  # few words, in letters of any size
WORDED: Final = 0.22  # asked in people's words: stored pages where there are any, or leaflets
FAULTS: Final = 0.14  # kinds that the first pocket reads worst in pictures by other hands
FAULTY: Final = (
    "tables", "ledgers", "grids", "leaflets", "controls", "workboards", "panels", "terminals",
    "handsets", "figures", "listings", "printouts", "swatches", "combs", "combs",
)  # fmt: skip
LETTERED: Final = ("signs", "scenes", "packages", "remarks", "leaflets", "forms", "cards")
ENLARGED: Final = (1.8, 4.0)  # times: from letters of the usual size to such as fill a picture
PLAIN: Final = 0.12  # of the pictures are asked something plain, too
FREE: Final = 0.6  # of the documents are asked freely, where they hold enough for it
PLAIN_EVERY: Final = 4  # steps from one batch with conversations of text alone to the next
ROWS, LONGEST = 24, 96  # ... how many those are, and their tokens
ROUND: Final = 64  # tokens that a text's room is a multiple of
MOST: Final = 160  # pictures of a batch


@dataclass(frozen=True)
class SmolOptions:
    """What all batches of a run have in common, `cost` in decoder tokens, and the tokens."""

    batch: BatchOptions
    codec: Subwords
    rows: int = ROWS


def room(width: int, height: int) -> int:
    """Tokens of the text beside a picture: a token holds about 2.7 of the first pocket's bytes."""
    return -(-text_length(width, height) // 2 // ROUND) * ROUND


def batch_size(visual: int, length: int, cost: int) -> int:
    """Pictures a batch: `cost` decoder tokens, attention counted in."""
    tokens = visual + length
    return max(2, min(MOST, int(cost / (tokens * (1 + tokens / 4000)))))


def make_smol(options: SmolOptions, index: int, progress: float, world: int = 1) -> Batch:
    """One batch of the third pocket's training.

    Args:
        options: What all batches of the run have in common.
        index: Which batch of the run.
        progress: How far the run is, in [0, 1] of the curriculum.
        world: Ranks that train together. Their batches of one step are of one size.
    """
    run, codec = options.batch, options.codec
    step = index // world
    chance = random.Random(f"size/{run.seed}/{step}")
    (width, height), drawn, names = curriculum(chance, progress, run.largest)
    hidden = random.Random(f"alone/{run.seed}/{step}").random() < run.alone
    rng = random.Random(f"smol/{run.seed}/{index}")
    orders = run.orders(rng, index)
    n, length = width * height // UNIT**2, room(*drawn)
    count = batch_size(n, length, run.cost)
    images = np.empty((count, height, width, 3), np.uint8)
    turns, patches, classes, asked = [], [], [], list[str]()
    for i in range(count):
        document = pictured(rng, drawn, names, run, asked)
        document = stretched(document, width, height)
        images[i] = np.asarray(document.image)
        if all(q.kind != DECLINING for q in document.questions):
            asked += [q.text for q in document.questions if len(q.text) < 80]
        turns.append([pack(order, document.questions, length, hidden, codec) for order in orders])
        p, c = glyph_targets(document)
        patches.append(p + i * 4 * n)
        classes.append(c)
    patch, glyph = (torch.from_numpy(np.concatenate(x)) for x in (patches, classes))
    text, labels, weights = packed(turns)
    rows = 0 if step % PLAIN_EVERY else options.rows
    talk = conversations(random.Random(f"plain/{run.seed}/{index}"), codec, rows)
    pixels = torch.from_numpy(images)
    counts = tuple(int((use >= 0).sum()) for use in labels.split(count))
    return Batch(pixels, text, labels, weights, patch, glyph, hidden, talk, counts)


def pictured(
    rng: random.Random,
    size: tuple[int, int],
    names: tuple[str, ...] | None,
    run: BatchOptions,
    asked: list[str],
) -> Document:
    """A picture to train on, with its questions.

    Args:
        rng: Says which.
        size: Width and height in pixels.
        names: The renderers that the curriculum is limited to, or None.
        run: What all batches have in common.
        asked: What other documents were asked.
    """
    kinds = ("scene", "beside", "large", "worded", "fault", "usual")
    shares = (SCENES, BESIDE, LARGE_TYPE, WORDED, FAULTS)
    kind = rng.choices(kinds, (*shares, 1 - sum(shares)))[0]
    if kind == "scene":
        image = scenery.draw(rng, *size)
        document = Document(image, np.zeros((0, 3), np.float32), declined(rng, asked), "scenery")
    elif kind == "large":
        document = enlarged(rng, size, run)
    elif kind == "beside":
        document = surrounded(rng, size, run)
    else:
        chosen = names or {"worded": ("leaflets",), "fault": (rng.choice(FAULTY),)}.get(kind)
        stored = 1.0 if kind == "worded" else mixture.STORED
        document = draw_document(rng, *size, chosen, run.pages, names is not None, stored)
    if kind != "scene" and rng.random() < FREE:
        whole = next((q.answer for q in document.questions if q.kind == "transcribe"), "")
        document.questions = document.questions + freeform(rng, whole)
    if rng.random() < PLAIN:
        document.questions = [*document.questions, Question("plain", *plain.one(rng))]
    return document


def enlarged(rng: random.Random, size: tuple[int, int], run: BatchOptions) -> Document:
    """A small document scaled up: letters as large as on a poster or a sign held close."""
    times = rng.uniform(*ENLARGED)
    w, h = (max(224, round(side / times)) for side in size)
    document = draw_document(rng, w, h, (rng.choice(LETTERED),), run.pages)
    return stretched(document, *size)


def surrounded(rng: random.Random, size: tuple[int, int], run: BatchOptions) -> Document:
    """A document that lies or hangs somewhere in a picture: it is read, not declined."""
    share = rng.uniform(0.55, 0.9)
    w, h = (max(224, round(side * share)) for side in size)
    document = draw_document(rng, w, h, None, run.pages)
    w, h = min(w, size[0]), min(h, size[1])
    image = raster.resized(document.image, ((w, h),), Image.Resampling.BICUBIC)
    left, top = rng.randint(0, size[0] - w), rng.randint(0, size[1] - h)
    glyphs = document.glyphs.copy()
    glyphs[:, 1] = glyphs[:, 1] * (w / document.image.width) + left
    glyphs[:, 2] = glyphs[:, 2] * (h / document.image.height) + top
    ground = scenery.draw(rng, *size)
    ground.paste(image, (left, top))
    return replace(document, image=ground, glyphs=glyphs)


def conversations(rng: random.Random, codec: Any, rows: int) -> torch.Tensor | None:
    """Conversations without a picture, int64 [rows, at most `LONGEST`], padded; None of none."""
    if not rows:
        return None
    out = torch.full((rows, LONGEST), codec.PAD, dtype=torch.int64)
    for row in out:
        ids = _talk(codec, *plain.own(rng))[:LONGEST]
        row[: len(ids)] = torch.tensor(ids)
    return out


@lru_cache(maxsize=4096)
def _talk(codec: Subwords, asked: str, said: str) -> tuple[int, ...]:
    return (*codec.plain_ids(asked), *codec.answer_ids(said))
