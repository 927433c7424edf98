"""PDF files in calls."""

import base64
import io
from typing import Any

import openai
import pytest
from PIL import Image

from rotatek import errors
from rotatek.inputs import pdf
from tests.server.conftest import uri
from tests.unit.test_pdf import drawn, pdf_of, written

pytestmark = pytest.mark.slow


def ask(client: openai.OpenAI, *parts: dict[str, Any], **given: Any) -> Any:
    create: Any = client.chat.completions.create
    content = [{"type": "text", "text": "What is it?"}, *parts]
    messages = [{"role": "user", "content": content}]
    return create(**{"model": "tiny", "messages": messages, "max_tokens": 4} | given)


def data_of(file: bytes, kind: str = "application/pdf") -> str:
    return f"data:{kind};base64,{base64.b64encode(file).decode()}"


def document(data: str, **more: Any) -> dict[str, Any]:
    return {"type": "file", "file": {"file_data": data, "filename": "a.pdf"} | more}


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def two() -> bytes:
    """A PDF of two pages."""
    pages = [Image.new("RGB", (150, 120), "white"), Image.linear_gradient("L").convert("RGB")]
    return pdf_of(pages)


def test_pages_of_a_pdf_are_pictures(client: openai.OpenAI, two: bytes) -> None:
    pages = pdf.pictures_of(two)
    parts = [{"type": "image_url", "image_url": {"url": uri(page)}} for page in pages]
    drawn_here = ask(client, *parts)
    plain = base64.b64encode(two).decode()
    for part in (
        document(data_of(two)),
        document(plain),
        {"type": "image_url", "image_url": {"url": data_of(two)}},
        {"type": "image_url", "image_url": {"url": data_of(two, "image/png")}},
    ):
        said = ask(client, part)
        assert said.usage.prompt_tokens == drawn_here.usage.prompt_tokens
        assert said.choices[0].message.content == drawn_here.choices[0].message.content
    picture = document(data_of(png(pages[0]), "image/png"))
    assert ask(client, picture).usage.visual_tokens < said.usage.visual_tokens


def test_a_follow_up_about_a_pdf_is_warm(client: openai.OpenAI, two: bytes) -> None:
    first = [{"role": "user", "content": [document(data_of(two)), {"type": "text", "text": "A?"}]}]
    answer = ask(client, messages=first).choices[0].message.content
    turns = [{"role": "assistant", "content": answer}, {"role": "user", "content": "And?"}]
    other = [{"role": "user", "content": [document(data_of(two + b"\n")), first[0]["content"][1]]}]
    assert not ask(client, messages=[*other, *turns]).rotatek["warm"], "another file"
    assert ask(client, messages=[*first, *turns]).rotatek["warm"]


ENCRYPTED = written(
    [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Count 0 /Kids [] >>",
     b"<< /Filter /Standard /V 1 /R 2 /O (" + b"x" * 32 + b") /U (" + b"y" * 32 + b") /P -4 >>"],
    b"/Encrypt 3 0 R /ID [(a) (a)] ",
)  # fmt: skip
REFUSED = {
    "encrypted": (ENCRYPTED, errors.PdfEncrypted),
    "cut off": (b"%PDF-1.7\n" + b"x" * 99, errors.PdfDamaged),
    "nine pages": (drawn(b"", pages=9), errors.PdfManyPages),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_a_sentence(client: openai.OpenAI, name: str) -> None:
    file, kind = REFUSED[name]
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, document(data_of(file)))
    assert refused.value.body["message"] == kind.sentence  # type: ignore[index]
    assert refused.value.param == "messages[0].content[1].file"


@pytest.mark.parametrize(
    "file", [{}, {"filename": "a.pdf"}, {"file_data": "https://example.org/a.pdf"},
             {"file_data": ""}, {"file_data": 7}],
    ids=str,
)  # fmt: skip
def test_a_part_without_a_file(client: openai.OpenAI, file: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, {"type": "file", "file": file})
    assert refused.value.code == "file_not_given"


def test_pages_are_bounded_together(client: openai.OpenAI, monkeypatch: Any) -> None:
    monkeypatch.setattr("rotatek.server.chat.MOST_PAGES", 3)
    file = document(data_of(drawn(b"", pages=2)))
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, file, file)
    assert refused.value.code == "pdfs_many_pages"
    assert "32 pages" in errors.PdfsManyPages.sentence
    monkeypatch.setattr("rotatek.server.chat.DRAWN_S", -1.0)
    with pytest.raises(openai.BadRequestError) as late:
        ask(client, file)
    assert late.value.code == "pdf_page_too_long"
