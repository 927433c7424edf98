"""Pictures as cameras, telephones and scanners make them, with what they put behind them."""

import io
import struct
import time
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from rotatek import errors
from rotatek.inputs import image_headers as headers
from rotatek.inputs.request import check_header, open_image

FORMATS = ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "MPO"]
NOISE = np.random.default_rng(0)


def save(image: Image.Image, format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=format, **options)
    return buffer.getvalue()


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(NOISE.integers(0, 256, (height, width, 3), dtype=np.uint8))


def smooth(width: int, height: int) -> Image.Image:
    return noise(8, 8).resize((width, height))


def film(size: int) -> bytes:
    """As an MP4 file begins, and noise, in which starts of scans are frequent."""
    body = NOISE.bytes(size) + b"\xff\xda" * 500
    return struct.pack(">I4s4sI", 16, b"ftyp", b"mp42", 0) + body


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "GIF", "MPO"])
@pytest.mark.parametrize("progressive", [False, True])
def test_what_stands_behind_a_picture_changes_nothing(format: str, progressive: bool) -> None:
    more: dict[str, Any] = {"progressive": progressive} if format in ("JPEG", "MPO") else {}
    if format == "MPO":
        more |= {"save_all": True, "append_images": [smooth(60, 40)]}
    alone = save(noise(300, 200), format, **more)
    wanted = open_image(alone).tobytes()
    for behind in (film(1_000_000), alone, b"\0" * 99, b"SEFT", alone[:50]):
        assert open_image(alone + behind).tobytes() == wanted
        assert check_header(alone + behind) == (300, 200)


def test_a_large_photo_with_a_film_is_decoded() -> None:
    """The film is no scan of the photo, and none of its ten megabytes."""
    photo = save(smooth(6120, 8160), "JPEG", quality=75)
    for size in (2_000_000, 12_000_000):
        assert open_image(photo + film(size)).size == (6120, 8160)
    own = headers.header_of(photo + film(1000))
    assert own is not None and own.data == photo


def test_a_jpeg_with_junk_between_its_segments() -> None:
    photo = save(smooth(300, 200), "JPEG")
    first = 4 + struct.unpack(">H", photo[4:6])[0]
    found = open_image(photo[:first] + b"\0abc" + photo[first:])
    assert found.tobytes() == open_image(photo).tobytes()
    with pytest.raises(errors.ImageDamaged):
        open_image(photo[:first] + b"\0" * 5_000_000)


@pytest.mark.parametrize("kind", [b"zTXt", b"iTXt", b"iCCP", b"tEXt"])
def test_a_png_with_a_long_or_broken_text_beside_its_pixels(kind: bytes) -> None:
    """As programs write how they made it: Pillow gives the whole picture up."""
    body = b"workflow\0" + {b"iTXt": b"\1\0\0\0", b"tEXt": b""}.get(kind, b"\0")
    body += zlib.compress(b"x" * 3_000_000) if kind != b"tEXt" else b"x" * 3_000_000
    picture = save(smooth(300, 200), "PNG")
    for crc in (zlib.crc32(kind + body), 7):
        chunk = struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)
        found = open_image(picture[:33] + chunk + picture[33:])
        assert found.tobytes() == open_image(picture).tobytes()


def test_a_pictures_own_scans_count_still() -> None:
    photo = save(smooth(2000, 2000), "JPEG", progressive=True)
    first = photo.index(b"\xff\xda")
    second = photo.index(b"\xff\xda", first + 2)
    many = photo[:second] + photo[first:second] * 300 + photo[second:]
    with pytest.raises(errors.ImageTooComplex):
        open_image(many)


def test_a_photo_whose_thumbnail_has_scans_and_an_end_of_its_own() -> None:
    thumbnail = save(smooth(160, 120), "JPEG", progressive=True)
    photo = save(noise(300, 200), "JPEG", exif=b"Exif\0\0junk" + thumbnail)
    assert open_image(photo).size == (300, 200)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "I;16"])
