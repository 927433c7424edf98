"""Effects of cameras, scanners and chat programs on a document; glyph centres move with it."""

import io
import random
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter

from pocket.augmentation import raster
from pocket.document import Document


def degrade(
    rng: random.Random, document: Document, severity: float = 1.0, fast: bool = False
) -> Document:
    """Half of the time leave a document alone, else degrade it a little, as a camera does.

    Args:
        rng: Says how.
        document: Changed in place where it is; its glyphs follow its pixels.
        severity: Scales angles, blur and noise.
        fast: For training: pixels differ a little in rounding and are turned bilinearly only.
    """
    r = rng.random()
    if r < 0.45:
        return document
    image, glyphs = document.image, document.glyphs
    if r > 0.9 and image.width * image.height > 120_000:
        image, glyphs = _framed(rng, image, glyphs, fast)
    elif r > 0.75:
        image, glyphs = _perspective(rng, image, glyphs, severity, fast)
        if rng.random() < 0.6:
            image = _shadow(rng, image)
    if rng.random() < 0.3:
        image = _resample(rng, image, fast)
    if rng.random() < 0.3:
        image = _blur(rng.uniform(0.3, 0.85) * severity, image, fast)
    if rng.random() < 0.3:
        image = ImageEnhance.Brightness(image).enhance(rng.uniform(0.75, 1.15))
        image = ImageEnhance.Contrast(image).enhance(rng.uniform(0.7, 1.15))
    if rng.random() < 0.3:
        image = _noise(rng, image, rng.uniform(2, 12) * severity)
    if rng.random() < 0.45:
        image = _jpeg(image, rng.randint(30, 92))
    document.image, document.glyphs = image, glyphs
    return document


def stretched(document: Document, width: int, height: int) -> Document:
    """`document` at `width` x `height` pixels, whatever its shape was."""
    before = document.image.size
    if before != (width, height):
        size = ((width, height),)
        document.image = raster.resized(document.image, size, Image.Resampling.BICUBIC)
        glyphs = document.glyphs.copy()
        glyphs[:, 1:] *= np.array([width / before[0], height / before[1]], np.float32)
        document.glyphs = glyphs
    return document


def _blur(sigma: float, image: Image.Image, fast: bool) -> Image.Image:
    """A Gaussian of at most 0.85 pixels, by 3 x 3 weights: a fifth of the usual filter's time."""
    side = np.exp(-0.5 / max(sigma, 0.05) ** 2)
    if fast:
        return raster.blurred(image, float(side))
    row = np.array([side, 1, side]) / (1 + 2 * side)
    return image.filter(ImageFilter.Kernel((3, 3), np.outer(row, row).flatten().tolist(), 1))


def _jpeg(image: Image.Image, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer).convert("RGB")


