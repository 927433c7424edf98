"""Picture files of every kind through the API: read, or refused in a sentence."""

import base64
import io
import sys
from typing import Any

import openai
import pytest
from PIL import Image

from tests.server.conftest import asked

pytestmark = pytest.mark.slow
SHADES = Image.linear_gradient("L").resize((96, 72))
COLOURS = Image.merge("RGB", (SHADES, SHADES.rotate(180), SHADES.point(lambda v: v // 2)))


def file_of(image: Image.Image, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def heic(image: Image.Image) -> bytes:
    from pillow_heif import from_pillow

    file = io.BytesIO()
    from_pillow(image).save(file, quality=90)
    return file.getvalue()


def photograph() -> bytes:
    """40 megapixels, as telephones take them."""
    return file_of(COLOURS.resize((7296, 5472)), "JPEG", quality=60)


READ = {
    "a photograph of 40 megapixels": photograph,
    "a CMYK JPEG": lambda: file_of(COLOURS.convert("CMYK"), "JPEG"),
    "a CMYK TIFF": lambda: file_of(COLOURS.convert("CMYK"), "TIFF"),
    "16 bits in a PNG": lambda: file_of(SHADES.convert("I;16"), "PNG"),
    "16 bits in a TIFF": lambda: file_of(SHADES.convert("I;16"), "TIFF"),
    "a palette in a PNG": lambda: file_of(COLOURS.quantize(16), "PNG"),
    "a palette in a GIF": lambda: file_of(COLOURS.quantize(16), "GIF"),
    "a palette in a BMP": lambda: file_of(COLOURS.quantize(16), "BMP"),
    "a palette with a clear colour": lambda: file_of(COLOURS.quantize(16), "PNG", transparency=3),
    "one bit": lambda: file_of(SHADES.convert("1"), "TIFF", compression="group4"),
    "grey with alpha": lambda: file_of(SHADES.convert("LA"), "PNG"),
    "an AVIF": lambda: file_of(COLOURS, "AVIF"),
    "an MPO": lambda: file_of(COLOURS, "MPO", save_all=True, append_images=[COLOURS]),
    "a HEIC": lambda: heic(COLOURS),
    "a WEBP that moves": lambda: file_of(COLOURS, "WEBP", save_all=True, append_images=[COLOURS]),
}
BOX = b"\0\0\0\x18ftyp%s\0\0\0\0%smif1" + bytes(64)
REFUSED = {
    "a PSD": b"8BPS" + bytes(64),
    "a JPEG 2000": b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(64),
    "a JPEG XL": b"\xff\x0a" + bytes(64),
    "an SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "an icon": b"\0\0\1\0" + bytes(64),
    "a film": BOX % (b"isom", b"isom"),
    "a broken HEIC": BOX % (b"heic", b"heic"),
    "a text": b"hello",
    "half a photograph": photograph()[:4000],
}


def ask(client: openai.OpenAI, file: bytes) -> Any:
    address = f"data:image/jpeg;base64,{base64.b64encode(file).decode()}"
    create: Any = client.chat.completions.create
    return create(model="tiny", messages=asked(address), max_tokens=1)


@pytest.mark.parametrize("name", READ)
def test_it_is_read(client: openai.OpenAI, name: str) -> None:
    assert ask(client, READ[name]()).usage.visual_tokens > 0


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_a_sentence(client: openai.OpenAI, name: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, REFUSED[name])
    told: Any = refused.value.body
    assert told["message"].endswith(".") and "went wrong" not in told["message"]
    assert told["param"] == "messages[0].content[1].image_url"


def test_a_heic_says_what_to_install(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(openai.BadRequestError, match=r"rotatek\[heif\]"):
        ask(client, BOX % (b"heic", b"heic"))
