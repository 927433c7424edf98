"""From a page as it was set to a picture of the paper: printed, laid on glass or photographed."""

import io
import random

import numpy as np
from PIL import Image, ImageChops, ImageOps

from pocket.augmentation import marks, printing, sheets
from pocket.content.colours import Colour, hsv
from pocket.document import Document
from pocket.layouts import fields
from pocket.layouts.backdrops import backdrop

LIGHT = 200  # mean grey of a page that can be paper


def on_paper(rng: random.Random, document: Document, severity: float = 1.0) -> Document:
    """`document` as a picture of a printed sheet; its glyphs follow the ink.

    Args:
        rng: Says how.
        document: Dark on light; changed in place.
        severity: Scales what printers, hands and lenses do; 0 only prints it.
    """
    size = document.image.size
    box = document.sheet or (0, 0, *size)
    severity *= fineness(document)
    printer = document.printer or rng.choice(("laser", "laser", "inkjet", "thermal", "matrix"))
    page = printing.printed(rng, document.image.convert("L"), printer, severity)
    if severity == 0:
        document.image = page.convert("RGB")
        return document
    ways = (5, 0 if printer == "fax" or severity < 0.4 else 1.2, 3.5)  # a fax is like a copy
    way = rng.choices((_glass, _copier, _photo), ways)[0]
    way(rng, document, page, (printer, box, severity))
    if rng.random() < 0.75:
        document.image = compressed(rng, document.image)
    return document


def fineness(document: Document) -> float:
    """The damage that the type can take: from 0.3 for the smallest legible one to 1."""
    g = document.glyphs
    along = np.diff(g[:, 1])[np.abs(np.diff(g[:, 2])) < 1] if len(g) > 1 else np.zeros(0)
    along = along[(along > 1) & (along < 40)]
    advance = float(np.median(along)) if len(along) else 8.0
    return float(np.clip((advance - 3.4) / 5, 0.3, 1.0))


Job = tuple[str, tuple[int, int, int, int], float]  # printer, sheet, severity


def _inks(rng: random.Random, printer: str) -> tuple[Colour, Colour]:
    """The colours of ink and paper."""
    tint = rng.choice((0, 0.01, 0.03, 0.06, rng.uniform(0, 0.2)))
    paper = hsv(rng.choice((0.09, 0.1, 0.13, 0.58, 0.62)), tint, rng.uniform(0.9, 1.0))
    if rng.random() < 0.04:
        paper = hsv(rng.random(), rng.uniform(0.08, 0.25), rng.uniform(0.85, 1))
    dark = rng.randint(5, 60)
    if printer in ("matrix", "ribbon") or (printer == "thermal" and rng.random() < 0.25):
        hue = rng.choice((0.66, 0.7, 0.75, 0.62))
        return hsv(hue, rng.uniform(0.1, 0.75), rng.uniform(0.2, 0.6)), paper
    return (dark, dark, min(255, dark + rng.choice((0, 0, 8, 20)))), paper


def follow(document: Document, bend: sheets.Bend) -> None:
    """Move the glyphs to where they are seen."""
    glyphs = document.glyphs.copy()
    if len(glyphs):
        glyphs[:, 1:] = bend.seen(glyphs[:, 1:].astype(float))
    document.glyphs = glyphs


def _bent(
    rng: random.Random, document: Document, page: Image.Image, bend: sheets.Bend,
    box: tuple[int, int, int, int],
) -> tuple[Image.Image, Image.Image | None]:  # fmt: skip
    """The page as it is seen, and where it is paper (None: everywhere)."""
    size = document.image.size
    seen = bend.bent(page, 255)
    follow(document, bend)
    edge = bend.outline(box)
    whole = box == (0, 0, *size) and rng.random() < 0.5
    return seen, None if whole else sheets.cut_out(size, edge)


def _glass(rng: random.Random, document: Document, page: Image.Image, job: Job) -> None:
    """A flat-bed scanner: askew, a white, grey or black lid, specks, at times creases."""
    printer, box, severity = job
    size = page.size
    seen, mask = _bent(rng, document, page, sheets.scanned(rng, size, severity), box)
    if rng.random() < 0.5:
        seen = fields.grained(rng, seen, rng.uniform(1, 7) * severity)
    if rng.random() < 0.3:
        seen = fields.lit(seen, _creased(rng, size, severity * 0.5))
    document.image = ImageOps.colorize(seen, *_inks(rng, printer))
    marks.marked(rng, document, _inside(box, size))
    if mask is not None:
        lid = rng.choice(
            ((255, 255, 255), (255, 255, 255), (250, 250, 248), (205, 208, 210), (12, 12, 14))
        )
        document.image = _laid(
            rng, document.image, Image.new("RGB", size, lid), mask, rng.random() < 0.5
        )
    if rng.random() < 0.2:
        marks.labelled(rng, document)
    if rng.random() < 0.3:
        _dust(rng, document.image)


def _copier(rng: random.Random, document: Document, page: Image.Image, job: Job) -> None:
    """Black or white only: ragged strokes, lost ones, pepper."""
    _, box, severity = job
    seen, _ = _bent(rng, document, page, sheets.scanned(rng, page.size, severity), box)
    seen = fields.grained(rng, seen, 9 * severity)
    level = rng.randint(150, 222)
    seen = seen.point([255 if i > level else 0 for i in range(256)])
    document.image = seen.convert("RGB")
    marks.marked(rng, document, _inside(box, page.size))
    _dust(rng, document.image)
    if rng.random() < 0.25:
        marks.labelled(rng, document)


