"""Pictures as data URIs, however clients write them: the bytes count, not what is said of them."""

import base64
import io
from typing import Final
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from PIL import Image

from rotatek import errors
from rotatek.server.files import file_of


def _png() -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize((40, 30)).save(file, format="PNG")
    return file.getvalue()


PNG: Final = _png()
PLAIN: Final = base64.b64encode(PNG).decode()
SAFE: Final = base64.urlsafe_b64encode(PNG).decode()
WAYS: Final = {
    "as it should be": f"data:image/png;base64,{PLAIN}",
    "in lines": f"data:image/png;base64,{base64.encodebytes(PNG).decode()}",
    "in lines of MIME": "data:image/png;base64," + "\r\n".join(
        PLAIN[start : start + 76] for start in range(0, len(PLAIN), 76)
    ),
    "behind tabs and spaces": f"data:image/png;base64,\t {PLAIN[:9]} \f\v{PLAIN[9:]}\n\n",
    "without padding": f"data:image/png;base64,{PLAIN.rstrip('=')}",
    "with too much of it": f"data:image/png;base64,{PLAIN.rstrip('=')}====",
    "in the alphabet of addresses": f"data:image/png;base64,{SAFE}",
    "in that, without padding": f"data:image/png;base64,{SAFE.rstrip('=')}",
    "as a JPEG": f"data:image/jpeg;base64,{PLAIN}",
    "as text": f"data:text/plain;charset=utf-8;base64,{PLAIN}",
    "as something": f"data:application/octet-stream;base64,{PLAIN}",
    "without a type": f"data:;base64,{PLAIN}",
    "without anything": f"data:,{PLAIN}",
    "without a semicolon": f"data:base64,{PLAIN}",
    "without saying base64": f"data:image/png,{PLAIN}",
    "with a space before base64": f"data:image/png; base64,{PLAIN}",
    "with a name": f"data:image/png;name=a.png;base64,{PLAIN}",
    "in capitals": f"DATA:IMAGE/PNG;BASE64,{PLAIN}",
    "behind white space": f"\n data:image/png;base64,{PLAIN}",
    "with percent signs": f"data:image/png;base64,{quote(PLAIN, safe='')}",
    "with lines as percent signs": f"data:image/png;base64,{quote(base64.encodebytes(PNG))}",
    "as percent-encoded bytes": f"data:image/png,{quote(PNG)}",
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_picture_is_read_by_its_content(way: str) -> None:
    assert file_of({"url": WAYS[way]}) == PNG
    assert file_of(WAYS[way]) == PNG


@pytest.mark.parametrize(
    "data", ["!!", "A", "AAAAA", "AA=A", PLAIN[:-9] + "é" + PLAIN[-8:], "\udce9", "A" * 5 + "%zz"]
)
def test_what_is_no_base64_is_refused_in_a_sentence(data: str) -> None:
    with pytest.raises(errors.ImageDamaged, match="base64 cannot be read"):
        file_of({"url": f"data:image/png;base64,{data}"})


@pytest.mark.parametrize(
    "address",
    ["", "http://x/a.png", "file:///a", "data", "data:", "data:image/png;base64", None, 7, [],
     {"url": 1}, {}],
    ids=str,
)  # fmt: skip
def test_nothing_is_fetched(address: object) -> None:
    with pytest.raises(errors.ImageNotData):
        file_of(address)


def test_a_file_is_bounded_before_and_after() -> None:
    for data in ("A" * 42_000_000, " \n" * 10_000_000 + "A" * 42_000_000):
        with pytest.raises(errors.ImageTooLarge):
            file_of(f"data:image/png;base64,{data}")
    spaced = PLAIN + " " * 14_000_000
    assert file_of(f"data:image/png;base64,{spaced}") == PNG


HEADS: Final = st.sampled_from(["image/png;base64", ";base64", "x/y ; BASE64 ", "base64"])
GAPS: Final = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(list(" \t\r\n\f\v"))))


@examples(max_examples=200, deadline=None)
@given(st.binary(max_size=45), HEADS, GAPS, st.booleans(), st.booleans(), st.booleans())
def test_any_bytes_in_any_spelling(
    file: bytes,
    head: str,
    gaps: list[tuple[int, str]],
    is_safe: bool,
    is_padded: bool,
    is_quoted: bool,
) -> None:
    data = (base64.urlsafe_b64encode if is_safe else base64.b64encode)(file).decode()
    data = data if is_padded else data.rstrip("=")
    for place, gap in gaps:
        data = data[:place] + gap + data[place:]
    data = quote(data, safe="") if is_quoted else data
    assert file_of(f"data:{head},{data}") == file


@examples(max_examples=300, deadline=None)
@given(st.text(max_size=80))
def test_any_address_is_bytes_or_a_refusal(text: str) -> None:
    for address in (text, f"data:{text}", f"data:image/png;base64,{text}"):
        try:
            assert isinstance(file_of(address), bytes)
        except errors.UserError as error:
            assert error.message.endswith(".")
