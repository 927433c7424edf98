"""Strips and sheets of paper with a slip on them: how large, where, by which printer."""

import random
from collections.abc import Callable
from typing import Final

from pocket.content.slips import Slip
from pocket.document import Document
from pocket.layouts.pillow.canvas import blank_page
from pocket.layouts.pillow.slips import Type, largest, print_slip
from pocket.layouts.style import PageStyle

# a printer's name -> fonts (plain and bold); the last ones print only what measures
PRINTERS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "thermal": (
        ("cousine-regular", "cousine-regular"), ("dejavumono-regular", "dejavumono-regular"),
        ("hack-regular", "hack-regular"), ("firacode-regular", "firacode-regular"),
        ("inconsolata-regular", "inconsolata-regular"), ("arimo-regular", "arimo-bold"),
        ("narrow-regular", "opensanscond-bold"), ("robotocondensed-regular", "opensanscond-bold"),
        ("notosans-regular", "notosans-bold"), ("dejavucondensed-regular", "dejavu-bold"),
    ),
    "matrix": (
        ("cousine-regular", "cousine-regular"), ("dejavumono-regular", "dejavumono-regular"),
        ("hack-regular", "hack-regular"), ("courierprime-regular", "courierprime-regular"),
    ),
    "laser": (
        ("arimo-regular", "arimo-bold"), ("tinos-regular", "tinos-bold"),
        ("roboto-regular", "roboto-bold"), ("opensans-regular", "opensans-semibold"),
        ("dejavu-regular", "dejavu-bold"), ("courierprime-regular", "courierprime-regular"),
        ("notoserif-regular", "notoserif-bold"), ("quicksand-medium", "quicksand-bold"),
    ),
    "inkjet": (
        ("arimo-regular", "arimo-bold"), ("tinos-regular", "tinos-bold"),
        ("cantarell-regular", "cantarell-bold"), ("notosans-regular", "notosans-bold"),
    ),
    "fax": (("jetbrains-regular", "jetbrains-regular"), ("carlito-regular", "carlito-bold")),
    "ribbon": (("jetbrains-regular", "jetbrains-regular"), ("clearsans-regular", "clearsans-bold")),
}  # fmt: skip
TAUGHT: Final = {"thermal": 6.0, "matrix": 2.0, "laser": 2.5, "inkjet": 1.0}
MEASURED: Final = {"fax": 1.0, "ribbon": 1.0}
MONO: Final = (
    "cousine",
    "dejavumono",
    "hack",
    "firacode",
    "inconsolata",
    "courierprime",
    "jetbrains",
)
LEAST: Final = 8.6  # pixels of a letter's size that can be read
Make = Callable[[random.Random, int, int], Slip]  # of a number of items and a budget of bytes


def on_paper(rng: random.Random, style: PageStyle, make: Make) -> Document:
    """A slip on a strip of paper that fills the picture's height, or on a blank sheet."""
    printer, type_ = printer_and_type(rng, style.split)
    sheet, area = _place(rng, style)
    width, height = area[2] - area[0], area[3] - area[1]
    most = min(rng.triangular(9.5, 28, 14), max(LEAST + 0.5, width / 13))
    items = rng.choice((1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 12, 16))
    for _ in range(5):
        slip = make(rng, items, style.budget)
        size = largest(slip, type_, width, height, most)
        if size >= LEAST:
            break
        items = max(1, items // 2)
    canvas = blank_page(style, (255, 255, 255))
    if size < LEAST:
        return canvas.document([])
    spare = height - size * type_.pitch * sum(line.room for line in slip.lines)
    top = area[1] + rng.uniform(0, 0.35) * spare
    if sheet[3] - sheet[1] < style.height or rng.random() < 0.5:  # torn off below the last line
        foot = area[3] - spare * rng.uniform(0.1, 0.6)
        sheet = (*sheet[:3], min(sheet[3], round(max(foot, top + height - spare + size))))
    print_slip(canvas, slip, type_, size, (area[0], top, area[2]))
    document = canvas.document(slip.questions)
    document.printer, document.sheet = printer, sheet
    return document


def printer_and_type(rng: random.Random, split: str) -> tuple[str, Type]:
    """A printer of the split, and the type that is set in it."""
    shares = MEASURED if split == "unseen" else TAUGHT
    printer = rng.choices(list(shares), list(shares.values()))[0]
    slug, bold = rng.choice(PRINTERS[printer])
    wide, dots = rng.uniform(0.88, 1.08), 0
    if slug.split("-")[0] in MONO:
        wide = rng.uniform(0.68, 1.0)
    if printer == "matrix" and rng.random() < 0.45:
        dots = rng.choice((11, 12, 14, 16))
    return printer, Type(slug, bold, wide, dots, rng.uniform(1.05, 1.4))


def _place(
    rng: random.Random, style: PageStyle
) -> tuple[tuple[int, int, int, int], tuple[float, float, float, float]]:
    """The paper's position in the picture, and its printable part."""
    w, h = style.width, style.height
    if rng.random() < 0.12 and min(w, h) > 600:  # a small slip on a scanner's whole glass
        across = rng.uniform(0.4, 0.62) * w
        left, top = rng.uniform(0.05, 0.9) * (w - across), rng.uniform(0.04, 0.3) * h
        return (0, 0, w, h), (left, top, left + across, h - 8.0)
    wide = min(w * rng.uniform(0.9, 1.0), h * rng.uniform(0.36, 0.72))
    if w / h < 0.62 and rng.random() < 0.6:
        wide = float(w)
    left = round((w - wide) * rng.uniform(0.2, 0.8))
    top = 0 if rng.random() < 0.6 else round(h * rng.uniform(0, 0.05))
    foot = h if rng.random() < 0.5 else h - round(h * rng.uniform(0, 0.06))
    sheet = left, top, round(left + wide), foot
    m = wide * rng.uniform(0.02, 0.12)
    over = (foot - top) * rng.choice((0.01, 0.02, 0.05, 0.1))
    return sheet, (left + m, top + over, left + wide - m, foot - over * 0.5 - 2.0)
