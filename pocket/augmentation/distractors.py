"""Things on a page that hold no text: bar codes, blocks, logos, pictures, watermarks, stains."""

import random
from typing import Final

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from pocket.content.colours import SERIES_NAMES, Colour, shade
from pocket.document import Document
from pocket.layouts import fonts

CELL: Final = 14


def distract(rng: random.Random, document: Document) -> Document:
    """Put a few of them where the page is empty; the text and its glyphs stay as they are."""
    if rng.random() < 0.12:
        document.image = _watermark(rng, document.image)
    free = _free(document)
    for _ in range(rng.randint(1, 4)):
        place = _room(rng, free)
        if place is None:
            break
        row, column, rows, columns = place
        free[row : row + rows, column : column + columns] = False
        size = columns * CELL - 4, rows * CELL - 4
        thing = rng.choice((_bars, _bars, _blocks, _blocks, _logo, _logo, _ramp, _noise, _icons))
        picture = thing(rng, *size)
        document.image.paste(picture, (column * CELL + 2, row * CELL + 2))
    return document


def _free(document: Document) -> np.ndarray:
    """Cells of CELL pixels that are flat, hold no glyph and have none beside them."""
    pixels = np.asarray(document.image.convert("L"))
    rows, columns = pixels.shape[0] // CELL, pixels.shape[1] // CELL
    strips = pixels[: rows * CELL, : columns * CELL].reshape(rows, CELL, -1)
    highest = strips.max(1).reshape(rows, columns, CELL).max(2)
    lowest = strips.min(1).reshape(rows, columns, CELL).min(2)
    corner = int(pixels[2, 2])
    flat = (highest <= corner + 3) & (lowest >= corner - 3)
    places = document.glyphs[:, :0:-1].astype(np.int64) // CELL  # row, column; -2: off the page
    r, c = places.clip(-2, [rows + 1, columns + 1]).T + 2
    near = np.zeros((rows + 4, columns + 4), bool)
    near[r, c] = True
    near = near[:-2] | near[1:-1] | near[2:]
    near = near[:, :-2] | near[:, 1:-1] | near[:, 2:]
    return flat & ~near[1:-1, 1:-1]


def _room(rng: random.Random, free: np.ndarray) -> tuple[int, int, int, int] | None:
    """A free rectangle of cells: row, column, rows, columns."""
    for _ in range(25):
        rows, columns = rng.randint(2, 8), rng.randint(2, 11)
        if rows >= free.shape[0] or columns >= free.shape[1]:
            continue
        r, c = rng.randrange(free.shape[0] - rows), rng.randrange(free.shape[1] - columns)
        if free[r : r + rows, c : c + columns].all():
            return r, c, rows, columns
    return None


def _tint(rng: random.Random) -> Colour:
    return shade(rng, rng.choice(SERIES_NAMES))


def _bars(rng: random.Random, w: int, h: int) -> Image.Image:
    """A bar code."""
    widths = np.random.default_rng(rng.getrandbits(32)).integers(1, 5, w)
    row = np.repeat(np.arange(w) % 2, widths)[:w].astype(np.uint8) * 255
    return Image.fromarray(np.tile(row, (h, 1))).convert("RGB")


def _blocks(rng: random.Random, w: int, h: int) -> Image.Image:
    """A square of black and white blocks with three marks in its corners."""
    n, side = rng.randint(15, 29), min(w, h)
    grid = np.random.default_rng(rng.getrandbits(32)).integers(0, 2, (n, n)).astype(np.uint8) * 255
    mark = np.zeros((7, 7), np.uint8)
    mark[1:6, 1:6], mark[2:5, 2:5] = 255, 0
    grid[:7, :7] = grid[:7, -7:] = grid[-7:, :7] = mark
    out = Image.new("RGB", (w, h), (255, 255, 255))
    out.paste(Image.fromarray(grid).resize((side, side), Image.Resampling.NEAREST), (0, 0))
    return out


def _logo(rng: random.Random, w: int, h: int) -> Image.Image:
    """A few overlapping shapes."""
    out = Image.new("RGB", (w, h), rng.choice(((255, 255, 255), _tint(rng))))
    pen = ImageDraw.Draw(out)
    for _ in range(rng.randint(1, 5)):
        x, y, r = rng.randrange(w), rng.randrange(h), rng.randint(4, max(5, min(w, h) // 2))
        kind, tint = rng.randrange(4), _tint(rng)
        if kind == 0:
            pen.ellipse((x - r, y - r, x + r, y + r), fill=tint)
        elif kind == 1:
            pen.rectangle((x - r, y - r // 2, x + r, y + r // 2), fill=tint)
        elif kind == 2:
            pen.polygon([(x, y - r), (x + r, y + r), (x - r, y + r)], fill=tint)
        else:
            pen.arc((x - r, y - r, x + r, y + r), 0, rng.randint(90, 360), fill=tint, width=4)
    return out


def _ramp(rng: random.Random, w: int, h: int) -> Image.Image:
    """A soft change from one colour to another."""
    ramp = Image.linear_gradient("L").rotate(rng.choice((0, 90, 180))).resize((w, h))
    return Image.composite(
        Image.new("RGB", (w, h), _tint(rng)), Image.new("RGB", (w, h), _tint(rng)), ramp
    )


def _noise(rng: random.Random, w: int, h: int) -> Image.Image:
    """Coarse coloured noise, like a small photo from afar."""
    n = rng.randint(3, 12)
    few = np.random.default_rng(rng.getrandbits(32)).integers(0, 256, (n, n, 3)).astype(np.uint8)
    return Image.fromarray(few).resize((w, h), Image.Resampling.BICUBIC)


def _icons(rng: random.Random, w: int, h: int) -> Image.Image:
    """A row of outlined icons."""
    out = Image.new("RGB", (w, h), (255, 255, 255))
    pen, side = ImageDraw.Draw(out), min(w, h)
    for x in range(0, w - side + 1, side + 4):
        tint, box = _tint(rng), (x + 2, 2, x + side - 3, side - 3)
        kind = rng.randrange(3)
        if kind == 0:
            pen.ellipse(box, outline=tint, width=2)
        elif kind == 1:
            pen.rectangle(box, outline=tint, width=2)
        else:
            pen.line(
                (x + 2, side - 3, x + side // 2, 2, x + side - 3, side - 3), fill=tint, width=2
            )
    return out


def _watermark(rng: random.Random, image: Image.Image) -> Image.Image:
    """A large faint word across the page, which is not part of its text."""
    word = rng.choice(("DRAFT", "COPY", "SAMPLE", "PAID", "VOID", "CONFIDENTIAL"))
    slug = rng.choice([s for s in fonts.slugs() if fonts.family(s) not in fonts.HELD_OUT])
    font = ImageFont.truetype(str(fonts.slugs()[slug]), image.width // (len(word) + 1))
    mask = Image.new("L", image.size, 0)
    pen = ImageDraw.Draw(mask)
    pen.text(
        (image.width / 2, image.height / 2), word, font=font, fill=rng.randint(12, 34), anchor="mm"
    )
    mask = mask.rotate(rng.choice((0, 30, 45, -30)))
    return Image.composite(Image.new("RGB", image.size, _tint(rng)), image, mask)
