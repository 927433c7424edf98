"""Input checks: bytes and a question become a checked `Request`, or a `UserError` is raised.

Nothing here trusts a name, an extension or a header field. Formats are recognised by content, sizes
are read from the header before anything is decoded, and decoding ends inside this module, so a
damaged file cannot fail later. No URL is ever followed. Control tokens in the text are made plain
in `rotatek.inputs.prompt`, which knows the model's vocabulary.
"""

import importlib.util
import io
import math
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, overload

import numpy as np
from PIL import Image

from rotatek import errors
from rotatek.inputs.image_headers import MAX_SCAN_PIXELS, format_of, orientation_of, own_bytes
from rotatek.inputs.limits import Limits
from rotatek.inputs.messages import (
    MAX_TEXT,
    PICTURE,
    Message,
    Part,
    Place,
    clean_messages,
    clean_text,
    is_visible,
    merged,
)
from rotatek.inputs.sampling import GREEDY, Sampling

MAX_FILE_BYTES: Final = 10 * 1000 * 1000
MAX_PIXELS: Final = 50_000_000
MIN_SIDE: Final = 16
MAX_ASPECT: Final = 100
MAX_IMAGES: Final = 1_000  # bounds the work on what no context has room for
MAX_QUESTION: Final = 2_000  # characters after cleaning, of a question that comes alone
MAX_NEW_TOKENS: Final = Limits().max_prompt_tokens
MAX_SENT_BYTES: Final = 3 * MAX_FILE_BYTES  # of a file, with what a telephone puts behind a photo

_OTHER_FORMATS: Final = (
    (4, b"ftyp"), (0, b"%PDF"), (0, b"8BPS"), (0, b"\0\0\1\0"), (0, b"\0\0\2\0"),
    (0, b"\0\0\0\x0cjP  "), (0, b"\xff\x4f\xff\x51"), (0, b"\xff\x0a"), (0, b"\0\0\0\x0cJXL "),
    (0, b"<svg"), (0, b"<?xml"), (0, b"qoif"), (0, b"DDS "), (0, b"%!PS"), (0, b"icns"),
    (0, b"P1\n"), (0, b"P2\n"), (0, b"P3\n"), (0, b"P4\n"), (0, b"P5\n"), (0, b"P6\n"),
)  # fmt: skip
_TRANSPOSE: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_STRIP_PIXELS: Final = 4_000_000  # flattening works on strips, so its scratch memory is bounded


@dataclass(frozen=True, eq=False)
class Request:
    """One checked chat about images, or of texts alone, whose last message is answered.

    images: RGB, upright, without metadata, in the order in which the messages show them; messages:
    clean, neighbours of one role merged; max_new_tokens: 1 to `MAX_NEW_TOKENS`; cut:
    whether the answer may be cut short where the context is full; tools: for the model's prompt, as
    JSON; scope: a digest of an API key, whose pictures may be reused; sampling: how the answer's
    tokens are chosen.
    """

    images: tuple[Image.Image, ...]
    messages: tuple[Message, ...]
    max_new_tokens: int = 64
    cut: bool = False
    tools: str = ""
    scope: str = ""
    sampling: Sampling = GREEDY

    @property
    def question(self) -> str:
        """The text of the last message."""
        return self.messages[-1].text

    @property
    def history(self) -> tuple[tuple[str, str], ...]:
        """Earlier turns' texts, where users and assistant took turns: (question, answer)."""
        said = [message.text for message in self.messages if message.role in ("user", "assistant")]
        return tuple(zip(said[:-1:2], said[1::2], strict=False))

    @property
    def shown(self) -> tuple[int, ...]:
        """How many pictures each message of the user shows."""
        return tuple(one.pictures for one in self.messages if one.role == "user")


Asked = str | tuple[Part, ...]