def _photo(rng: random.Random, document: Document, page: Image.Image, job: Job) -> None:
    """A telephone: at an angle, on a desk, in uneven light."""
    printer, box, severity = job
    size = page.size
    bend = sheets.photographed(rng, size, severity)
    seen, mask = _bent(rng, document, page, bend, box)
    seen = fields.lit(seen, _creased(rng, size, severity))
    if rng.random() < 0.6:
        seen = fields.grained(rng, seen, rng.uniform(1, 8) * severity)
    image = ImageOps.colorize(seen, *_inks(rng, printer))
    document.image = image
    marks.marked(rng, document, _inside(box, size))
    image = document.image
    if mask is not None:
        image = _laid(rng, image, backdrop(rng, size), mask, True)
    image = fields.lit(image, daylight(rng, size, severity))
    if rng.random() < 0.35 * severity:
        image = softened(rng, image)
    document.image = image


def _inside(box: tuple[int, int, int, int], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The sheet without its edge."""
    m = 6
    return (
        box[0] + m,
        box[1] + m,
        max(box[0] + 2 * m, box[2] - m),
        max(box[1] + 2 * m, min(size[1], box[3]) - m),
    )


def _laid(
    rng: random.Random, paper: Image.Image, ground: Image.Image, mask: Image.Image, shaded: bool
) -> Image.Image:
    """Paper on a ground, with its shadow at times."""
    if shaded:
        small = mask.resize(
            (max(8, mask.width // 12), max(8, mask.height // 12)), Image.Resampling.BOX
        )
        small = ImageChops.offset(small, rng.choice((-1, 0, 1)), rng.choice((0, 1)))
        depth = rng.uniform(0.3, 0.8)
        soft = small.point([round(255 - depth * i) for i in range(256)]).resize(
            mask.size, Image.Resampling.BILINEAR
        )
        ground = fields.lit(ground, soft)
    return Image.composite(paper, ground, mask)


def _creased(rng: random.Random, size: tuple[int, int], severity: float) -> Image.Image:
    """Light on paper that was folded or crumpled: bands and slopes around 240."""
    rows, columns = 48, 24
    light = np.full((rows, columns), 250.0)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        across = rng.random() < 0.6
        at, slope = rng.uniform(0.1, 0.9), rng.uniform(-0.15, 0.15)
        y, x = np.mgrid[0 : 1 : rows * 1j, 0 : 1 : columns * 1j]
        far = (y - at + slope * (x - 0.5)) if across else (x - at + slope * (y - 0.5))
        width = rng.uniform(0.012, 0.05)
        light += (
            severity * rng.uniform(8, 40) * np.sign(far) * np.exp(-np.abs(far) / width)
            - severity * 8
        )
    folds = fields.spread(light, size)
    if rng.random() < 0.35:
        low = 255 - severity * rng.uniform(10, 45)
        bumps = fields.clouds(rng, size, (rng.randint(5, 12), rng.randint(8, 20)), low, 262)
        return ImageChops.multiply(folds, bumps)
    return folds


def daylight(rng: random.Random, size: tuple[int, int], severity: float) -> Image.Image:
    """Light that falls off to a side, the shadow of a hand or a telephone, dark corners."""
    y, x = np.mgrid[0:1:20j, 0:1:16j]
    turn = rng.uniform(0, 2 * np.pi)
    slope = (x - 0.5) * np.cos(turn) + (y - 0.5) * np.sin(turn)
    light = 1 - severity * rng.uniform(0.02, 0.3) * (slope + 0.7)
    if rng.random() < 0.4:
        edge = (x - rng.uniform(0.2, 0.8)) * np.cos(turn * 2) + (
            y - rng.uniform(0.2, 0.8)
        ) * np.sin(turn * 2)
        light *= 1 - severity * rng.uniform(0.1, 0.4) / (1 + np.exp(-edge * rng.uniform(8, 40)))
    if rng.random() < 0.4:
        light *= 1 - severity * rng.uniform(0.1, 0.4) * ((x - 0.5) ** 2 + (y - 0.5) ** 2)
    return fields.spread(light * rng.uniform(0.8, 1.08) * 255, size)


def softened(rng: random.Random, image: Image.Image) -> Image.Image:
    """Out of focus or shaken, a little: half the pixels of one side or of both."""
    w, h = image.size
    share = rng.uniform(0.6, 0.9)
    small = round(w * share), round(h * (share if rng.random() < 0.7 else 1))
    return image.resize(small, Image.Resampling.BILINEAR).resize(
        image.size, Image.Resampling.BILINEAR
    )


def _dust(rng: random.Random, image: Image.Image) -> None:
    """Specks."""
    for _ in range(rng.randint(3, 40)):
        x, y = rng.randrange(image.width), rng.randrange(image.height)
        side = rng.choice((1, 1, 1, 2, 3))
        tone = rng.randint(0, 150)
        image.paste(
            (tone,) * 3,
            (x, y, min(image.width, x + side), min(image.height, y + rng.choice((1, side)))),
        )


def compressed(rng: random.Random, image: Image.Image) -> Image.Image:
    """Through a JPEG file."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=rng.randint(35, 92))
    return Image.open(buffer).convert("RGB")
