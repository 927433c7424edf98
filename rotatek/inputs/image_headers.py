"""A picture's format, and its own bytes: what of a file Pillow is given.

Pillow reads the size of a picture before its pixels. Three things it does not bound are bounded
here: the passes over a progressive JPEG, notes beside a photo, and the directory of a TIFF. A
telephone appends a film to a photo: a JPEG ends where its own format ends it.
"""

import struct
from collections.abc import Iterator
from typing import Final

from rotatek import errors

# Decoding effort of a progressive JPEG grows with pixels x scans; a photo has about ten scans.
# 1e9 stays under 3 s on one core, and lets a 50-megapixel photo have 20 scans.
MAX_SCAN_PIXELS: Final = 1_000_000_000
MAX_RUN_BYTES: Final = 1_000_000  # of a run-length coded BMP, which Pillow reads in Python
MOST_ENTRIES: Final = 4096  # of a directory of TIFF or Exif, which has some thirty

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


def format_of(data: bytes) -> str | None:
    """Pillow's name of a file's format, by its content; None for one that is not read."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[4:8] == b"ftyp":
        end = min(int.from_bytes(data[:4]), 256)
        brands = {data[8:12], *(data[at : at + 4] for at in range(16, end, 4))}
        return next((kind for kind, own in _BRANDS.items() if brands & set(own)), None)
    return next((kind for kind, start in _STARTS.items() if data.startswith(start)), None)


def own_bytes(data: bytes, kind: str) -> tuple[bytes, int, int]:
    """What of a file is the picture.

    Args:
        data: the file.
        kind: of `format_of`.

    Returns:
        The bytes to decode, the passes over all pixels that this takes, and the orientation, 1 to
        8, that a JPEG's notes name.

    Raises:
        ImageTooComplex: for a TIFF that names more bytes than it has, or a long run-length BMP.
    """
    if kind == "JPEG":
        return _jpeg(data)
    runs = kind == "BMP" and data[30:34] in (b"\1\0\0\0", b"\2\0\0\0") and len(data) > MAX_RUN_BYTES
    if runs or (kind == "TIFF" and sum(size for _, _, size in _entries(data)) > 2 * len(data)):
        raise errors.ImageTooComplex
    return data, 1, 1


def _jpeg(data: bytes) -> tuple[bytes, int, int]:
    """Without its notes (colour profile and Adobe's mark stay), cut off where it ends."""
    at, kept, turned = 2, [data[:2]], 1
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4])
        if data[at + 4 : at + 10] == b"Exif\0\0":
            turned = orientation_of(data[at + 10 : end])
        elif not 0xE1 <= data[at + 1] < 0xEE:
            kept.append(data[at:end])
        at = end
    end = data.find(b"\xff\xd9", at) + 2
    picture = data[at : end if end > 1 else len(data)]
    return b"".join([*kept, picture]), picture.count(b"\xff\xda"), turned


def orientation_of(exif: bytes) -> int:
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
