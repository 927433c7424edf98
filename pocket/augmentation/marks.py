"""Marks on paper: pens, stamps, staples, holes, and a label typed over a scan."""

import math
import random
from typing import Final

import numpy as np
from PIL import Image, ImageDraw

from pocket.content import formats, lexicon, words
from pocket.content.colours import Colour, hsv
from pocket.document import Document
from pocket.glyphs import CLASS_OF
from pocket.layouts.fonts import face

STAMPS: Final = (
    "PAID|APPROVED|RECEIVED|COPY|POSTED|CANCELLED|CHECKED|ENTERED|BOOKED|FILED|OK|DONE|CASH|CLAIMED"
).split("|")
TAUGHT_TYPE: Final = "arimo-bold notosans-bold roboto-medium dejavu-bold inter-semibold".split()
Box = tuple[int, int, int, int]


def marked(rng: random.Random, document: Document, box: Box) -> None:
    """Put some marks on the paper inside `box`; changes the document's picture in place."""
    image = document.image
    pen = ImageDraw.Draw(image)
    ink = _pen_ink(rng)
    for make, share in ((_ring, 0.1), (_tick, 0.14), (_scribble, 0.16), (_stroke, 0.07)):
        if rng.random() < share:
            make(rng, pen, document, box, ink)
    if rng.random() < 0.1:
        _handwriting(rng, document, box, ink)
    if rng.random() < 0.09:
        _stamp(rng, document, box)
    if rng.random() < 0.06:
        _staple(rng, pen, box)
    if rng.random() < 0.05:
        _holes(rng, pen, box)


def _pen_ink(rng: random.Random) -> Colour:
    """Blue, black, red or green, as pens are."""
    hue = rng.choice((0.62, 0.62, 0.64, 0.66, 0.0, 0.38))
    if rng.random() < 0.3:
        return (rng.randint(10, 60),) * 3
    return hsv(hue, rng.uniform(0.5, 0.95), rng.uniform(0.35, 0.75))


def _wide(box: Box) -> int:
    """A pen's width for paper of this size."""
    return max(1, round((box[2] - box[0]) / 260))


def _quiet(
    rng: random.Random, document: Document, box: Box, size: tuple[int, int]
) -> tuple[int, int]:
    """The corner of a place of `size` with the fewest glyphs of a dozen tried."""
    g = document.glyphs
    best, least = (box[0], box[1]), math.inf
    for _ in range(12):
        x = rng.randint(box[0], max(box[0], box[2] - size[0]))
        y = rng.randint(box[1], max(box[1], box[3] - size[1]))
        inside = (
            (g[:, 1] > x - 6)
            & (g[:, 1] < x + size[0] + 6)
            & (g[:, 2] > y - 6)
            & (g[:, 2] < y + size[1] + 6)
        )
        count = float(inside.sum())
        if count < least:
            best, least = (x, y), count
    return best


def _target(rng: random.Random, document: Document, box: Box) -> tuple[float, float]:
    """A glyph's place, in the lower part of the paper mostly: amounts are there."""
    g = document.glyphs
    if not len(g):
        return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    low = g[g[:, 2] > np.quantile(g[:, 2], 0.5 if rng.random() < 0.8 else 0.0)]
    some = low[rng.randrange(len(low))] if len(low) else g[0]
    return float(some[1]), float(some[2])


def _curve(
    rng: random.Random, points: list[tuple[float, float]], n: int = 40
) -> list[tuple[float, float]]:
    """A smooth line through a few points."""
    way = np.linspace(0, len(points) - 1, n)
    i = np.minimum(way.astype(int), len(points) - 2)
    t = way - i
    p = np.array([points[0], *points, points[-1]])
    a, b, c, d = p[i], p[i + 1], p[i + 2], p[i + 3]
    t = t[:, None]
    out = 0.5 * (
        2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3
    )
    return [(float(x), float(y)) for x, y in out]


