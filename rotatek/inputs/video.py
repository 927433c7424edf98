"""Reads a video file as checked frames: about one a second, never more than `MAX_FRAMES`.

As for pictures (`rotatek.inputs.request`), the format is found by content, never by a name, and no
file that a video refers to is opened. Reading ends inside this module: a damaged file cannot fail
later, and one without an end is cut off.
"""

import io
import os
import time
from importlib.util import find_spec
from typing import Any, Final

from PIL import Image

from rotatek import errors
from rotatek.inputs.request import MAX_PIXELS, MIN_SIDE, Clip, read_file

MAX_CLIP_BYTES: Final = 100 * 1000 * 1000
MAX_FRAMES: Final = 60
MAX_SECONDS: Final = 600.0
MAX_DECODED: Final = 60 * int(MAX_SECONDS)  # frames decoded: ten minutes at 60 a second
PATIENCE_S: Final = 120.0  # of decoding
LONGEST_SIDE: Final = 768  # pixels of a kept frame: 60 of them take 60 MB
_KINDS: Final = ((4, b"ftyp", "mp4"), (0, b"\x1aE\xdf\xa3", "matroska"), (8, b"AVI ", "avi"))


def open_clip(data: bytes | os.PathLike[str], most: int = MAX_FRAMES) -> Clip:
    """Sample an untrusted video, a frame a second.

    Args:
        data: a file's bytes, or a path (an `os.PathLike`).
        most: frames; the seconds between two are doubled until the video fits.

    Raises:
        UserError: in a sentence that says what to change.
    """
    if not can_be_read():
        raise errors.ClipsNotInstalled
    if isinstance(data, os.PathLike):
        data = read_file(data, MAX_CLIP_BYTES, errors.ClipTooLarge)
    if len(data) > MAX_CLIP_BYTES:
        raise errors.ClipTooLarge
    kind = next((kind for at, sign, kind in _KINDS if data.startswith(sign, at)), None)
    if kind is None:
        raise errors.ClipUnreadable
    try:
        kept = _sample(bytes(data), kind, most)
    except errors.UserError:
        raise
    except Exception as error:  # FFmpeg's parsers raise anything on mutated files
        raise errors.ClipUnreadable from error
    if not kept:
        raise errors.ClipUnreadable
    return Clip(tuple(frame for _, frame in kept), tuple(at for at, _ in kept))


def can_be_read() -> bool:
    """Whether this installation reads videos."""
    return find_spec("av") is not None


def _sample(data: bytes, kind: str, most: int) -> list[tuple[float, Image.Image]]:
    """Frames and their seconds from the first."""
    import av  # noqa: PLC0415  # an extra: only who has a video needs it

    kept: list[tuple[float, Image.Image]] = []
    deadline, first, interval = time.monotonic() + PATIENCE_S, None, 1.0
    with av.open(io.BytesIO(data), format=kind) as container:
        if not container.streams.video:
            raise errors.ClipUnreadable
        stream = container.streams.video[0]
        _check_size(stream.codec_context.width, stream.codec_context.height)
        for number, frame in enumerate(container.decode(stream)):
            at = frame.time if frame.time is not None else number / 25
            first = at if first is None else first
            at -= first
            if at > MAX_SECONDS or number >= MAX_DECODED or time.monotonic() > deadline:
                raise errors.ClipTooLong
            if kept and at < kept[-1][0] + interval - 1e-3:
                continue
            kept.append((at, _picture(frame)))
            if len(kept) > most:
                kept, interval = kept[::2], 2 * interval
    return kept


def _check_size(width: int, height: int) -> None:
    if min(width, height) < MIN_SIDE or width * height > MAX_PIXELS:
        raise errors.ClipUnreadable


def _picture(frame: Any) -> Image.Image:
    """A frame as an RGB picture, upright, of at most `LONGEST_SIDE` pixels."""
    _check_size(frame.width, frame.height)
    share = min(1.0, LONGEST_SIDE / max(frame.width, frame.height))
    size = [max(MIN_SIDE, round(side * share)) for side in (frame.width, frame.height)]
    picture = frame.to_image(width=size[0], height=size[1]).convert("RGB")
    turned = getattr(frame, "rotation", 0)
    return picture.rotate(turned, expand=True) if turned else picture
