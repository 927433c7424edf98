"""The header of a picture: its format, its size, and the bytes that belong to it.

Nothing is decoded. A telephone appends a film to a photo, a camera a second photo, other programs
anything: the picture ends where its own format ends it, and only these bytes count and are decoded.
Of animations and of files of many pages only the first picture is kept.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from rotatek import errors

# Decoding effort of a progressive JPEG grows with pixels x scans; a photo has about ten scans.
# 1e9 stays under 3 s on one core, and lets a 50-megapixel photo have 20 scans.
MAX_SCAN_PIXELS: Final = 1_000_000_000
MOST_ENTRIES: Final = 4096  # of a directory of TIFF or Exif, which has some thirty
MAX_RUN_BYTES: Final = 1_000_000  # of a run-length coded BMP, which Pillow reads in Python

_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PNG_CHUNKS: Final = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"eXIf", b"IEND")
_PNG_XMP: Final = b"XML:com.adobe.xmp\0\0"  # an uncompressed text, which may turn the picture
_NEXT_MARKER: Final = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # behind the data of a scan
_TIFF_MARKS: Final = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_TIFF_WIDTHS: Final = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)  # bytes by type
_TIFF_READ: Final = frozenset(
    {1, 2, 3, 4, 5, 7, 8, 32_773, 32_946}
)  # compressions: none to deflate
_SUB_IFDS: Final = (34_665, 34_853, 40_965)  # Exif, GPS, interoperability
_HEIC: Final = (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1", b"hevc")
_AVIF: Final = (b"avif", b"avis")


class Header(NamedTuple):
    """The properties of a picture before decoding.

    Attributes:
        format: Pillow's name of it.
        size: (width, height) in pixels as stored; None where the header is damaged.
        data: the picture's own bytes.
        effort: pixels times the passes over them that decoding takes.
    """

    format: str
    size: tuple[int, int] | None
    data: bytes
    effort: int = 0


def header_of(data: bytes) -> Header | None:
    """A file's header; None for a format that is not read.

    Raises:
        UserError: for a kind of a format that is not read, in a sentence of its own.
    """
    for starts, reader in _READERS:
        if data.startswith(starts):
            return reader(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    if data[4:8] == b"ftyp":
        return _isobmff(data)
    return None


def _png(data: bytes) -> Header:
    """Keeps the chunks of its pixels: Pillow gives a picture up for a longer text beside it."""
    size = struct.unpack(">II", data[16:24]) if data[12:16] == b"IHDR" and len(data) > 32 else None
    at, kept = 8, [data[:8]]
    while at + 12 <= len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        chunk = data[at : at + 12 + length]
        if kind in _PNG_CHUNKS or chunk[8:].startswith(_PNG_XMP):
            kept.append(chunk)
        at += 12 + length
        if kind == b"IEND":
            break
    return Header("PNG", size, b"".join([*kept, data[at:] if kept[-1][4:8] != b"IEND" else b""]))


def _jpeg(data: bytes) -> Header:
    """Walks the segments to the end of the picture, and counts its scans on the way."""
    damaged = Header("JPEG", None, data)
    size, scans, at, notes = None, 0, 2, []
    while at + 2 <= len(data):
        if data[at] != 0xFF:  # junk, which Pillow passes over, too
            found = data.find(b"\xff", at)
            at = len(data) if found < 0 else found
            continue
        marker = data[at + 1]
        if marker == 0xFF or marker == 0x01 or 0xD0 <= marker <= 0xD8:  # fill byte, no payload
            at += 1 if marker == 0xFF else 2
            continue
        if marker == 0xD9:
            at += 2
            break
        if at + 4 > len(data):
            break
        end = at + 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
        if marker in _FRAMES and size is None and at + 9 <= len(data):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            size = (width, height)
        elif marker in (0xE1, 0xE2):
            notes.append((at, end))
        elif marker == 0xDA:
            if size is None:  # a scan before any frame
                return damaged
            scans += 1
            if scans * size[0] * size[1] > MAX_SCAN_PIXELS:
                break
            marked = _NEXT_MARKER.search(data, end)
            end = len(data) if marked is None else marked.start()
        at = end
    own = data[:at] if at <= len(data) else data
    effort = 0 if size is None else scans * size[0] * size[1]
    return Header("JPEG", size, _without_bombs(own, notes), effort)


def _without_bombs(data: bytes, notes: list[tuple[int, int]]) -> bytes:
    """A JPEG without Exif and multi-picture segments of which Pillow would read far more than
    there is."""
    cuts = []
    for mark in (b"Exif\0\0", b"MPF\0"):
        mine = [(at, end) for at, end in notes if data[at + 4 : end].startswith(mark)]
        body = b"".join(data[at + 4 + len(mark) : end] for at, end in mine)
        if mine and not is_bounded(body):
            cuts += mine
    for at, end in sorted(cuts, reverse=True):
        data = data[:at] + data[end:]
    return data


def _webp(data: bytes) -> Header:
    end = 8 + struct.unpack("<I", data[4:8])[0]
    own = data[: end + end % 2]
    return Header("WEBP", _webp_size(own) if len(own) >= 30 else None, own)


def _webp_size(data: bytes) -> tuple[int, int] | None:
    """(width, height) of the first chunk: lossy, lossless or extended."""
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _gif(data: bytes) -> Header:
    """The first picture, which may be larger than the screen; later ones are cut off."""
    damaged = Header("GIF", None, data)
    if len(data) < 13:
        return damaged
    width, height, flags = struct.unpack("<HHB", data[6:11])
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    while at + 11 <= len(data):
        if data[at] == 0x21:  # an extension
            at = _past_blocks(data, at + 2)
            continue
        if data[at] != 0x2C:
            return damaged
        left, top, wide, high, local = struct.unpack("<HHHHB", data[at + 1 : at + 10])
        size = max(width, left + wide), max(height, top + high)
        end = _past_blocks(data, at + 11 + (3 << (local & 7) + 1 if local & 0x80 else 0))
        return Header("GIF", size, data[:end] + b";")
    return damaged


def _past_blocks(data: bytes, at: int) -> int:
    """The end of a chain of blocks; each begins with its length, and the last one has none."""
    while at < len(data) and data[at]:
        at += 1 + data[at]
    return at + 1


def _bmp(data: bytes) -> Header:
    if len(data) < 34:
        return Header("BMP", None, data)
    if struct.unpack("<I", data[14:18])[0] == 12:
        return Header("BMP", struct.unpack("<HH", data[18:22]), data)
    width, height = struct.unpack("<ii", data[18:26])
    if struct.unpack("<I", data[30:34])[0] in (1, 2) and len(data) > MAX_RUN_BYTES:
        raise errors.ImageTooComplex
    return Header("BMP", (width, abs(height)), data)


def _isobmff(data: bytes) -> Header | None:
    """AVIF or HEIC: the largest size that any part of the file names."""
    length = struct.unpack(">I", data[:4])[0]
    brands = {data[8:12], *(data[at : at + 4] for at in range(16, min(length, 256), 4))}
    kind = "AVIF" if brands & set(_AVIF) else "HEIF" if brands & set(_HEIC) else None
    if kind is None:
        return None
    sizes = [
        struct.unpack(">II", data[found.end() + 4 : found.end() + 12])
        for found in re.finditer(b"ispe", data)
        if found.end() + 12 <= len(data)
    ]
    return Header(kind, max(sizes, key=lambda size: size[0] * size[1], default=None), data)


def _tiff(data: bytes) -> Header:
    """The first page; the link to the next one is cut."""
    if not is_bounded(data):
        raise errors.ImageTooComplex
    tags = {tag: value for tag, value, _ in _entries(data, _first(data))}
    size = (tags.get(256, 0), tags.get(257, 0))
    if not tags or 0 in size:
        return Header("TIFF", None, data)
    if tags.get(259, 1) not in _TIFF_READ:
        raise errors.UnsupportedFormat(
            "The compression of this TIFF is not supported. Save the picture as PNG."
        )
    wide, high = tags.get(322, size[0]), tags.get(323, min(tags.get(278, size[1]), size[1]))
    pieces = -(-size[0] // max(wide, 1)) * -(-size[1] // max(high, 1))
    scans = data.count(b"\xff\xda") if tags.get(259) == 7 else 1
    effort = wide * high * max(pieces, scans)
    if max(wide, high) > 1 << 16 or pieces > 1 << 18:
        raise errors.ImageTooComplex
    return Header("TIFF", size, _without_next(data), effort)


def is_bounded(data: bytes) -> bool:
    """Whether the values of a TIFF structure, as Exif has one too, are no longer than it is.

    A few bytes can name the same megabytes thousands of times, and Pillow reads each of them.
    """
    places = [_first(data)]
    for place in places:
        entries = list(_entries(data, place))
        if sum(length for _, _, length in entries) > 2 * len(data) or len(places) > 8:
            return False
        places += [value for tag, value, _ in entries if tag in _SUB_IFDS]
    return True


def _shape(data: bytes) -> tuple[str, bool]:
    """Byte order of a TIFF structure, and whether its offsets have eight bytes."""
    return ("<" if data[:2] == b"II" else ">"), data[2:4] in (b"+\0", b"\0+")


def _first(data: bytes) -> int:
    """The offset of the first directory; 0 where there is none."""
    order, is_big = _shape(data)
    if not data.startswith(_TIFF_MARKS) or len(data) < 16:
        return 0
    return int(struct.unpack(order + "Q", data[8:16])[0] if is_big else
               struct.unpack(order + "I", data[4:8])[0])  # fmt: skip


def _entries(data: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Tag, first integer, and bytes of the value of each entry of the directory at `at`."""
    order, is_big = _shape(data)
    head, step, inside = (8, 20, 8) if is_big else (2, 12, 4)
    if not 0 < at <= len(data) - head:
        return
    count = struct.unpack(order + ("Q" if is_big else "H"), data[at : at + head])[0]
    if count > MOST_ENTRIES:  # none that is meant well; `is_bounded` refuses it
        yield 0, 0, 1 << 62
        return
    for place in range(at + head, min(at + head + step * count, len(data) - step + 1), step):
        tag, kind = struct.unpack(order + "HH", data[place : place + 4])
        number = struct.unpack(
            order + ("Q" if is_big else "I"), data[place + 4 : place + 4 + inside]
        )[0]
        width = _TIFF_WIDTHS[kind] if kind < len(_TIFF_WIDTHS) else 0
        value = place + 4 + inside
        if width * number > inside:
            value = struct.unpack(order + ("Q" if is_big else "I"), data[value : value + inside])[0]
        form = {1: "B", 2: "H", 4: "I", 8: "Q"}.get(width)
        whole = data[value : value + width]
        first = struct.unpack(order + form, whole)[0] if form and len(whole) == width else 0
        yield tag, first, width * number


def _without_next(data: bytes) -> bytes:
    """A TIFF file cut off after its first directory."""
    order, is_big = _shape(data)
    at, head, step, inside = _first(data), *((8, 20, 8) if is_big else (2, 12, 4))
    count = struct.unpack(order + ("Q" if is_big else "H"), data[at : at + head])[0]
    link = at + head + step * count
    if link + inside > len(data):
        return data
    return data[:link] + bytes(inside) + data[link + inside :]


_READERS: Final = (
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"\xff\xd8\xff", _jpeg),
    ((b"GIF87a", b"GIF89a"), _gif),
    (b"BM", _bmp),
    (_TIFF_MARKS, _tiff),
)