def test_every_format_in_every_mode_that_it_has(format: str, mode: str) -> None:
    """Against the picture as Pillow converts it; transparent pixels on white."""
    if mode == "I;16" and format not in ("PNG", "TIFF"):
        pytest.skip("the format has no such mode")
    shades = Image.linear_gradient("L").resize((48, 32))
    image = shades.convert("RGB").quantize(16) if mode == "P" else None
    if mode == "I;16":
        image = Image.fromarray(np.asarray(shades).astype(np.uint16) * 257)
    image = image or shades.convert("RGB").convert(mode)
    try:
        data = save(
            image, format, **({"quality": 95} if format in ("JPEG", "AVIF", "WEBP") else {})
        )
    except (OSError, ValueError, KeyError):
        pytest.skip("the format has no such mode")
    if mode == "1" and format in ("JPEG", "MPO"):
        pytest.skip("dots are no picture for its waves")
    found = np.asarray(open_image(data).convert("L")).astype(int)
    wanted = np.asarray(shades if mode == "I;16" else image.convert("RGB").convert("L")).astype(int)
    assert np.abs(found - wanted).max() <= 8


@pytest.mark.parametrize("format", ["PNG", "WEBP", "GIF", "TIFF", "AVIF"])
def test_transparency_lies_on_white(format: str) -> None:
    clear = Image.new("RGBA", (40, 40), (200, 0, 0, 0))
    clear.paste((0, 0, 255, 255), (20, 0, 40, 40))
    found = np.asarray(open_image(save(clear, format)))
    assert found[:, :16].min() >= 250 and np.abs(found[20, 30] - [0, 0, 255]).max() <= 4


@pytest.mark.parametrize("order", ["<", ">"])
def test_tiff_of_any_byte_order_and_of_many_pages(order: str) -> None:
    values = np.tile(np.linspace(0, 65_535, 64), (40, 1)).astype(order + "u2")
    data = save(Image.fromarray(values.astype(np.uint16)), "TIFF")
    assert np.abs(np.asarray(open_image(data))[0, :, 0] - np.linspace(0, 255, 64)).max() <= 1
    for big in (False, True):
        pages = save(
            smooth(64, 40), "TIFF", save_all=True, append_images=[noise(70, 70)] * 3, big_tiff=big
        )
        assert open_image(pages).size == (64, 40)
        header = headers.header_of(pages)
        assert header is not None
        assert Image.open(io.BytesIO(header.data)).n_frames == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits",
                                         "jpeg", "group4"])  # fmt: skip
def test_tiff_compressions(compression: str) -> None:
    image = smooth(200, 100).convert("1" if compression == "group4" else "RGB")
    assert open_image(save(image, "TIFF", compression=compression)).size == (200, 100)


def test_tiff_compressions_that_are_not_read_are_said() -> None:
    data = bytearray(save(smooth(40, 40), "TIFF", compression="tiff_lzw"))
    at = data.index(struct.pack("<HHI", 259, 3, 1))
    data[at + 8 : at + 10] = struct.pack("<H", 34_925)
    with pytest.raises(errors.UnsupportedFormat, match="compression of this TIFF"):
        open_image(bytes(data))


def _bomb(entries: int = 4_000, claimed: int = 1_000_000) -> bytes:
    """A TIFF structure that names the same megabyte over and over."""
    tags = b"".join(struct.pack("<HHII", 1000 + n, 1, claimed, 8) for n in range(entries))
    return b"II*\0" + struct.pack("<IH", 8, entries) + tags + bytes(claimed)


def _in_jpeg(exif: bytes) -> bytes:
    photo = save(smooth(64, 64), "JPEG")
    pieces = [exif[at : at + 65_000] for at in range(0, len(exif), 65_000)]
    segments = [
        b"\xff\xe1" + struct.pack(">H", 8 + len(piece)) + b"Exif\0\0" + piece for piece in pieces
    ]
    return photo[:2] + b"".join(segments) + photo[2:]


def _in_png(exif: bytes) -> bytes:
    return save(smooth(64, 64), "PNG", exif=b"Exif\0\0" + exif)


