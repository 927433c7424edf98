"""Blank margins go from pictures that would be scaled down; nothing else does."""

import random

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from rotatek.inputs.crop_margins import blank_margins
from tests.families import tiny_qwen2

UNIT, MOST = 28, 256  # 448 x 448 pixels fit
BOX = (700, 500, 1100, 1300)


def sheet(ground: int = 255, ink: int = 20, size: tuple[int, int] = (1600, 2000)) -> Image.Image:
    """A sheet with lines of letters inside `BOX`."""
    image = Image.new("RGB", size, (ground,) * 3)
    pen = ImageDraw.Draw(image)
    for y in range(BOX[1], BOX[3] - 30, 40):
        pen.text((BOX[0], y), "Receipt number 4711", fill=(ink,) * 3, font_size=34)
    return image


def part(image: Image.Image) -> tuple[float, float, float, float] | None:
    """The visible part, in pixels: left, top, right, bottom."""
    cut = blank_margins(image, UNIT, MOST)
    if cut is None:
        return None
    wide, high = image.width / cut.columns, image.height / cut.rows
    assert (cut.bottom - cut.top) * (cut.right - cut.left) <= MOST < cut.rows * cut.columns
    return cut.left * wide, cut.top * high, cut.right * wide, cut.bottom * high


def holds(image: Image.Image) -> bool:
    """Whether all that differs from the ground is inside what is shown, and the rest is gone."""
    found = part(image)
    ground = image.getpixel((0, 0))
    inside = Image.new("RGB", image.size, ground)
    if found is None:
        return False
    left, top, right, bottom = (round(v) for v in found)
    inside.paste(image.crop((left, top, right, bottom)), (left, top))
    cut = (found[2] - found[0]) * (found[3] - found[1]) < 0.5 * image.width * image.height
    return cut and inside.tobytes() == image.tobytes()


@pytest.mark.parametrize(("ground", "ink"), [(255, 20), (18, 235)])
def test_margins_go_and_the_text_stays(ground: int, ink: int) -> None:
    assert holds(sheet(ground, ink))


def test_specks_do_not_count_as_text() -> None:
    image, rng = sheet(), random.Random(3)
    for _ in range(300):
        x, y = rng.randrange(40, 1560), rng.randrange(40, 1960)
        image.paste((0, 0, 0), (x, y, x + 3, y + 3))
    left, top, right, bottom = part(image) or (0, 0, 0, 0)
    assert left > 300 and top > 250 and right < 1400 and bottom < 1700
    assert left <= BOX[0] and top <= BOX[1] and right >= BOX[2] - 40 and bottom >= BOX[3] - 60


def test_pictures_without_blank_margins_are_left_alone() -> None:
    ramp = np.linspace(0, 255, 1600, dtype=np.uint8)[None, :, None].repeat(2000, 0).repeat(3, 2)
    noise = np.random.default_rng(0).integers(0, 255, (200, 160, 3)).astype(np.uint8)
    photograph = Image.fromarray(noise).resize((1600, 2000)).filter(ImageFilter.GaussianBlur(9))
    for image in (Image.fromarray(ramp), photograph, Image.new("RGB", (1600, 2000), "white")):
        assert blank_margins(image, UNIT, MOST) is None
    framed = sheet()
    ImageDraw.Draw(framed).rectangle((0, 0, 1599, 1999), outline=(0, 0, 0), width=30)
    assert blank_margins(framed, UNIT, MOST) is None  # the edge has content of its own


def test_a_model_is_shown_the_part_alone_and_its_maps_lie_over_the_whole() -> None:
    vlm = tiny_qwen2()
    plain, large = Image.new("RGB", (280, 224), "white"), sheet()
    pixels = vlm.preprocess([plain, large])
    fits, trimmed = pixels.grids
    cut = blank_margins(large, UNIT, MOST)
    assert cut is not None and (trimmed.rows, trimmed.columns) == (cut.rows, cut.columns)
    assert not fits.trimmed and trimmed.trimmed and trimmed.start == pixels.counts[0]
    assert pixels.counts[1] == (cut.bottom - cut.top) * (cut.right - cut.left)
    seen = trimmed.to_cells(np.ones(sum(pixels.counts), dtype=bool))
    assert seen[cut.top : cut.bottom, cut.left : cut.right].all() and seen.sum() == pixels.counts[1]
