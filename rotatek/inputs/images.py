"""One door for pictures: untrusted bytes become a plain RGB picture, or a `UserError` is raised.

Sizes are read from the header before anything is decoded, and decoding ends inside this module, so
a damaged file cannot fail later. What Pillow does not bound is bounded here: the passes over a
progressive JPEG, notes beside a photo, the directory of a TIFF. A telephone appends a film to a
photo: a JPEG ends where its own format ends it.
"""

import io
import os
import stat
import struct
from collections.abc import Iterator
from importlib import import_module
from typing import Final

import numpy as np
from PIL import Image, ImageOps

from rotatek import errors

MAX_FILE_BYTES: Final = 10 * 1000 * 1000
MAX_SENT_BYTES: Final = 3 * MAX_FILE_BYTES  # of a file, with what a telephone puts behind a photo
MAX_PIXELS: Final = 50_000_000
MIN_SIDE: Final = 16
MAX_ASPECT: Final = 100
# Decoding effort of a progressive JPEG grows with pixels x scans; a photo has about ten scans.
# 1e9 stays under 3 s on one core, and lets a 50-megapixel photo have 20 scans.
MAX_SCAN_PIXELS: Final = 1_000_000_000
MAX_RUN_BYTES: Final = 1_000_000  # of a run-length coded BMP, which Pillow reads in Python

_STARTS: Final = {
    "PNG": (b"\x89PNG\r\n\x1a\n",), "JPEG": (b"\xff\xd8\xff",), "GIF": (b"GIF87a", b"GIF89a"),
    "BMP": (b"BM",), "TIFF": (b"II*\0", b"MM\0*"),
}  # fmt: skip
_BRANDS: Final = {
    "AVIF": (b"avif", b"avis"),
    "HEIF": (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1", b"hevc"),
}
_WIDTHS: Final = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8)  # bytes of a TIFF's types
_ORIENTATION: Final = 0x0112
_OTHER_FORMATS: Final = (
    (4, b"ftyp"), (0, b"%PDF"), (0, b"8BPS"), (0, b"\0\0\1\0"), (0, b"\0\0\2\0"),
    (0, b"\0\0\0\x0cjP  "), (0, b"\xff\x4f\xff\x51"), (0, b"\xff\x0a"), (0, b"\0\0\0\x0cJXL "),
    (0, b"<svg"), (0, b"<?xml"), (0, b"qoif"), (0, b"DDS "), (0, b"%!PS"), (0, b"icns"),
    (0, b"P1\n"), (0, b"P2\n"), (0, b"P3\n"), (0, b"P4\n"), (0, b"P5\n"), (0, b"P6\n"),
)  # fmt: skip
_STRIP_PIXELS: Final = 4_000_000  # flattening works on strips, so its scratch memory is bounded


def open_image(data: bytes | os.PathLike[str] | Image.Image) -> Image.Image:
    """Decode one untrusted image to a plain RGB picture.

    data: a file's bytes, a path (an `os.PathLike`; plain strings are refused, because a client
    may send one), or an open Pillow image, whose own frame and pixels are then used.
    Returns mode RGB with EXIF orientation applied, alpha laid on white, 16-bit depth scaled to 8,
    only the first frame, and no metadata. Raises a `UserError`.
    """
    if isinstance(data, Image.Image):
        return _decode(data)
    if isinstance(data, os.PathLike):
        data = read_file(data, MAX_SENT_BYTES, errors.ImageTooLarge)
    if not isinstance(data, bytes | bytearray | memoryview):
        raise errors.ImageMissing if data is None else errors.NotAnImage
    image, turned = _opened(bytes(data))
    return _decode(image, turned)


def check_header(data: bytes) -> tuple[int, int]:
    """Recognise the format by content and check the size its header claims, without decoding.

    Returns (width, height) in pixels as stored. Raises a `UserError`.
    """
    return _opened(data)[0].size


def _opened(data: bytes) -> tuple[Image.Image, int]:
    """A file's picture, not yet decoded, whose size is within bounds; and its orientation."""
    if not data:
        raise errors.ImageMissing
    if len(data) > MAX_SENT_BYTES:
        raise errors.ImageTooLarge
    kind = format_of(data)
    if kind is None:
        text = data[:64].lstrip(b"\xef\xbb\xbf \r\n\t").startswith((b"<svg", b"<?xml"))
        known = text or any(data.startswith(magic, at) for at, magic in _OTHER_FORMATS)
        raise errors.UnsupportedFormat if known else errors.NotAnImage
    own, passes, turned = _jpeg(data) if kind == "JPEG" else (data, 1, 1)
    if len(own) > MAX_FILE_BYTES:
        raise errors.ImageTooLarge
    runs = kind == "BMP" and data[30:34] in (b"\1\0\0\0", b"\2\0\0\0") and len(data) > MAX_RUN_BYTES
    if runs or (kind == "TIFF" and sum(size for _, _, size in _entries(data)) > 2 * len(data)):
        raise errors.ImageTooComplex
    try:
        if kind == "HEIF":  # an extra of its own
            import_module("pillow_heif").register_heif_opener()
        image = Image.open(io.BytesIO(own), formats=(kind,))
    except ImportError as error:
        raise errors.UnsupportedFormat(
            "HEIC pictures cannot be read here. Install rotatek[heif], or save it as JPEG."
        ) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise errors.ImageTooManyPixels from error
    except Exception as error:  # Pillow's parsers raise anything on mutated files
        raise errors.ImageDamaged from error
    _check_size(*image.size)
    if passes * image.width * image.height > MAX_SCAN_PIXELS:
        raise errors.ImageTooComplex
    return image, turned


