"""Documents rendered elsewhere (a browser's pages), kept in zip shards and read back."""

import io
import json
import random
import zipfile
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from pocket.augmentation import raster
from pocket.document import Document, Question


def write(path: Path, documents: list[Document], least: int = 70, most: int = 85) -> None:
    """Write documents as one shard: WebP images, int16 glyphs, JSON questions.

    Args:
        path: The shard, a zip file.
        documents: In their order.
        least: WebP's lowest quality; it runs up to the highest from document to document.
        most: WebP's highest quality.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as shard:
        index = []
        for i, d in enumerate(documents):
            buffer = io.BytesIO()
            quality = least + i * 17 % (most - least + 1)
            d.image.save(buffer, "WEBP", quality=quality, method=4)
            shard.writestr(zipfile.ZipInfo(f"{i}.webp"), buffer.getvalue())
            shard.writestr(f"{i}.glyphs", d.glyphs.round().astype("<i2").tobytes())
            questions = [[q.kind, q.text, q.answer] for q in d.questions]
            index.append({"name": d.renderer, "size": d.image.size, "questions": questions})
        shard.writestr("index.json", json.dumps(index, ensure_ascii=False))


@lru_cache(maxsize=8)
def _index(folder: Path) -> list[tuple[Path, int, dict]]:
    """Every document of a folder of shards: its shard, number and description."""
    out = []
    for path in sorted(folder.glob("*.zip")):
        with zipfile.ZipFile(path) as shard:
            rows = json.loads(shard.read("index.json"))
        out += [(path, i, row) for i, row in enumerate(rows)]
    return out


@lru_cache(maxsize=32)
def _open(path: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(path.read_bytes()))


def count(folder: Path) -> int:
    """The number of documents in a folder of shards."""
    return len(_index(folder))


def read(folder: Path, i: int) -> Document:
    """Document `i` of a folder of shards."""
    path, number, row = _index(folder)[i]
    shard = _open(path)
    image = Image.open(io.BytesIO(shard.read(f"{number}.webp"))).convert("RGB")
    glyphs = np.frombuffer(shard.read(f"{number}.glyphs"), "<i2").reshape(-1, 3)
    questions = [Question(*q) for q in row["questions"]]
    return Document(image, glyphs.astype(np.float32), questions, renderer=row["name"])


def draw(rng: random.Random, folder: Path, width: int, height: int) -> Document | None:
    """A stored document fitted into `width` x `height`; None if none is near that size."""
    rows = _index(folder)
    for _ in range(12):
        i = rng.randrange(len(rows))
        w, h = rows[i][2]["size"]
        fit = min(width / w, height / h)
        if 0.72 <= fit <= 1.35 and w * h * fit * fit > 0.6 * width * height:
            return _place(rng, read(folder, i), fit, width, height)
    return None


def _place(rng: random.Random, document: Document, fit: float, width: int, height: int) -> Document:
    """Scale by up to `fit` and put it somewhere on a ground of its own corner's colour."""
    scale = fit * rng.uniform(0.9, 1.0) if rng.random() < 0.6 else fit
    if 1.0 <= fit < 1.12 and rng.random() < 0.5:
        scale = 1.0
    image = document.image
    if not any(q.kind == "colour" for q in document.questions):
        image = _repaint(rng, image)
    size = max(28, int(image.width * scale)), max(28, int(image.height * scale))
    size = min(size[0], width), min(size[1], height)
    ground = Image.new("RGB", (width, height), image.getpixel((1, 1)))
    left, top = rng.randint(0, width - size[0]), rng.randint(0, height - size[1])
    if size != image.size:
        image = raster.resized(image, (size,), Image.Resampling.BICUBIC)
    ground.paste(image, (left, top))
    glyphs = document.glyphs.copy()
    glyphs[:, 1] = glyphs[:, 1] * (size[0] / document.image.width) + left
    glyphs[:, 2] = glyphs[:, 2] * (size[1] / document.image.height) + top
    return Document(ground, glyphs, document.questions, document.renderer)


def _repaint(rng: random.Random, image: Image.Image) -> Image.Image:
    """Other colours for the same page, at times: negative, channels exchanged, grey."""
    r = rng.random()
    if r < 0.12:
        return ImageOps.invert(image)
    if r < 0.35:
        order = rng.sample(range(3), 3)
        bands = image.split()
        return Image.merge("RGB", [bands[i] for i in order])
    return image.convert("L").convert("RGB") if r < 0.4 else image
