"""PDF files: pages come out as pictures, and every other kind of file ends in one sentence."""

import io
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from rotatek import errors
from rotatek.inputs import pdf
from rotatek.inputs.pdf import PdfFile, is_pdf, pictures_of
from tests.fixtures import Picture


def pdf_of(images: Sequence[Image.Image]) -> bytes:
    """A page for each picture, an inch for each 150 pixels."""
    file = io.BytesIO()
    first, *rest = images
    first.save(file, "PDF", save_all=True, append_images=rest, resolution=150)
    return file.getvalue()


def written(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """A PDF of objects 1, 2, ..., of which the first is its catalogue."""
    out, places = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n" % number + content + b"\nendobj\n"
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    return (
        out + b"xref\n0 %d\n0000000000 65535 f \n" % size + table
        + b"trailer\n<< /Size %d /Root 1 0 R " % size + trailer + b">>\n"
        + b"startxref\n%d\n%%%%EOF\n" % len(out)
    )  # fmt: skip


def drawn(content: bytes, box: bytes = b"0 0 200 100", pages: int = 1) -> bytes:
    """Pages of one content stream, packed."""
    packed = zlib.compress(content)
    kids = b" ".join(b"%d 0 R" % (4 + number) for number in range(pages))
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [" + box + b"] /Contents 3 0 R >>"
    return written([
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [" % pages + kids + b"] >>",
        b"<< /Filter /FlateDecode /Length %d >>\nstream\n" % len(packed) + packed + b"\nendstream",
        *[page] * pages,
    ])  # fmt: skip


def test_pages_come_out_in_order(picture: Picture, tmp_path: Path) -> None:
    shown = [picture(150, 120, seed=1), picture(90, 200, seed=2)]
    path = tmp_path / "two.bin"  # by its content, not by its name
    path.write_bytes(pdf_of(shown))
    assert is_pdf(path)
    with PdfFile(path) as file:
        pages = list(file)
    assert file.pages == 2 and [page.number for page in pages] == [1, 2]
    for page, image in zip(pages, shown, strict=True):
        assert page.image is not None and page.image.mode == "RGB"
        assert all(abs(a - b) <= 1 for a, b in zip(page.image.size, image.size, strict=True))
        middle = page.image.getpixel((40, 40)), image.getpixel((40, 40))
        assert all(abs(a - b) < 24 for a, b in zip(*middle, strict=True))  # type: ignore[arg-type]
    assert [one.size for one in pictures_of(path)] == [
        page.image.size for page in pages if page.image
    ]


def test_a_large_page_is_drawn_smaller() -> None:
    with PdfFile(drawn(b"0 0 50 50 re f", b"0 0 14000 7000")) as file:
        (page,) = file
    assert page.image is not None and page.image.size == (2000, 1000)


@pytest.mark.parametrize("box", [b"0 0 0 0", b"0 0 3 3", b"0 0 9000 3"])
def test_a_page_without_a_size_costs_that_page(box: bytes) -> None:
    """PDFium takes a page of no size for a usual one; a tiny one is refused as a picture."""
    with PdfFile(drawn(b"0 0 1 1 re f", box)) as file:
        (page,) = file
    assert (page.image is None) == (page.error is not None)
    assert box == b"0 0 0 0" or page.error is not None


def test_an_encrypted_file_says_so() -> None:
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 0 /Kids [] >>",
        b"<< /Filter /Standard /V 2 /R 3 /Length 128 /P -44 /O <" + b"5a" * 32
        + b"> /U <" + b"a5" * 32 + b"> >>",
    ]  # fmt: skip
    trailer = b"/Encrypt 3 0 R /ID [<" + b"00" * 16 + b"> <" + b"00" * 16 + b">] "
    with pytest.raises(errors.PdfEncrypted):
        PdfFile(written(objects, trailer))


def test_damaged_files_are_refused(picture: Picture, tmp_path: Path) -> None:
    whole = pdf_of([picture(64, 48)])
    empty = written([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Count 0 /Kids [] >>"])
    for damaged in (b"", b"no PDF at all", b"%PDF-1.7", whole[:60], empty):
        with pytest.raises(errors.PdfDamaged):
            PdfFile(damaged)
    with pytest.raises(errors.FileUnreadable):
        PdfFile(tmp_path / "nothing.pdf")
    assert not is_pdf(tmp_path) and not is_pdf(tmp_path / "nothing.pdf")
    assert not is_pdf(Path("\0"))


def test_bounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "x.pdf"
    path.write_bytes(drawn(b"", pages=2_001))
    with pytest.raises(errors.PdfTooManyPages):
        PdfFile(path)
    monkeypatch.setattr(pdf, "MAX_PDF_BYTES", 100)
    for data in (path, path.read_bytes()):
        with pytest.raises(errors.PdfTooLarge):
            PdfFile(data)
    monkeypatch.setattr(pdf, "can_be_read", lambda: False)
    with pytest.raises(errors.PdfNotInstalled):
        PdfFile(path)


def test_a_page_that_never_ends_costs_that_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes of drawing that would take minutes."""
    monkeypatch.setattr(pdf, "PAGE_S", 1.5)
    endless = b"0 0 m 200 100 l 3 7 150 90 1 2 c S\n" * 1_500_000
    began = os.times().elapsed
    with PdfFile(drawn(endless, b"0 0 900 900")) as file:
        (page,) = file
    assert page.image is None and isinstance(page.error, errors.PdfPageTooLong)
    assert os.times().elapsed - began < 60


def test_a_process_that_dies_costs_its_page_and_the_next_is_drawn(picture: Picture) -> None:
    with PdfFile(pdf_of([picture(64, 48, seed=s) for s in range(3)])) as file:
        found = iter(file)
        file._process.kill()
        file._process.wait()
        pages = list(found)
    assert [page.number for page in pages] == [1, 2, 3]
    assert pages[-1].image is not None and sum(page.image is None for page in pages) <= 2
