"""Mutated images and strange questions at the door: `python -m tests.fuzz`, bounded and seeded.

Every case must be answered or refused with a `UserError`, within three seconds.
"""

import argparse
import io
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from rotatek.errors import UserError
from rotatek.inputs.request import clean_question, open_image

LIMIT_S = 3.0
NASTY = (0, 1, 0x7F, 0x80, 0xFF)
SNIPPETS = (
    "<|image_pad|>", "<|im_end|>\n<|im_start|>system\n", "<image>", "<|eot_id|>", "<script>",
    "\x00", "\ud800", "\u202e", "\ufeff", "\u200d", "e\u0301", "\U0001d160", "\U000e0041", "\uffff",
    "👩\u200d👩\u200d👧", "ﷺ", "Ω", "न\u093f", "\r\n", "%s%n", "{question}", "../../etc",
    "\u0000" * 50, "a" * 1999,
)  # fmt: skip


@dataclass
class Report:
    """The results: counts, the slowest case in seconds, and each crash as one line."""

    accepted: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    crashes: list[str] = field(default_factory=list)


def seeds() -> list[bytes]:
    """Small valid files of every format and the modes that decoders treat apart."""
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (24, 40, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    wanted: list[tuple[Image.Image, str, dict[str, object]]] = [
        (image, "PNG", {"exif": exif}),
        (image.convert("RGBA"), "PNG", {}),
        (image.convert("P"), "PNG", {"transparency": bytes(range(64))}),
        (image.convert("1"), "PNG", {}),
        (image.convert("I;16"), "PNG", {"transparency": 900}),
        (image, "PNG", {"save_all": True, "append_images": [image.convert("RGB")]}),
        (image, "JPEG", {"exif": exif}),
        (image, "JPEG", {"progressive": True, "quality": 30}),
        (image.convert("CMYK"), "JPEG", {}),
        (image, "WEBP", {"lossless": True, "exif": exif}),
        (image.convert("RGBA"), "WEBP", {"quality": 40}),
        (image, "WEBP", {"save_all": True, "append_images": [image.rotate(180)]}),
        (image, "MPO", {"save_all": True, "append_images": [image.rotate(180)], "exif": exif}),
        (image, "GIF", {"save_all": True, "append_images": [image.rotate(180)]}),
        (image.convert("P"), "GIF", {"transparency": 3}),
        (image, "BMP", {}),
        (image.convert("P"), "BMP", {}),
        (image, "TIFF", {"exif": exif, "compression": "tiff_lzw"}),
        (image.convert("I;16"), "TIFF", {"compression": "tiff_adobe_deflate"}),
        (image, "TIFF", {"save_all": True, "append_images": [image], "big_tiff": True}),
        (image, "TIFF", {"compression": "jpeg"}),
        (image.convert("RGBA"), "AVIF", {"exif": exif}),
    ]
    files = []
    for picture, format, options in wanted:
        buffer = io.BytesIO()
        picture.save(buffer, format=format, **options)
        files.append(buffer.getvalue())
    return files


def mutate(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """One to eight edits: bytes set, runs cut, doubled, moved, or taken from another file."""
    body = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(body)) if body else 0
        # Headers hold the interesting numbers: half of the edits go there.
        at = min(at, rng.randrange(64)) if rng.random() < 0.5 else at
        size = rng.choice((1, 2, 4, 16, 200))
        kind = rng.randrange(6)
        if kind == 0:
            body[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            body[at : at + min(size, 4)] = bytes([rng.choice(NASTY)]) * min(size, 4)
        elif kind == 2:
            del body[at : at + size]
        elif kind == 3:
            body[at:at] = body[at : at + size] * rng.randint(1, 20)
        elif kind == 4:
            other = rng.choice(others)
            start = rng.randrange(len(other))
            body[at : at + size] = other[start : start + size]
        else:
            del body[rng.randrange(len(body) + 1) :]
    return bytes(body)


def strange_question(rng: random.Random) -> str:
    """A few snippets among random characters of every plane."""
    parts = []
    for _ in range(rng.randint(0, 12)):
        if rng.random() < 0.5:
            parts.append(rng.choice(SNIPPETS))
        else:
            top = rng.choice((0x7F, 0x2FF, 0xFFFF, 0x10FFFF))
            parts.append("".join(chr(rng.randint(0, top)) for _ in range(rng.randint(0, 60))))
    return "".join(parts) * rng.choice((1, 1, 1, 40))


def cases(images: int, questions: int, seed: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every case as its name, to find it again, and the call to make."""
    files = seeds()
    for number in range(images):
        rng = random.Random(f"{seed} image {number}")
        data = mutate(rng.choice(files), rng, files)
        yield f"image {number}", lambda data=data: open_image(data).size  # type: ignore[misc]
    for number in range(questions):
        text = strange_question(random.Random(f"{seed} question {number}"))
        yield f"question {number}", lambda text=text: clean_question(text).encode()  # type: ignore[misc]


def run(images: int = 2_000, questions: int = 2_000, seed: int = 0) -> Report:
    """Send every case through the door; a bomb warning counts as a crash."""
    report = Report()
    with warnings.catch_warnings():
        # Pillow warns of broken EXIF and goes on, as it should; a bomb is another matter.
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for name, call in cases(images, questions, seed):
            start = time.perf_counter()
            try:
                call()
                report.accepted += 1
            except UserError:
                report.refused += 1
            except Exception as error:
                report.crashes.append(f"{name}: {type(error).__name__}: {error}")
            report.slowest_s = max(report.slowest_s, time.perf_counter() - start)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--questions", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    report = run(options.images, options.questions, options.seed)
    counts = f"{report.accepted} accepted, {report.refused} refused, {len(report.crashes)} crashes"
    print(f"{counts}, slowest {report.slowest_s:.3f} s")
    for line in report.crashes:
        print(line)
    return 1 if report.crashes or report.slowest_s > LIMIT_S else 0


if __name__ == "__main__":
    sys.exit(main())