def _tiff_bomb(_: bytes) -> bytes:
    data = save(smooth(64, 64), "TIFF")
    body = bytes(1_000_000)
    tags = [
        (256, 4, 1, 64), (257, 4, 1, 64), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1),
        (273, 4, 1, 8), (277, 3, 1, 1), (278, 4, 1, 64), (279, 4, 1, 4096),
    ]  # fmt: skip
    tags += [(1000 + n, 1, len(body), 8) for n in range(4_000)]
    table = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    assert data.startswith(b"II*\0")
    return (
        b"II*\0" + struct.pack("<I", 8 + len(body)) + body
        + struct.pack("<H", len(tags)) + table + bytes(4)
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrap", [_in_jpeg, _in_png, _tiff_bomb])
def test_notes_that_name_more_bytes_than_there_are(wrap: Any) -> None:
    """4,000 entries of a megabyte each: 4 GB, were they read."""
    data = wrap(_bomb())
    tracemalloc.start()
    start = time.process_time()
    try:
        assert open_image(data).size == (64, 64)
    except errors.ImageTooComplex:
        assert wrap is _tiff_bomb
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 60_000_000 and time.process_time() - start < 3


def test_a_gif_whose_picture_reaches_beyond_its_screen() -> None:
    data = bytearray(save(smooth(64, 64), "GIF"))
    at = data.index(b",", 13 + (3 << ((data[10] & 7) + 1)))  # behind its colours
    data[at + 5 : at + 9] = struct.pack("<HH", 60_000, 60_000)
    with pytest.raises(errors.ImageTooManyPixels):
        open_image(bytes(data))


def test_a_long_run_length_bmp_is_refused_at_once() -> None:
    data = bytearray(save(smooth(64, 64).convert("P"), "BMP"))
    data[30:34] = struct.pack("<I", 1)
    with pytest.raises(errors.ImageTooComplex):
        open_image(bytes(data) + bytes(2_000_000))


def test_heic_is_read_by_its_extra_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    head = struct.pack(">I4s4sI4s4s", 24, b"ftyp", b"heic", 0, b"mif1", b"heic")
    size = struct.pack(">I4sIII", 20, b"ispe", 0, 64, 48)
    monkeypatch.setitem(__import__("sys").modules, "pillow_heif", None)
    with pytest.raises(errors.UnsupportedFormat, match=r"Install rotatek\[heif\], or save"):
        open_image(head + size)
    monkeypatch.undo()
    huge = struct.pack(">I4sIII", 20, b"ispe", 0, 64_000, 48_000)
    with pytest.raises(errors.ImageTooManyPixels):
        open_image(head + huge)


def test_heic_of_the_extra() -> None:
    from pillow_heif import from_pillow

    buffer = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    from_pillow(smooth(80, 60)).save(buffer, exif=exif.tobytes())
    for data in (buffer.getvalue(), buffer.getvalue() + film(1000)):
        image = open_image(data)
        assert image.mode == "RGB" and set(image.size) == {80, 60}
    with pytest.raises(errors.ImageDamaged):
        open_image(buffer.getvalue()[:400])


SHADES = Image.linear_gradient("L").resize((40, 30)).convert("RGB")
ALONE = {format: save(SHADES, format) for format in FORMATS}
FILM = b"\0\0\0\x10ftypmp42" + bytes(range(256))
MARKS = [b"\xff\xd9", b"\xff\xda\0\x0c" * 9, b";", b"IEND", b"\0" * 300]
BEHIND = st.binary(max_size=60) | st.sampled_from([FILM, ALONE["PNG"], *MARKS])


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(set(FORMATS) - {"BMP", "TIFF", "AVIF"})), st.lists(BEHIND))
def test_any_bytes_behind_a_picture_change_nothing(format: str, behind: list[bytes]) -> None:
    alone = ALONE[format]
    assert open_image(alone + b"".join(behind)).tobytes() == open_image(alone).tobytes()


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(FORMATS),
    st.lists(
        st.tuples(st.integers(0, 120), st.sampled_from([0, 1, 127, 128, 254, 255])), max_size=6
    ),
    st.integers(0, 400),
)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_damaged_head_is_a_picture_or_a_sentence(
    format: str, edits: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(ALONE[format])
    for at, value in edits:
        data[at : at + 1] = bytes([value])
    try:
        image = open_image(bytes(data[: len(data) - cut]))
    except errors.UserError as error:
        assert error.message.endswith(".")
        return
    assert image.mode == "RGB" and min(image.size) >= 16