def make_request(
    images: Image.Image | Sequence[Image.Image],
    question: Asked,
    max_new_tokens: int = 64,
    history: Sequence[tuple[Asked, str]] = (),
    shown: Sequence[int] = (),
    *,
    sampling: Sampling = GREEDY,
) -> Request:
    """Check everything once. Images pass through `open_image` again, which costs one copy.

    A question is a text, before which its pictures are shown, or a tuple of texts and `PICTURE`
    marks:
    `make_request([a, b], ("First:", PICTURE, "Second:", PICTURE, "Which is larger?"))`.

    Args:
        images: one picture or several.
        question: cleaned by `clean_question`.
        max_new_tokens: the longest answer, 1 to `MAX_NEW_TOKENS`.
        history: earlier (question, answer) turns about the same images, oldest first.
        shown: how many of the pictures come with each turn; by default all that have no `PICTURE`
            mark, with the first.
        sampling: how the answer's tokens are chosen; by default greedily.

    Raises:
        UserError: in a sentence that says what to change.
    """
    pictures = _pictures(images)
    turns = [*_clean_history(history), (clean_question(question), None)]
    own = [asked.count(PICTURE) if isinstance(asked, tuple) else None for asked, _ in turns]
    later = [number or 0 for number in own[1:]]
    parts = tuple(shown) or (len(pictures) - sum(later), *later)
    if len(parts) != len(turns) or sum(parts) != len(pictures) or min(parts) < 0:
        raise errors.HistoryInvalid
    messages: list[Message] = []
    for (asked, said), places, more in zip(turns, own, parts, strict=True):
        if places not in (None, more):
            raise errors.PlacesUnequal
        text = asked if isinstance(asked, tuple) else ((PICTURE,) * more + (asked,))
        messages.append(Message("user", text))
        messages += [] if said is None else [Message("assistant", (said,))]
    length = whole_tokens(max_new_tokens)
    return Request(pictures, merged(messages), length, sampling=sampling)


def make_chat(
    images: Sequence[Image.Image],
    messages: Sequence[Message],
    max_new_tokens: int = 64,
    *,
    cut: bool = False,
    tools: str = "",
    sampling: Sampling = GREEDY,
) -> Request:
    """A request of any chat.

    Args:
        images: of `open_image`, in the order of their positions in the chat; none in a
            chat of texts alone.
        messages: the last one is to be answered.
        max_new_tokens: the longest answer, 1 to `MAX_NEW_TOKENS`.
        cut: as of `Request`.
        tools: as of `Request`.
        sampling: as of `Request`.

    Raises:
        UserError: in a sentence that says what to change.
    """
    clean = clean_messages(messages)
    if len(images) > MAX_IMAGES:
        raise errors.TooManyImages
    if not clean or clean[-1].role == "assistant":
        raise errors.MessagesUnreadable
    if sum(one.pictures for one in clean) != len(images):
        raise errors.PlacesUnequal
    if not any(is_visible(c) for one in clean if one.role != "assistant" for c in one.text):
        raise errors.QuestionEmpty
    length = whole_tokens(max_new_tokens)
    return Request(tuple(images), clean, length, cut, tools, sampling=sampling)


def _pictures(images: Image.Image | Sequence[Image.Image]) -> tuple[Image.Image, ...]:
    """One to `MAX_IMAGES` checked pictures."""
    given = [images] if isinstance(images, Image.Image) else list(images or ())
    if not given or any(image is None for image in given):
        raise errors.ImageMissing
    if len(given) > MAX_IMAGES:
        raise errors.TooManyImages
    return tuple(open_image(image) for image in given)


def whole_tokens(max_new_tokens: int) -> int:
    """The longest answer, 1 to `MAX_NEW_TOKENS`. Raises a `UserError`."""
    return _whole_number("max_new_tokens", max_new_tokens, 1, MAX_NEW_TOKENS)


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