def _ring(
    rng: random.Random, pen: ImageDraw.ImageDraw, document: Document, box: Box, ink: Colour
) -> None:
    """A figure circled by hand."""
    x, y = _target(rng, document, box)
    wide, high = (
        rng.uniform(0.06, 0.16) * (box[2] - box[0]),
        rng.uniform(0.03, 0.09) * (box[2] - box[0]),
    )
    start, turns = rng.uniform(0, 6.3), rng.uniform(6.0, 7.6)
    way = [start + turns * k / 10 for k in range(11)]
    ring = [
        (
            x + wide * math.cos(a) * rng.uniform(0.9, 1.1),
            y + high * math.sin(a) * rng.uniform(0.9, 1.1),
        )
        for a in way
    ]
    pen.line(_curve(rng, ring, 60), ink, _wide(box))


def _tick(
    rng: random.Random, pen: ImageDraw.ImageDraw, document: Document, box: Box, ink: Colour
) -> None:
    """Ticks beside lines."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        x, y = _target(rng, document, box)
        same = document.glyphs[np.abs(document.glyphs[:, 2] - y) < 5]
        end = float(same[:, 1].max()) if len(same) else x  # behind its line, not on it
        x, s = (
            min(box[2] - 8.0, end + rng.uniform(8, 40)),
            rng.uniform(0.02, 0.05) * (box[2] - box[0]),
        )
        pen.line(
            _curve(rng, [(x, y), (x + s * 0.3, y + s * 0.5), (x + s, y - s)], 12),
            ink,
            _wide(box) + 1,
        )


def _scribble(
    rng: random.Random, pen: ImageDraw.ImageDraw, document: Document, box: Box, ink: Colour
) -> None:
    """A signature or an illegible word, where the paper is empty."""
    wide = round(rng.uniform(0.15, 0.4) * (box[2] - box[0]))
    high = round(wide * rng.uniform(0.15, 0.35))
    x, y = _quiet(rng, document, box, (wide, high))
    n = rng.randint(7, 22)
    points = [
        (x + wide * k / n + rng.uniform(-0.04, 0.04) * wide, y + rng.uniform(0, high))
        for k in range(n)
    ]
    pen.line(_curve(rng, points, 6 * n), ink, _wide(box))


def _stroke(
    rng: random.Random, pen: ImageDraw.ImageDraw, document: Document, box: Box, ink: Colour
) -> None:
    """A line drawn under a line of text."""
    x, y = _target(rng, document, box)
    end = x + rng.uniform(0.1, 0.4) * (box[2] - box[0])
    y += rng.uniform(8, 14)
    pen.line(
        _curve(rng, [(x - 20, y), ((x + end) / 2, y + rng.uniform(-4, 4)), (end, y)], 16),
        ink,
        _wide(box),
    )


def _handwriting(rng: random.Random, document: Document, box: Box, ink: Colour) -> None:
    """A word or an amount written by hand; it is no part of what is asked."""
    text = rng.choice(
        (
            f"{rng.uniform(1, 400):.2f}",
            lexicon.word(rng),
            rng.choice(words.FIRST),
            f"{rng.randint(1, 28)}/{rng.randint(1, 12)}",
        )
    )
    letters = face("dancing-bold", max(12, round((box[2] - box[0]) * rng.uniform(0.045, 0.09))))
    mask, _, _ = letters.mask(text)
    mask = mask.rotate(rng.uniform(-12, 18), expand=True, resample=Image.Resampling.BILINEAR)
    document.image.paste(ink, _quiet(rng, document, box, mask.size), mask)


def _stamp(rng: random.Random, document: Document, box: Box) -> None:
    """A rubber stamp, unevenly inked."""
    wide = max(60, round((box[2] - box[0]) * rng.uniform(0.2, 0.42)))
    text = rng.choice(STAMPS)
    letters = face(rng.choice(TAUGHT_TYPE), max(9, round(wide / (0.75 * len(text) + 2))))
    high = letters.line * rng.choice((1.5, 2.6))
    stamp = Image.new("L", (wide, round(high)), 0)
    pen = ImageDraw.Draw(stamp)
    if rng.random() < 0.75:
        pen.rectangle((1, 1, wide - 2, round(high) - 2), outline=255, width=max(1, wide // 60))
    mask, left, top = letters.mask(text)
    pen.bitmap((round(wide - letters.width(text)) // 2 + left, letters.line // 5 + top), mask, 255)
    if high > 2 * letters.line:
        day = face("cousine-regular", max(8, letters.size // 2))
        mask, left, top = day.mask(formats.date(rng)[:11])
        pen.bitmap((wide // 6, letters.line * 7 // 5), mask, 255)
    worn = Image.fromarray(
        np.random.default_rng(rng.getrandbits(32))
        .integers(60, 256, (stamp.height // 4 + 1, wide // 4 + 1))
        .astype(np.uint8)
    )
    stamp = Image.composite(
        stamp, Image.new("L", stamp.size), worn.resize(stamp.size, Image.Resampling.BILINEAR)
    )
    stamp = stamp.rotate(rng.gauss(0, 8), expand=True, resample=Image.Resampling.BILINEAR)
    ink = hsv(rng.choice((0.0, 0.0, 0.62, 0.75, 0.4)), 0.75, rng.uniform(0.5, 0.85))
    document.image.paste(ink, _quiet(rng, document, box, stamp.size), stamp)


def _staple(rng: random.Random, pen: ImageDraw.ImageDraw, box: Box) -> None:
    """A staple in an upper corner, with its shadow."""
    side = max(8, (box[2] - box[0]) // 26)
    x = rng.choice((box[0] + side, box[2] - 3 * side)) + rng.randint(0, side)
    y, slope = box[1] + side + rng.randint(0, 2 * side), rng.uniform(-0.5, 0.5)
    pen.line([(x + 1, y + 2), (x + side + 1, y + slope * side + 2)], (120, 120, 120), 2)
    pen.line([(x, y), (x + side, y + slope * side)], (185, 188, 192), 2)


def _holes(rng: random.Random, pen: ImageDraw.ImageDraw, box: Box) -> None:
    """Punched holes along the left side."""
    r = max(4, (box[3] - box[1]) // 90)
    x, middle = box[0] + 3 * r, (box[1] + box[3]) // 2
    tone = (rng.randint(30, 200),) * 3
    for y in (middle - 12 * r, middle + 12 * r):
        pen.ellipse((x - r, y - r, x + r, y + r), fill=tone)


def labelled(rng: random.Random, document: Document) -> None:
    """A name or number typed over the top of the scan, clean and large."""
    w, h = document.image.size
    text = rng.choice(
        (
            formats.run(rng, "0123456789", 5, 8),
            words.person(rng).lower(),
            f"{lexicon.word(rng)} {rng.randint(1, 99)}",
        )
    )
    letters = face(rng.choice(TAUGHT_TYPE[:3]), max(10, round(w * rng.uniform(0.03, 0.055))))
    if letters.width(text) > 0.8 * w or (document.glyphs[:, 2] < letters.line * 1.6).any():
        return
    x, y = rng.choice((w * 0.02, w * 0.3)), letters.line * 0.3
    mask, left, top = letters.mask(text)
    ImageDraw.Draw(document.image).bitmap((round(x) + left, round(y) + top), mask, (0, 0, 0))
    points, at = [], round(x) + 0.0
    for ch, advance in zip(text, letters.advances(text), strict=True):
        if ch in CLASS_OF:
            points.append((CLASS_OF[ch], at + advance / 2, round(y) + letters.ascent * 0.64))
        at += advance
    document.glyphs = np.concatenate([document.glyphs, np.array(points, np.float32).reshape(-1, 3)])