def read_file(path: os.PathLike[str], most: int, too_large: type[errors.UserError]) -> bytes:
    """A regular file (never a device or a pipe), at most one byte more than `most`.

    Raises:
        UserError: FileUnreadable, or `too_large` for a file of more than `most` bytes.
    """
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):
            raise errors.FileUnreadable
        if info.st_size > most:
            raise too_large
        with open(path, "rb") as file:
            return file.read(most + 1)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise errors.FileUnreadable from error


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise errors.ImageTooManyPixels
    if min(width, height) < MIN_SIDE:
        raise errors.ImageTooSmall
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise errors.ImageTooNarrow


def _decode(image: Image.Image, turned: int = 1) -> Image.Image:
    """Fully decode, flatten, turn upright. The caller's own image object is left as it was."""
    _check_size(*image.size)
    try:
        image.load()
        _check_size(*image.size)
        turned = _orientation_of(image.info.get("exif") or b"") if turned == 1 else turned
        flat = Image.new("RGB", image.size, "white")
        rows = max(1, _STRIP_PIXELS // image.width)
        for top in range(0, image.height, rows):
            strip = image.crop((0, top, image.width, min(top + rows, image.height)))
            for colour, mask in _layers(strip):
                flat.paste(colour, (0, top), mask)
    except (errors.UserError, MemoryError):
        raise
    except Exception as error:  # truncated data, bad checksums, broken palettes and profiles
        raise errors.ImageDamaged from error
    if turned != 1:
        flat.getexif()[_ORIENTATION] = turned
        flat = ImageOps.exif_transpose(flat)
    return flat


def _layers(strip: Image.Image) -> Iterator[tuple[Image.Image, Image.Image | None]]:
    """The RGB (or grey) picture to lay on white, and its opacity."""
    transparent = strip.info.get("transparency")
    if strip.mode.startswith("I"):  # I;16 and its byte orders, and 32-bit integers holding 16
        values = np.asarray(strip).astype(np.int64).clip(0, 65_535)
        mask = Image.fromarray(np.where(values == transparent, 0, 255).astype(np.uint8))
        grey = Image.fromarray(((values + 128) // 257).astype(np.uint8))
        yield grey.convert("RGB"), mask if isinstance(transparent, int) else None
    elif strip.mode == "F":
        raise errors.UnsupportedFormat("Floating-point images are not supported. Save it as PNG.")
    elif strip.mode == "RGB" and isinstance(transparent, tuple):
        # The key of a 16-bit file counts in 16 bits while Pillow keeps the high byte.
        key = np.array([c >> 8 if max(transparent) > 255 else c for c in transparent])
        hit = (np.asarray(strip) == key).all(-1)
        yield strip, Image.fromarray(np.where(hit, 0, 255).astype(np.uint8))
    elif strip.mode in ("LA", "La", "PA", "RGBA", "RGBa") or transparent is not None:
        rgba = strip.convert("RGBA")
        yield rgba.convert("RGB"), rgba.getchannel("A")
    else:
        yield strip.convert("RGB"), None


def format_of(data: bytes) -> str | None:
    """Pillow's name of a file's format, by its content; None for one that is not read."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[4:8] == b"ftyp":
        end = min(int.from_bytes(data[:4]), 256)
        brands = {data[8:12], *(data[at : at + 4] for at in range(16, end, 4))}
        return next((kind for kind, own in _BRANDS.items() if brands & set(own)), None)
    return next((kind for kind, start in _STARTS.items() if data.startswith(start)), None)


def _jpeg(data: bytes) -> tuple[bytes, int, int]:
    """Without its notes (colour profile and Adobe's mark stay), cut off where it ends; the passes
    over all pixels that decoding takes; and the orientation, 1 to 8, that the notes name."""
    at, kept, turned = 2, [data[:2]], 1
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4])
        if data[at + 4 : at + 10] == b"Exif\0\0":
            turned = _orientation_of(data[at + 10 : end])
        elif not 0xE1 <= data[at + 1] < 0xEE:
            kept.append(data[at:end])
        at = end
    end = data.find(b"\xff\xd9", at) + 2
    picture = data[at : end if end > 1 else len(data)]
    return b"".join([*kept, picture]), picture.count(b"\xff\xda"), turned


def _orientation_of(exif: bytes) -> int:
    """The orientation that Exif data name, 1 to 8; 1 where they are damaged or name none."""
    exif = exif.removeprefix(b"Exif\0\0")
    found = next((value for tag, value, _ in _entries(exif) if tag == _ORIENTATION), 1)
    return found if 1 <= found <= 8 else 1


def _entries(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Tag, short value, and bytes of all values of each entry of the first directory of a TIFF
    structure, as Exif has one, too."""
    order = "<" if data[:2] == b"II" else ">"
    try:
        (at,) = struct.unpack(f"{order}I", data[4:8])
        (count,) = struct.unpack(f"{order}H", data[at : at + 2])
        for place in range(at + 2, at + 2 + 12 * count, 12):
            tag, kind, number, value = struct.unpack(f"{order}HHIH", data[place : place + 10])
            yield tag, value, number * (_WIDTHS[kind] if kind < len(_WIDTHS) else 8)
    except struct.error:
        return
