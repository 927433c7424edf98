"""A photograph of a place: at an angle, in some light, a little out of focus."""

import random

from pocket.augmentation import paper, sheets
from pocket.document import Document
from pocket.layouts import fields


def photographed(rng: random.Random, document: Document, severity: float = 1.0) -> Document:
    """`document`, drawn straight on, as a camera sees it; its glyphs follow.

    Args:
        rng: Says how.
        document: Changed in place.
        severity: Scales angles, shadows, blur and noise; 0: as drawn.
    """
    if severity == 0:
        return document
    image = document.image
    if rng.random() < 0.75:
        bend = sheets.seen_closer(rng, image.size, severity)
        image = bend.bent(image, (70, 70, 74))
        paper.follow(document, bend)
    if rng.random() < 0.7:
        image = fields.lit(image, paper.daylight(rng, image.size, severity))
    if rng.random() < 0.3:
        image = paper.softened(rng, image)
    if rng.random() < 0.6:
        image = fields.grained(rng, image, rng.uniform(1, 9) * severity)
    if rng.random() < 0.75:
        image = paper.compressed(rng, image)
    document.image = image
    return document