@overload
def clean_question(text: str) -> str: ...
@overload
def clean_question(text: tuple[Part, ...]) -> tuple[Part, ...]: ...
def clean_question(text: Asked) -> Asked:
    """Normalise one question: NFC, no control characters, 1 to 2,000 characters.

    Line breaks and tabs stay; other control characters, lone surrogates, private-use characters and
    those that reorder displayed text are removed. Idempotent. A tuple of texts and `PICTURE` marks
    is bounded by the model's context only. Raises a `UserError`.
    """
    if text is None:
        raise errors.QuestionEmpty
    if isinstance(text, tuple):
        if not all(isinstance(part, str | Place) for part in text):
            raise errors.QuestionNotText
        (message,) = clean_messages([Message("user", text)])
        if not any(map(is_visible, message.text)):
            raise errors.QuestionEmpty
        return message.parts
    if not isinstance(text, str):
        raise errors.QuestionNotText
    if len(text) > 8 * MAX_QUESTION:  # bounds the work on what will be refused anyway
        raise errors.QuestionTooLong
    text = clean_text(text)
    if not any(is_visible(c) for c in text):
        raise errors.QuestionEmpty
    if len(text) > MAX_QUESTION:
        raise errors.QuestionTooLong
    return text


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
        head = data[:64].lstrip(b"\xef\xbb\xbf \r\n\t")
        known = any(data.startswith(magic, at) for at, magic in _OTHER_FORMATS)
        known = known or head.startswith((b"<svg", b"<?xml"))
        raise errors.UnsupportedFormat if known else errors.NotAnImage
    own, passes, turned = own_bytes(data, kind)
    if len(own) > MAX_FILE_BYTES:
        raise errors.ImageTooLarge
    if kind == "HEIF" and importlib.util.find_spec("pillow_heif") is None:
        raise errors.UnsupportedFormat(
            "HEIC pictures cannot be read here. Install rotatek[heif], or save it as JPEG."
        )
    try:
        image = _read(own, kind)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise errors.ImageTooManyPixels from error
    except errors.UserError:
        raise
    except Exception as error:  # Pillow's parsers raise anything on mutated files
        raise errors.ImageDamaged from error
    _check_size(*image.size)
    if passes * image.width * image.height > MAX_SCAN_PIXELS:
        raise errors.ImageTooComplex
    return image, turned


def _read(data: bytes, kind: str) -> Image.Image:
    if kind != "HEIF":
        return Image.open(io.BytesIO(data), formats=(kind,))
    from pillow_heif import open_heif  # noqa: PLC0415  # an extra of its own

    found = open_heif(io.BytesIO(data), convert_hdr_to_8bit=True)
    _check_size(*found.size)
    picture: Image.Image = found.to_pillow()  # decodes it
    return picture


def read_file(path: os.PathLike[str], most: int, too_large: type[errors.UserError]) -> bytes:
    """A regular file (never a device or a pipe), at most one byte more than `most`.

    Args:
        path: of the file.
        most: bytes.
        too_large: raised for a file of more.

    Raises:
        UserError: FileUnreadable, or `too_large`.
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
    """Apply the pixel, side and aspect limits."""
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
        turned = orientation_of(image.info.get("exif") or b"") if turned == 1 else turned
        flat = _flatten(image)
    except (errors.UserError, MemoryError):
        raise
    except Exception as error:  # truncated data, bad checksums, broken palettes and profiles
        raise errors.ImageDamaged from error
    return flat.transpose(_TRANSPOSE[turned]) if turned in _TRANSPOSE else flat


def _flatten(image: Image.Image) -> Image.Image:
    """Any mode to RGB on white, strip by strip."""
    flat = Image.new("RGB", image.size, "white")
    rows = max(1, _STRIP_PIXELS // image.width)
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        for colour, mask in _layers(strip):
            flat.paste(colour, (0, top), mask)
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


def _clean_history(history: Sequence[tuple[Asked, str]]) -> list[tuple[Asked, str | None]]:
    """Earlier turns, cleaned like questions; bounded in length."""
    try:
        turns = [(question, answer) for question, answer in history or ()]
    except (TypeError, ValueError) as error:
        raise errors.HistoryInvalid from error
    if not all(isinstance(asked, str | tuple) and isinstance(said, str) for asked, said in turns):
        raise errors.HistoryInvalid
    if sum(len(said) for _, said in turns) > MAX_TEXT:
        raise errors.HistoryInvalid
    return [(clean_question(question), clean_text(answer)) for question, answer in turns]


def _whole_number(name: str, value: object, low: int, high: int) -> int:
    """An int in [low, high]; whole floats are accepted, because web sliders send them."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    whole = whole or (isinstance(value, float) and math.isfinite(value) and value.is_integer())
    if not whole or not low <= int(value) <= high:  # type: ignore[call-overload]
        raise errors.SettingError(name, f"a whole number from {low} to {high}", value)
    return int(value)  # type: ignore[call-overload]
