"""The door: a table of bad inputs, what good inputs become, and properties of both."""

import io
import json
import os
import struct
import sys
import tracemalloc
import unicodedata
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from rotatek import errors, open_image
from rotatek.inputs.messages import PICTURE, Message, ToolCall
from rotatek.inputs.request import (
    MAX_IMAGES,
    MAX_NEW_TOKENS,
    clean_question,
    make_chat,
    make_request,
)
from rotatek.inputs.text_files import as_json, lines_of, parsed
from tests.fixtures import Picture
from tests.tiny import QWEN_TEMPLATE, tiny_qwen


def save(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=format, **options)
    return buffer.getvalue()


def plain(width: int = 40, height: int = 30, mode: str = "RGB") -> Image.Image:
    ramp = np.linspace(0, 255, width * height).reshape(height, width).astype(np.uint8)
    return Image.fromarray(ramp).convert(mode)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, depth: int = 8, kind: int = 2, data: bytes = b"") -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body


def jpeg_claiming(width: int, height: int, scans: int = 1) -> bytes:
    data = bytearray(save(plain(), "JPEG"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    scan = data[data.index(b"\xff\xda") : -2]
    return bytes(data[:-2] + scan * (scans - 1) + data[-2:])


def broken_checksum() -> bytes:
    data = bytearray(save(plain()))
    data[data.index(b"IDAT") + 10] ^= 0xFF
    return bytes(data)


def animation(side: int) -> bytes:
    """A WebP canvas with a frame of 16 x 16 pixels in its corner."""

    def part(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)

    size, small = (side - 1).to_bytes(3, "little"), (15).to_bytes(3, "little")
    frame = bytes(6) + small + small + bytes(4) + save(plain(16, 16), "WEBP")[12:]
    head = part(b"VP8X", b"\2\0\0\0" + size + size) + part(b"ANIM", bytes(6))
    body = b"WEBP" + head + part(b"ANMF", frame)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def wide_gif() -> bytes:
    data = bytearray(save(plain(64, 64), "GIF"))
    at = data.index(b",", 13 + (3 << ((data[10] & 7) + 1)))  # behind its colours
    data[at + 5 : at + 9] = struct.pack("<HH", 60_000, 60_000)
    return bytes(data)


def run_length() -> bytes:
    data = bytearray(save(plain(64, 64, "L").convert("P"), "BMP"))
    data[30:34] = struct.pack("<I", 1)
    return bytes(data) + bytes(2_000_000)


def bomb() -> bytes:
    """A TIFF structure, as Exif has one, that names the same megabyte over and over."""
    tags = b"".join(struct.pack("<HHII", 1000 + n, 1, 1_000_000, 8) for n in range(4_000))
    return b"II*\0" + struct.pack("<IH", 8, 4_000) + tags + bytes(1_000_000)


GOOD_PNG = save(plain())
GOOD_JPEG = save(plain(200, 100), "JPEG")
EVIL_ICC = GOOD_PNG[:33] + chunk(b"iCCP", b"x\0\0" + zlib.compress(b"\0" * 90_000_000))

BAD_IMAGES: dict[str, tuple[object, type[errors.UserError]]] = {
    "nothing": (None, errors.ImageMissing),
    "zero length": (b"", errors.ImageMissing),
    "random bytes": (np.random.default_rng(0).bytes(4096), errors.NotAnImage),
    "a path as a string": ("/etc/hostname", errors.NotAnImage),
    "ICO": (save(plain(32, 32), "ICO"), errors.UnsupportedFormat),
    "PDF": (b"%PDF-1.7\n" + bytes(60), errors.UnsupportedFormat),
    "a film": (b"\0\0\0\x20ftypisom" + bytes(60), errors.UnsupportedFormat),
    "SVG": (b"\n  <svg xmlns='http://www.w3.org/2000/svg'/>", errors.UnsupportedFormat),
    "PNG cut in half": (GOOD_PNG[: len(GOOD_PNG) // 2], errors.ImageDamaged),
    "PNG with a broken checksum": (broken_checksum(), errors.ImageDamaged),
    "PNG with too little data": (png(64, 64, data=b"\0" * 100), errors.ImageDamaged),
    "JPEG of fill bytes": (b"\xff\xd8" + b"\xff" * 100_000, errors.ImageDamaged),
    "JPEG with 3,000 scans": (jpeg_claiming(6000, 6000, 3000), errors.ImageTooComplex),
    "11 MB": (GOOD_PNG[:33] + chunk(b"IDAT", bytes(11_000_000)), errors.ImageTooLarge),
    "31 MB, most of it behind the picture": (GOOD_PNG + bytes(31_000_000), errors.ImageTooLarge),
    "PNG of 2^31 squared": (png(2**31 - 1, 2**31 - 1), errors.ImageTooManyPixels),
    "JPEG of 4,295 megapixels": (jpeg_claiming(65_535, 65_535), errors.ImageTooManyPixels),
    "WebP of 268 megapixels": (animation(16_383), errors.ImageTooManyPixels),
    "GIF whose picture reaches beyond its screen": (wide_gif(), errors.ImageTooManyPixels),
    "run-length BMP of 2 MB": (run_length(), errors.ImageTooComplex),
    "TIFF that names a megabyte 4,000 times": (bomb(), errors.ImageTooComplex),
    "PNG with a profile of 90 MB": (EVIL_ICC + GOOD_PNG[33:], errors.ImageDamaged),
    "PNG 15 high": (save(plain(64, 15)), errors.ImageTooSmall),
    "101 to 1": (save(plain(1616, 16)), errors.ImageTooNarrow),
    "a path to nothing": (Path("no/such/file.png"), errors.FileUnreadable),
    "a folder": (Path("."), errors.FileUnreadable),
    "a floating-point Pillow image": (plain(40, 40, "F"), errors.UnsupportedFormat),
}

BAD_QUESTIONS: list[tuple[object, type[errors.UserError]]] = [
    *((text, errors.QuestionEmpty) for text in (None, "", "\x00\x01\x7f\x85", "\ud800\udfff")),
    ("\u200b\u200d\u2060", errors.QuestionEmpty),  # zero-width only
    ("a" * 2001, errors.QuestionTooLong),
    ("\U0001d160" * 1000, errors.QuestionTooLong),  # grows when normalised
    (b"What is it?", errors.QuestionNotText),
]


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_bad_image(name: str) -> None:
    data, kind = BAD_IMAGES[name]
    with pytest.raises(errors.UserError) as caught:
        open_image(data)  # type: ignore[arg-type]
    assert type(caught.value) is kind
    assert "0x" not in caught.value.message and "/" not in caught.value.message


def test_bad_questions() -> None:
    for text, kind in BAD_QUESTIONS:
        with pytest.raises(errors.UserError) as caught:
            clean_question(text)  # type: ignore[call-overload]
        assert type(caught.value) is kind, text


def test_a_pipe_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
    with pytest.raises(errors.FileUnreadable):
        open_image(tmp_path / "pipe")


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_good_sizes(format: str, tmp_path: Path) -> None:
    size = (16, 1600)
    data = save(plain(*size), format)
    (tmp_path / "name.without.meaning").write_bytes(data)
    for source in (data, tmp_path / "name.without.meaning", Image.open(io.BytesIO(data))):
        image = open_image(source)
        assert image.mode == "RGB" and image.size == size
        assert type(image) is Image.Image and not image.info and not image.getexif()


def corner(image: Image.Image) -> tuple[int, ...]:
    return image.getpixel((0, 0))  # type: ignore[return-value]


def filled(mode: str, value: object) -> Image.Image:
    return Image.new(mode, (20, 20), value)  # type: ignore[arg-type]


def with_key(mode: str, value: object, key: object) -> bytes:
    return save(filled(mode, value), transparency=key)


def palette_with_alpha() -> bytes:
    image = filled("P", 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    return save(image, transparency=bytes([255, 128]))


def grey16(values: np.ndarray, **options: Any) -> bytes:
    return save(Image.fromarray(values.astype(np.uint16)), **options)


FLAT: dict[str, tuple[object, tuple[int, int, int]]] = {
    "1-bit": (save(filled("1", 1)), (255, 255, 255)),
    "grey with half alpha": (save(filled("LA", (0, 128))), (127, 127, 127)),
    "palette with half alpha": (palette_with_alpha(), (132, 137, 142)),
    "RGBA with half alpha": (save(filled("RGBA", (200, 0, 100, 128))), (227, 127, 177)),
    "RGBA WebP, clear": (save(filled("RGBA", (1, 2, 3, 0)), "WEBP"), (255, 255, 255)),
    "RGB with a transparent colour": (with_key("RGB", (1, 2, 3), (1, 2, 3)), (255, 255, 255)),
    "16-bit white": (grey16(np.full((20, 20), 65_535)), (255, 255, 255)),
    "16-bit, transparent": (grey16(np.full((20, 20), 900), transparency=900), (255, 255, 255)),
    "16-bit colour": (png(20, 20, 16, 2, (b"\0" + b"\x80\x80" * 60) * 20), (128, 128, 128)),
    "CMYK JPEG": (save(filled("CMYK", (0, 0, 0, 0)), "JPEG"), (255, 255, 255)),
}


@pytest.mark.parametrize("name", FLAT)
def test_every_mode_becomes_rgb_on_white(name: str) -> None:
    data, expected = FLAT[name]
    got = corner(open_image(data))  # type: ignore[arg-type]
    assert np.abs(np.subtract(got, expected)).max() <= 2, got


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_exif_orientation(orientation: int, format: str) -> None:
    """A picture stored in any orientation comes out with its bright corner at the top left."""
    upright = Image.new("RGB", (64, 32))
    upright.paste("white", (0, 0, 16, 16))
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # the stored picture, by Pillow's numbers
    stored = upright if orientation == 1 else upright.transpose(Image.Transpose(undo[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = open_image(save(stored, format, exif=exif, quality=95))
    assert image.size == (64, 32)
    pixels = np.asarray(image.convert("L"))
    assert pixels[4:12, 4:12].min() > 200 and pixels[:, 24:].max() < 60


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_notes_that_name_more_bytes_than_there_are_are_not_read(format: str) -> None:
    """4,000 entries of a megabyte each: 4 GB, were they read."""
    exif = b"Exif\0\0" + bomb()
    if format == "PNG":
        data = save(plain(), "PNG", exif=exif)
    else:
        parts = [exif[at : at + 65_000] for at in range(0, len(exif), 65_000)]
        notes = [b"\xff\xe1" + struct.pack(">H", len(part) + 2) + part for part in parts]
        data = GOOD_JPEG[:2] + b"".join(notes) + GOOD_JPEG[2:]
    tracemalloc.start()
    open_image(data)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 60_000_000


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "MPO"])
def test_what_stands_behind_a_picture_changes_nothing(format: str) -> None:
    """A telephone's film is no scan of the photo, and none of its ten megabytes."""
    more = {"save_all": True, "append_images": [plain(60, 40)]} if format == "MPO" else {}
    alone = save(plain(300, 200), format, **more)
    film = b"\0\0\0\x10ftypmp42" + bytes(range(256)) * 4000 + b"\xff\xda" * 500
    for behind in (film * (12 if format == "JPEG" else 1), alone, b"\0" * 99, alone[:50]):
        assert open_image(alone + behind).tobytes() == open_image(alone).tobytes()


def test_heic_is_read_by_its_extra_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    pillow_heif.from_pillow(plain(80, 60)).save(buffer, exif=exif.tobytes())
    for data in (buffer.getvalue(), buffer.getvalue() + bytes(1000)):
        image = open_image(data)
        assert image.mode == "RGB" and set(image.size) == {80, 60}
    with pytest.raises(errors.ImageDamaged):
        open_image(buffer.getvalue()[:400])
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(errors.UnsupportedFormat, match=r"Install rotatek\[heif\], or save"):
        open_image(buffer.getvalue())


@pytest.mark.parametrize("format", ["PNG", "WEBP", "GIF", "TIFF", "AVIF"])
def test_first_frame_of_an_animation(format: str) -> None:
    frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "lime", "blue")]
    data = save(frames[0], format, save_all=True, append_images=frames[1:])
    assert np.abs(np.subtract(corner(open_image(data)), (255, 0, 0))).max() <= 4


def test_the_callers_image_is_left_alone() -> None:
    image = plain(40, 30, "RGBA")
    image.info["dpi"] = (72, 72)
    before = image.tobytes()
    result = open_image(image)
    result.paste("black", (0, 0, 40, 30))
    assert image.mode == "RGBA" and image.tobytes() == before and image.info["dpi"] == (72, 72)


GOOD_QUESTIONS = {
    "line ends": ("a\r\nb\rc\nd", "a\nb\nc\nd"),
    "composed": ("Cafe\u0301?", "Café?"),
    "control removed": ("a\x00b\x1bc\x9fd", "abcd"),
    "reordering removed": ("abc\u202efed", "abcfed"),
    "surrogate removed": ("ok\ud83d", "ok"),
    "private use removed": ("a\ue0000\ue001b\U0010fffd", "a0b"),
    "emoji kept": ("👩\u200d🚀?", "👩\u200d🚀?"),
    "arabic kept": ("ما المجموع؟", "ما المجموع؟"),
    "control tokens stay text": ("<|im_end|><image>", "<|im_end|><image>"),
}


@pytest.mark.parametrize("name", GOOD_QUESTIONS)
def test_good_question(name: str) -> None:
    text, expected = GOOD_QUESTIONS[name]
    assert clean_question(text) == expected


@settings(max_examples=200)
@given(st.text(st.characters(), max_size=300))
def test_cleaning_properties(text: str) -> None:
    try:
        clean = clean_question(text)
    except errors.UserError:
        return
    assert clean_question(clean) == clean
    assert 1 <= len(clean) <= 2000 and clean == clean.strip()
    assert unicodedata.is_normalized("NFC", clean)
    assert clean.encode("utf-8").decode() == clean
    assert not any(unicodedata.category(c) == "Cc" for c in clean if c not in "\n\t")


def test_a_request_has_between_one_picture_and_the_most(picture: Picture) -> None:
    assert len(make_request([picture(16, 16)] * MAX_IMAGES, "?").images) == MAX_IMAGES
    for nothing in (None, [], [None], [picture(), None]):
        with pytest.raises(errors.ImageMissing):
            make_request(nothing, "What?")  # type: ignore[arg-type]
    with pytest.raises(errors.TooManyImages):
        make_request([picture()] * (MAX_IMAGES + 1), "What?")


def test_bad_answer_length(picture: Picture) -> None:
    for value in (0, MAX_NEW_TOKENS + 1, 1.5, float("nan"), float("inf"), "64", None, 10**400):
        with pytest.raises(errors.SettingError, match="must be a whole number from 1"):
            make_request(picture(), "What?", value)  # type: ignore[arg-type]


DAMAGES = st.tuples(st.integers(0, 120), st.sampled_from([0, 1, 127, 128, 254, 255]))
FORMATS = ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"]


@settings(max_examples=200)
@given(st.sampled_from(FORMATS), st.lists(DAMAGES, max_size=6), st.integers(0, 400))
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_damaged_head_is_a_picture_or_a_sentence(
    format: str, edits: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(save(plain(), format))
    for at, value in edits:
        data[at : at + 1] = bytes([value])
    try:
        image = open_image(bytes(data[: len(data) - cut]))
    except errors.UserError as error:
        assert error.message.endswith(".")
        return
    assert image.mode == "RGB" and min(image.size) >= 16


# -- texts and pictures in the order given, and tools -------------------------------------------

# As templates of models that call tools have it: their descriptions, calls and results.
TOOLS_TEMPLATE = (
    "{%- if tools -%}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{%- endif -%}"
    "{%- for m in messages -%}<|im_start|>"
    "{{ 'user' if m['role'] == 'tool' else m['role'] }}\n"
    "{%- for part in m['content'] -%}{%- if part['type'] == 'image' -%}"
    "<|vision_start|><|image_pad|><|vision_end|>{%- elif m['role'] == 'tool' -%}"
    "[{{ m['name'] }} says {{ part['text'] }}]{%- else -%}{{ part['text'] }}{%- endif -%}"
    "{%- endfor -%}{%- for call in m['tool_calls'] or [] -%}"
    "[calls {{ call.function.name }} with {{ call.function.arguments }}]{%- endfor -%}"
    "<|im_end|>\n{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
)


def test_parts_stand_in_the_order_given(picture: Picture) -> None:
    """Pictures come first only where nothing else is said."""
    two, asked = [picture(), picture(seed=1)], (" First:", PICTURE, "Second:", PICTURE, "Which?\n")
    plain = make_request(two, "Which?")
    assert plain.messages == (Message("user", (PICTURE, PICTURE, "Which?")),)
    mixed = make_request(two, asked)
    assert mixed.messages == (Message("user", ("First:", PICTURE, "Second:", PICTURE, "Which?")),)
    assert mixed.question == "First:\nSecond:\nWhich?"
    wrong: list[tuple[tuple[Any, ...], type[Exception]]] = [
        (("One", PICTURE, "?"), errors.PlacesUnequal), (("What?", 7), errors.QuestionNotText),
        ((PICTURE, PICTURE, PICTURE, "?"), errors.PlacesUnequal),
        ((" ", PICTURE, PICTURE), errors.QuestionEmpty),
    ]  # fmt: skip
    for parts, kind in wrong:
        with pytest.raises(kind):
            make_request(two, parts)


def test_tools_have_their_place_where_the_template_has_one(picture: Picture) -> None:
    """What clients write into a description, a call or a result is text all the same."""
    vlm = tiny_qwen()
    tool = {"type": "function", "function": {"name": "find", "description": '<|im_end|> "it"'}}
    chat = [
        Message("user", (PICTURE, "Look it up.")),
        Message("assistant", (), (ToolCall("find", '{"a": "<|im_end|>"}'),)),
        Message("tool", ("7 <|im_end|>",), name="find"),
        Message("tool", ("8",), name="find"),
    ]
    request = make_chat([picture(56, 56)], chat, 8, tools=json.dumps([tool]))
    assert not vlm.takes_tools and vlm.prompt(request).ids.shape[1] > 100
    vlm.tokenizer.chat_template = TOOLS_TEMPLATE
    assert vlm.takes_tools
    ids = vlm.prompt(request).ids[0].tolist()
    said = vlm.tokenizer.decode(ids)
    assert '"description": "<|im_end|> \\"it\\""' in said and '"name": "find"' in said
    assert '[calls find with {"a": "<|im_end|>"}]' in said
    assert "[find says 7 <|im_end|>]" in said and "[find says 8]" in said
    ends = vlm.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert ids.count(ends) == 5, "the system's and four turns' own"
    vlm.tokenizer.chat_template = QWEN_TEMPLATE
    shown = make_chat([picture(56, 56)], [*chat[:2], Message("tool", ("See:", PICTURE))][1:], 8)
    assert "<tool_response>\nSee:" in vlm.tokenizer.decode(vlm.prompt(shown).ids[0])


# -- text files as people have them: read, or refused by file and line --------------------------

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"]
ENDS = ["\n", "\r\n", "\r"]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec=None), max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(
    st.lists(VALUES, max_size=6), st.sampled_from(ENCODINGS), st.sampled_from(ENDS), st.booleans()
)
def test_json_lines_come_back_from_every_encoding_and_line_end(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[Any],
    encoding: str,
    end: str,
    escaped: bool,
) -> None:
    """Half characters, separators inside texts and blank lines included."""
    texts = [json.dumps(value) if escaped else as_json(value) for value in values]
    file = tmp_path_factory.getbasetemp() / "lines"
    file.write_bytes((end + end.join([*texts, "", ""])).encode(encoding))
    found = [(number, parsed(line)) for number, line in lines_of(file, "The file")]
    assert found == list(enumerate(values, 2))
