"""PDF files in calls, and `/v1/files` as the official client drives it."""

import base64
import io
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from PIL import Image

from rotatek import errors
from rotatek.inputs import pdf
from rotatek.models import VisionLanguageModel
from rotatek.server.api_keys import Keys
from rotatek.server.chat_app import ChatApp
from rotatek.server.file_store import FileStore
from tests.fixtures import Picture
from tests.server.conftest import client_of, served, tiny_door, uri
from tests.unit.test_pdf import drawn, pdf_of, written

pytestmark = pytest.mark.slow
KEYS = ("first-key-of-the-door", "second-key-of-the-door")


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


@pytest.fixture(scope="module")
def keyed(vlm: VisionLanguageModel) -> Iterator[tuple[ChatApp, str]]:
    door = tiny_door(vlm, keys=Keys(KEYS))
    with served(door) as address:
        yield door, address


def test_a_file_is_uploaded_used_listed_and_deleted(
    keyed: tuple[ChatApp, str], picture: Picture, two: bytes
) -> None:
    door, address = keyed
    shown = picture(80, 60, seed=3)
    with client_of(address, KEYS[0]) as client:
        image = client.files.create(file=("à b.png", png(shown)), purpose="vision")
        paper = client.files.create(
            file=("a.pdf", two), purpose="user_data",
            expires_after={"anchor": "created_at", "seconds": 3600},
        )  # fmt: skip
        assert (image.bytes, image.filename) == (len(png(shown)), "à b.png")
        assert image.object == "file" and image.status == "processed"
        assert paper.expires_at == paper.created_at + 3600
        assert [one.id for one in client.files.list()] == [paper.id, image.id]
        assert [one.id for one in client.files.list(purpose="vision")] == [image.id]
        assert [one.id for one in client.files.list(limit=1)] == [paper.id, image.id], "two pages"
        assert client.files.retrieve(image.id) == image
        assert client.files.content(paper.id).read() == two
        sent = ask(client, {"type": "image_url", "image_url": {"url": uri(shown)}})
        for part in (
            {"type": "image_url", "image_url": {"url": image.id}},
            {"type": "image_url", "image_url": {"file_id": image.id, "detail": "auto"}},
            {"type": "input_image", "file_id": image.id},
            {"type": "file", "file": {"file_id": image.id}},
        ):
            named = ask(client, part)
            assert named.choices[0].message.content == sent.choices[0].message.content
        both = ask(client, document("", file_data=None, file_id=paper.id))
        assert both.usage.visual_tokens == ask(client, document(data_of(two))).usage.visual_tokens
        assert door.files.bytes == len(two) + image.bytes
        figures = httpx.get(f"{address}/metrics", headers=_bearer(KEYS[0])).text
        assert f"rotatek_file_bytes {float(door.files.bytes)}" in figures
        assert client.files.delete(image.id).deleted
        with pytest.raises(openai.NotFoundError) as gone:
            client.files.retrieve(image.id)
        assert gone.value.code == "file_unknown"
        client.files.delete(paper.id)


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_nobody_reads_another_keys_file(keyed: tuple[ChatApp, str], picture: Picture) -> None:
    """Another's file is refused as one that there is not, word for word."""
    _, address = keyed
    with client_of(address, KEYS[0]) as one, client_of(address, KEYS[1]) as other:
        file = one.files.create(file=("a.png", png(picture())), purpose="vision")
        missing = "file-" + "0" * 32
        for ident in (file.id, missing):
            for call in (other.files.retrieve, other.files.content, other.files.delete):
                with pytest.raises(openai.NotFoundError) as refused:
                    call(ident)
                assert refused.value.body["message"] == errors.FileUnknown.sentence  # type: ignore[index]
            with pytest.raises(openai.NotFoundError) as refused:
                ask(other, {"type": "image_url", "image_url": {"url": ident}})
            assert refused.value.code == "file_unknown"
        assert list(other.files.list()) == []
        with client_of(address, "a" * 20) as nobody, pytest.raises(openai.AuthenticationError):
            nobody.files.retrieve(file.id)
        assert one.files.retrieve(file.id) == file


def test_without_keys_only_the_id_opens_a_file(
    client: openai.OpenAI, address: str, picture: Picture
) -> None:
    file = client.files.create(file=("a.png", png(picture())), purpose="vision")
    assert len(file.id) == len("file-") + 32 and list(client.files.list()) == []
    assert client.files.retrieve(file.id).bytes == file.bytes
    form: dict[str, Any] = {"files": {"file": b"x"}, "data": {"purpose": "vision"}}
    page = httpx.post(f"{address}/v1/files", headers={"Origin": "https://example.org"}, **form)
    assert (page.status_code, page.json()["error"]["code"]) == (403, "upload_foreign")


def test_uploads_that_are_refused(client: openai.OpenAI, address: str, picture: Picture) -> None:
    def code(**form: Any) -> str:
        reply = httpx.post(f"{address}/v1/files", **form)
        assert 400 <= reply.status_code < 500
        return reply.json()["error"]["code"]

    file, purpose = {"file": ("a.png", png(picture()))}, {"purpose": "vision"}
    assert code(files=file, data={"purpose": "fine-tune"}) == "setting_out_of_range"
    assert code(files=file) == "setting_out_of_range"
    assert code(data=purpose) == "upload_unreadable"
    assert code(json={}) == "upload_unreadable"
    assert code(files={"file": b"text"}, data=purpose) == "not_an_image"
    assert code(files={"file": b""}, data=purpose) == "image_missing"
    broken = {"content-type": "multipart/form-data; boundary=x"}
    assert code(content=b"--y\r\n", headers=broken) == "upload_unreadable"
    assert code(content=b"--x", headers={"content-type": "multipart/form-data"}) == (
        "upload_unreadable"
    )
    more = purpose | {"expires_after[seconds]": "soon"}
    assert code(files=file, data=more) == "setting_out_of_range"
    assert code(files={"file": b" " * 41_000_000}, data=purpose) == "body_too_large"


def test_files_are_bounded_and_expire() -> None:
    time = [1000.0]
    store = FileStore(most_bytes=100, own_bytes=60, own_files=3, age_s=10, now=lambda: time[0])
    first = store.add("a", "x\n\u202e" * 200, "vision", b"x" * 50)
    assert first.name.isprintable() and len(first.name) == 200
    for owner, size in (("a", 11), ("b", 51), ("b", 61)):
        with pytest.raises(errors.FilesFull):
            store.add(owner, "x", "vision", b"x" * size)
    small = [store.add("b", "x", "vision", b"", seconds=s) for s in (5, 99, None)]
    with pytest.raises(errors.FilesFull):
        store.add("b", "x", "vision", b"")
    time[0] += 6
    assert store.files("b") == [small[2], small[1]] and store.bytes == 50
    time[0] += 4
    assert store.files("a") == store.files("b") == [] and store.bytes == 0
    with pytest.raises(errors.FileUnknown):
        store.get("a", first.id)
