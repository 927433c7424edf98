"""Pictures without a word: they stand for photographs, about which the third pocket is silent.

No photograph may be copied into the training, so lands, skies, leaves, faces and still lifes are
drawn as noise, gradients and shapes. `HELD` ones are drawn only to measure.
"""

import math
import random
from collections.abc import Callable
from typing import Final

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from pocket.content.colours import Colour, hsv
from pocket.layouts.backdrops import backdrop, between
from pocket.layouts.fields import Size, clouds, generator, grained, octaves

SMALL: Final = 160  # pixels of the longer side that fields of numbers are computed at
SOFT: Final = 0.4  # share that is out of focus


def draw(rng: random.Random, width: int, height: int, held: bool = False) -> Image.Image:
    """A picture of `width` x `height` pixels, RGB; `held`: of those kept out of training."""
    image = rng.choice(HELD if held else DRAWN)(rng, (width, height))
    if rng.random() < SOFT:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.6, max(1.0, width / 120))))
    if rng.random() < 0.7:
        image = grained(rng, image, rng.uniform(1, 8))
    return image


def _reduced(size: Size) -> Size:
    share = SMALL / max(size)
    return max(8, round(size[0] * share)), max(8, round(size[1] * share))


def _coloured(rng: random.Random, field: np.ndarray, size: Size) -> Image.Image:
    """A field of numbers as shades through three colours, at full size."""
    low, high = float(field.min()), float(field.max())
    levels = ((field - low) / max(1e-6, high - low) * 255).astype(np.uint8)
    hue, step = rng.random(), rng.uniform(-0.25, 0.25)
    tones = [
        np.array(hsv((hue + i * step) % 1, rng.uniform(0.1, 0.8), light), float)
        for i, light in enumerate(
            (rng.uniform(0.05, 0.35), rng.uniform(0.3, 0.7), rng.uniform(0.6, 1))
        )
    ]
    t = levels[..., None] / 255
    first = tones[0] + (tones[1] - tones[0]) * np.minimum(1, t * 2)
    colours = first + (tones[2] - tones[1]) * np.maximum(0, t * 2 - 1)
    small = Image.fromarray(np.clip(colours, 0, 255).astype(np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC)


def _axes(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of a small field, [rows, columns] each, about 0 to 1."""
    w, h = _reduced(size)
    y, x = np.mgrid[0:h, 0:w].astype(np.float32) / max(w, h)
    return x, y


def _plasma(rng: random.Random, size: Size) -> Image.Image:
    """Noise of every scale: clouds, stone, fur."""
    w, h = _reduced(size)
    noise = np.fft.rfft2(generator(rng).normal(size=(h, w)))
    rows, columns = np.fft.fftfreq(h)[:, None], np.fft.rfftfreq(w)[None]
    scale = np.hypot(rows * rng.uniform(0.4, 2.5), columns) + 1 / max(w, h)
    return _coloured(rng, np.fft.irfft2(noise / scale ** rng.uniform(0.8, 2.2), (h, w)), size)


def _gradient(rng: random.Random, size: Size) -> Image.Image:
    """Light that changes across the picture."""
    x, y = _axes(size)
    angle, (cx, cy) = rng.uniform(0, 6.3), (rng.random(), rng.random())
    flat = x * math.cos(angle) + y * math.sin(angle)
    return _coloured(rng, flat if rng.random() < 0.5 else np.hypot(x - cx, y - cy), size)


def _speckles(rng: random.Random, size: Size) -> Image.Image:
    """Noise of one scale in every colour."""
    cell = rng.choice((1, 2, 3, 6, 12))
    shape = (max(2, size[1] // cell), max(2, size[0] // cell), 3)
    values = generator(rng).normal(rng.uniform(70, 180), rng.uniform(15, 70), shape)
    small = Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))
    return small.resize(size, rng.choice((Image.Resampling.NEAREST, Image.Resampling.BICUBIC)))


def _ground(rng: random.Random, size: Size) -> Image.Image:
    return backdrop(rng, size)


def _tone(rng: random.Random, alpha: bool = False) -> tuple[int, ...]:
    colour = hsv(rng.random(), rng.uniform(0.1, 0.9), rng.uniform(0.15, 1))
    return (*colour, rng.randint(90, 255)) if alpha else colour


def _shapes(rng: random.Random, size: Size) -> Image.Image:
    """Discs, boxes, triangles and strokes on any ground."""
    w, h = size
    out = rng.choice((_gradient, _ground, _plasma))(rng, size)
    pen = ImageDraw.Draw(out, "RGBA")
    for _ in range(rng.randint(1, 24)):
        x, y, r = rng.uniform(0, w), rng.uniform(0, h), rng.uniform(0.02, 0.3) * min(size)
        kind, tone = rng.randrange(4), _tone(rng, alpha=True)
        if kind == 0:
            pen.ellipse((x - r, y - r * rng.uniform(0.4, 1), x + r, y + r), fill=tone)
        elif kind == 1:
            pen.rectangle((x - r, y - r * rng.uniform(0.3, 1), x + r, y + r), fill=tone)
        elif kind == 2:
            corners = [(x + rng.uniform(-r, r), y + rng.uniform(-r, r)) for _ in range(3)]
            pen.polygon(corners, fill=tone)
        else:
            end = (x + rng.uniform(-2, 2) * r, y + rng.uniform(-2, 2) * r)
            pen.line([(x, y), end], fill=tone, width=rng.randint(1, 14))
    return out


def _ridge(rng: random.Random, width: int, rough: float) -> np.ndarray:
    """A broken line [width] of mean 0: a row of hills."""
    line, step = np.zeros(2), 1.0
    while len(line) < width:
        middle = (line[1:] + line[:-1]) / 2 + generator(rng).normal(0, step, len(line) - 1)
        line = np.insert(line, range(1, len(line)), middle)
        step *= rough
    return line[:width] - line[:width].mean()


def _land(rng: random.Random, size: Size) -> Image.Image:
    """A sky, hills one behind the other, and a plain."""
    w, h = size
    sky = clouds(rng, size, (rng.randint(2, 9), rng.randint(2, 5)), 60, 255)
    hue = rng.choice((rng.uniform(0.52, 0.62), rng.uniform(0.0, 0.12), rng.random()))
    out = between(sky, hsv(hue, 0.6, rng.uniform(0.4, 0.8)), hsv(hue, 0.15, rng.uniform(0.8, 1)))
    pen, rows = ImageDraw.Draw(out), rng.randint(1, 5)
    hue, tint = rng.choice((rng.uniform(0.2, 0.42), rng.uniform(0.05, 0.12))), rng.uniform(0.1, 0.7)
    for row in range(rows):
        level = h * (0.35 + 0.5 * (row + 1) / (rows + 1))
        line = _ridge(rng, w, rng.uniform(0.45, 0.62))
        line = level + line / max(1e-6, float(np.abs(line).max())) * h * rng.uniform(0.03, 0.22)
        tone = hsv(hue, tint, 0.75 - 0.5 * (row + 1) / (rows + 1))
        pen.polygon([(0, h), *enumerate(line.tolist()), (w, h)], fill=tone)
    return Image.blend(out, between(octaves(rng, size, 9), (0, 0, 0), (255, 255, 255)), 0.12)


def _foliage(rng: random.Random, size: Size) -> Image.Image:
    """Leaves: hundreds of small pointed strokes, light over dark."""
    w, h = size
    hue, spread = rng.choice((rng.uniform(0.2, 0.4), rng.uniform(0.02, 0.14))), rng.uniform(0, 0.06)
    out = between(octaves(rng, size, 6), hsv(hue, 0.7, 0.05), hsv(hue, 0.7, 0.35))
    pen, long = ImageDraw.Draw(out), rng.uniform(0.02, 0.08) * max(size)
    for i in range(rng.randint(150, 500)):
        x, y, turn = rng.uniform(0, w), rng.uniform(0, h), rng.uniform(0, 6.3)
        dx, dy = math.cos(turn) * long, math.sin(turn) * long
        tone = hsv((hue + rng.uniform(-spread, spread)) % 1, 0.6, 0.2 + 0.6 * i / 500)
        side = (-dy * 0.22, dx * 0.22)
        pen.polygon(
            [(x - dx, y - dy), (x + side[0], y + side[1]), (x + dx, y + dy),
             (x - side[0], y - side[1])], fill=tone,
        )  # fmt: skip
    return out


def _figure(rng: random.Random, size: Size) -> Image.Image:
    """A person or an animal: a head, a body and limbs before something out of focus."""
    w, h = size
    ground = rng.choice((_plasma, _ground, _land))(rng, size)
    out = ground.filter(ImageFilter.GaussianBlur(max(2, w / rng.uniform(20, 80))))
    pen, skin, cloth = ImageDraw.Draw(out), _tone(rng), _tone(rng)
    x, r = w * rng.uniform(0.3, 0.7), min(size) * rng.uniform(0.08, 0.22)
    y = h * rng.uniform(0.25, 0.45)
    pen.ellipse((x - 1.7 * r, y + 1.1 * r, x + 1.7 * r, h * 1.5), fill=cloth)
    for side in (-1, 1):
        reach = (x + side * r * rng.uniform(1.5, 3), h * rng.uniform(0.6, 1))
        pen.line([(x + side * r, y + 1.8 * r), reach], fill=cloth, width=max(2, round(r * 0.5)))
        if rng.random() < 0.5:
            pen.ellipse((x + side * 0.9 * r - r / 3, y - 1.5 * r, x + side * 0.9 * r + r / 3, y),
                        fill=skin)  # fmt: skip
    pen.ellipse((x - r, y - 1.2 * r, x + r, y + 1.2 * r), fill=skin)
    for off in (-0.4, 0.4):
        pen.ellipse((x + (off - 0.12) * r, y - 0.3 * r, x + (off + 0.12) * r, y), fill=(20, 20, 25))
    pen.arc((x - 0.5 * r, y, x + 0.5 * r, y + 0.7 * r), 20, 160, fill=(90, 20, 30), width=2)
    return out


def _street(rng: random.Random, size: Size) -> Image.Image:
    """Houses with windows along a road, without a sign."""
    w, h = size
    out = _gradient(rng, size)
    pen, x = ImageDraw.Draw(out), 0.0
    while x < w:
        wide, top = w * rng.uniform(0.08, 0.3), h * rng.uniform(0.1, 0.5)
        pen.rectangle((x, top, x + wide, h * 0.85), fill=_tone(rng))
        pane, glass = max(4.0, wide / rng.randint(3, 6)), _tone(rng)
        for row in np.arange(top + pane * 0.5, h * 0.8 - pane, pane * 1.6):
            for column in np.arange(x + pane * 0.4, x + wide - pane * 0.8, pane * 1.3):
                pen.rectangle((column, row, column + pane * 0.7, row + pane), fill=glass)
        x += wide
    pen.rectangle((0, h * 0.85, w, h), fill=hsv(0, 0, rng.uniform(0.2, 0.5)))
    return out


def _cells(rng: random.Random, size: Size) -> Image.Image:
    """Pebbles, scales, cracked earth: each point by its distance from the nearest seeds."""
    x, y = _axes(size)
    seeds = generator(rng).random((rng.randint(12, 60), 2))
    far = np.sort([np.hypot(x - a, y - b) for a, b in seeds], 0)
    return _coloured(rng, far[1] - far[0] if rng.random() < 0.5 else far[0], size)


def _ripples(rng: random.Random, size: Size) -> Image.Image:
    """Water or sand: waves that cross."""
    x, y = _axes(size)
    waves = [
        np.sin((x * math.cos(a) + y * math.sin(a) * rng.uniform(1, 4)) * rng.uniform(20, 90))
        for a in (rng.uniform(0, 3.1) for _ in range(rng.randint(2, 5)))
    ]
    return _coloured(rng, np.sum(waves, 0) + rng.uniform(0, 6) * y, size)


def _still_life(rng: random.Random, size: Size) -> Image.Image:
    """Fruit on a table: shaded balls with shadows."""
    w, h = size
    out = Image.new("RGB", size, _shade(rng, 0.75))
    pen = ImageDraw.Draw(out)
    pen.rectangle((0, h * rng.uniform(0.5, 0.7), w, h), fill=_shade(rng, 0.4))
    for _ in range(rng.randint(1, 7)):
        r = min(size) * rng.uniform(0.07, 0.2)
        x, y = rng.uniform(r, w - r), h * rng.uniform(0.5, 0.8)
        hue = rng.choice((0.0, 0.08, 0.15, 0.3, 0.85, rng.random()))
        pen.ellipse((x - r, y + r * 0.6, x + 1.5 * r, y + 1.2 * r), fill=(40, 35, 35))
        for i in range(16):
            t = i / 15
            s, left, top = r * (1 - t), x - r * 0.35 * t, y - r * 0.35 * t
            tone = hsv(hue, 0.85 - 0.6 * t, 0.35 + 0.6 * t)
            pen.ellipse((left - s, top - s, left + s, top + s), fill=tone)
    return out


def _shade(rng: random.Random, light: float) -> Colour:
    return hsv(rng.random(), rng.uniform(0.05, 0.5), light * rng.uniform(0.6, 1.3) % 1)


def _forest(rng: random.Random, size: Size) -> Image.Image:
    """Trunks, near and far, in mist."""
    w, h = size
    hue, mist = rng.uniform(0.2, 0.6), rng.uniform(0.6, 0.95)
    out = between(clouds(rng, size, (3, 4), 120, 255), hsv(hue, 0.3, 0.3), hsv(hue, 0.1, mist))
    pen, count = ImageDraw.Draw(out), rng.randint(8, 40)
    for i in range(count):
        near = i / count
        x, wide = rng.uniform(0, w), w * (0.004 + 0.05 * near * rng.random())
        tone = hsv(0.08, 0.4 * near, mist * (1 - 0.85 * near))
        lean = rng.uniform(-0.04, 0.04) * w
        pen.polygon([(x - wide, h), (x + lean, 0), (x + lean + wide, 0), (x + wide, h)], fill=tone)
    return out


def _sea(rng: random.Random, size: Size) -> Image.Image:
    """A sun above water."""
    w, h = size
    x, y = _axes(size)
    out = _coloured(rng, y + 0.05 * np.sin(x * 9), size)
    pen, level = ImageDraw.Draw(out, "RGBA"), h * rng.uniform(0.4, 0.7)
    r, at = min(size) * rng.uniform(0.04, 0.15), w * rng.uniform(0.2, 0.8)
    tone = hsv(rng.uniform(0.02, 0.15), rng.uniform(0.1, 0.6), 1.0)
    pen.ellipse((at - r, level - 2 * r, at + r, level), fill=tone)
    pen.rectangle((0, level, w, h), fill=(*hsv(rng.uniform(0.5, 0.65), 0.6, 0.3), 150))
    for _ in range(rng.randint(20, 90)):
        line, far = rng.uniform(level, h), rng.uniform(0.2, 1.6) * r
        start = at + rng.gauss(0, r)
        pen.line([(start - far, line), (start + far, line)], fill=(*tone, 120), width=2)
    return out


Maker = Callable[[random.Random, Size], Image.Image]
DRAWN: Final[tuple[Maker, ...]] = (
    _plasma, _gradient, _speckles, _ground, _ground, _shapes, _land, _land, _foliage, _figure,
    _figure, _street,
)  # fmt: skip
HELD: Final[tuple[Maker, ...]] = (_cells, _ripples, _still_life, _forest, _sea)