def _noise(rng: random.Random, image: Image.Image, sigma: float) -> Image.Image:
    pixels = np.asarray(image).astype(np.int16)
    generator = np.random.default_rng(rng.getrandbits(32))
    tile = generator.normal(0, sigma, (128, 128)).astype(np.int16)
    h, w = pixels.shape[:2]
    rows = np.tile(tile.repeat(3, axis=1), (1, w // 128 + 1))[:, : 3 * w]  # red, green, blue alike
    flat = pixels.reshape(h, 3 * w)
    for top in range(0, h, 128):
        flat[top : top + 128] += rows[: h - top]
    return Image.fromarray(np.clip(pixels, 0, 255, out=pixels).astype(np.uint8))


def _resized(
    image: Image.Image, sizes: Sequence[raster.Size], method: Image.Resampling, fast: bool
) -> Image.Image:
    """`image` at the last of `sizes` by way of the others."""
    if fast:
        return raster.resized(image, sizes, method)
    for size in sizes:
        image = image.resize(size, method)
    return image


def _resample(rng: random.Random, image: Image.Image, fast: bool) -> Image.Image:
    """Scale down or up and back, as screenshots in documents have been."""
    factor = rng.uniform(0.8, 1.6)
    size = max(8, round(image.width * factor)), max(8, round(image.height * factor))
    method = rng.choice((Image.Resampling.BILINEAR, Image.Resampling.BICUBIC))
    return _resized(image, (size, image.size), method, fast)


def _framed(
    rng: random.Random, image: Image.Image, glyphs: np.ndarray, fast: bool
) -> tuple[Image.Image, np.ndarray]:
    """The document smaller, as a window or a sheet on a plain or graded ground."""
    w, h = image.size
    scale = rng.uniform(0.76, 0.96)
    size = int(w * scale), int(h * scale)
    left, top = rng.randint(0, w - size[0]), rng.randint(0, h - size[1])
    ground = Image.new("RGB", (w, h), tuple(rng.randint(0, 255) for _ in range(3)))
    if rng.random() < 0.5:
        ramp = Image.linear_gradient("L").resize((w, h))
        other = Image.new("RGB", (w, h), tuple(rng.randint(0, 255) for _ in range(3)))
        ground = Image.composite(ground, other, ramp)
    ground.paste(_resized(image, (size,), Image.Resampling.BICUBIC, fast), (left, top))
    moved = glyphs.copy()
    moved[:, 1:] = moved[:, 1:] * scale + np.array([left, top], np.float32)
    return ground, moved


def _shadow(rng: random.Random, image: Image.Image) -> Image.Image:
    """A soft gradient of light over the page."""
    w, h = image.size
    ys, xs = np.mgrid[0:h:8, 0:w:8]
    angle = rng.uniform(0, 2 * np.pi)
    ramp = xs / w * np.cos(angle) + ys / h * np.sin(angle)
    ramp = (ramp - ramp.min()) / (np.ptp(ramp) + 1e-6)
    light = 255 * (1 - rng.uniform(0.1, 0.45) * ramp ** rng.uniform(0.7, 3))
    mask = Image.fromarray(light.astype(np.uint8)).resize((w, h), Image.Resampling.BILINEAR)
    return Image.composite(image, Image.new("RGB", (w, h), (0, 0, 0)), mask)


def _perspective(
    rng: random.Random, image: Image.Image, glyphs: np.ndarray, severity: float, fast: bool
) -> tuple[Image.Image, np.ndarray]:
    """A page photographed at an angle on a plain desk."""
    w, h = image.size
    reach = 0.05 * severity
    corners = [(0, 0), (w, 0), (w, h), (0, h)]
    moved = []
    for x, y in corners:
        dx, dy = rng.uniform(0, reach) * w, rng.uniform(0, reach) * h
        moved.append((x + (dx if x == 0 else -dx), y + (dy if y == 0 else -dy)))
    forward = _homography(corners, moved)
    inverse = np.linalg.inv(forward)
    inverse /= inverse[2, 2]
    if rng.random() < 0.4:  # a slight turn as well
        turn = np.deg2rad(rng.uniform(-3, 3) * severity)
        c, s = np.cos(turn), np.sin(turn)
        a, b = w / 2, h / 2
        spin = np.array([[c, -s, a - c * a + s * b], [s, c, b - s * a - c * b], [0, 0, 1]])
        forward = spin @ forward
        inverse = np.linalg.inv(forward)
        inverse /= inverse[2, 2]
    desk = tuple(rng.randint(30, 220) for _ in range(3))
    method = rng.choice((Image.Resampling.BILINEAR, Image.Resampling.BICUBIC))
    out = image.transform(
        (w, h),
        Image.Transform.PERSPECTIVE,
        tuple(inverse.flatten()[:8]),
        Image.Resampling.BILINEAR if fast else method,
        fillcolor=desk,
    )
    if len(glyphs) == 0:
        return out, glyphs
    points = np.c_[glyphs[:, 1:], np.ones(len(glyphs))] @ forward.T
    moved_glyphs = glyphs.copy()
    moved_glyphs[:, 1:] = points[:, :2] / points[:, 2:]
    return out, moved_glyphs


def _homography(source: list, target: list) -> np.ndarray:
    rows, right = [], []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
        right += [u, v]
    h = np.linalg.solve(np.array(rows, float), np.array(right, float))
    return np.append(h, 1).reshape(3, 3)
