"""Mutated images and strange questions at the door: `python -m tests.fuzz [CASES [SEED]]`.

Every case must be answered or refused with a `UserError`, within three seconds; by default 2,000
images and as many questions are sent.
"""

import io
import random
import sys
import time
import warnings
from typing import Any

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


def seeds() -> list[bytes]:
    """Small valid files of every format and the modes that decoders treat apart."""
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (24, 40, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    several: dict[str, Any] = {"save_all": True}
    wanted: list[tuple[str, str, dict[str, Any]]] = [
        ("RGB", "PNG", {"exif": exif}), ("RGBA", "PNG", {}), ("1", "PNG", {}),
        ("P", "PNG", {"transparency": bytes(range(64))}), ("I;16", "PNG", {"transparency": 900}),
        ("RGB", "PNG", several), ("RGB", "JPEG", {"exif": exif}), ("CMYK", "JPEG", {}),
        ("RGB", "JPEG", {"progressive": True, "quality": 30}), ("RGBA", "WEBP", {"quality": 40}),
        ("RGB", "WEBP", {"lossless": True, "exif": exif}), ("RGB", "WEBP", several),
        ("RGB", "MPO", several | {"exif": exif}), ("RGB", "GIF", several),
        ("P", "GIF", {"transparency": 3}), ("RGB", "BMP", {}), ("P", "BMP", {}),
        ("RGB", "TIFF", {"exif": exif, "compression": "tiff_lzw"}),
        ("I;16", "TIFF", {"compression": "tiff_adobe_deflate"}),
        ("RGB", "TIFF", several | {"big_tiff": True}), ("RGB", "TIFF", {"compression": "jpeg"}),
        ("RGBA", "AVIF", {"exif": exif}),
    ]  # fmt: skip
    files = []
    for mode, format, options in wanted:
        buffer, own = io.BytesIO(), dict(options)
        if "save_all" in own:  # a new picture each time: Pillow notes the last format in it
            own["append_images"] = [image.rotate(180)]
        image.convert(mode).save(buffer, format=format, **own)
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
        top = rng.choice((0x7F, 0x2FF, 0xFFFF, 0x10FFFF))
        letters = "".join(chr(rng.randint(0, top)) for _ in range(rng.randint(0, 60)))
        parts.append(rng.choice(SNIPPETS) if rng.random() < 0.5 else letters)
    return "".join(parts) * rng.choice((1, 1, 1, 40))


def main(cases: int = 2_000, seed: int = 0) -> int:
    """Send every case through the door; a bomb warning counts as a crash. The exit status."""
    files, refused, slowest, crashes = seeds(), 0, 0.0, 0
    with warnings.catch_warnings():
        # Pillow warns of broken EXIF and goes on, as it should; a bomb is another matter.
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for number in range(2 * cases):
            rng, start = random.Random(f"{seed} {number}"), time.perf_counter()
            try:
                if number % 2:
                    clean_question(strange_question(rng)).encode()
                else:
                    open_image(mutate(rng.choice(files), rng, files))
            except UserError:
                refused += 1
            except Exception as error:
                crashes += 1
                print(f"case {number} of seed {seed}: {type(error).__name__}: {error}")
            slowest = max(slowest, time.perf_counter() - start)
    print(f"{2 * cases} cases, {refused} refused, {crashes} crashes, slowest {slowest:.3f} s")
    return int(crashes > 0 or slowest > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
