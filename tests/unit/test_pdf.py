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
        page.image and page.image.size for page in pages
    ]


FIELDS = {  # what fills each kind of field
    "text": b"/FT /Tx /V (INV-20817) /DA (/F1 20 Tf 0 g)",
    "box": b"/FT /Btn /V /On /AS /On /AP << /N << /On 6 0 R >> >>",
    "signature": b"/FT /Sig /V << /Type /Sig /Name (INV-20817) >> /AP << /N 6 0 R >>",
}


@pytest.mark.parametrize("kind", FIELDS)
def test_what_is_in_a_form_is_on_its_page(kind: str) -> None:
    look = b"BT /F1 20 Tf 4 8 Td (INV-20817) Tj ET"
    resources = b"/Resources << /Font << /F1 4 0 R >> >>"
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 400 200] /Annots [5 0 R] " + resources
    file = written([
        b"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [5 0 R] /NeedAppearances true"
        b" /DA (/F1 20 Tf 0 g) /DR << /Font << /F1 4 0 R >> >> >> >>",
        b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        page + b" >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /Annot /Subtype /Widget /T (it) /F 4 /P 3 0 R /Rect [40 90 340 120] "
        + FIELDS[kind] + b" >>",
        b"<< /Type /XObject /Subtype /Form /BBox [0 0 300 30] " + resources
        + b" /Length %d >>\nstream\n%s\nendstream" % (len(look), look),
    ])  # fmt: skip
    with PdfFile(file) as opened:
        (drawn,) = opened
    assert drawn.image is not None
    inside = drawn.image.convert("L").crop((83, 167, 708, 229))
    assert sum(inside.histogram()[:128]) > 250


def test_nothing_of_the_folder_one_stands_in_is_run(
    picture: Picture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("random", "secrets", "json", "pypdfium2", "PIL"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with PdfFile(pdf_of([picture(64, 48)])) as file:
        (page,) = file
    assert page.image is not None


@pytest.mark.parametrize(
    ("box", "size"), [(b"0 0 14000 7000", (2000, 1000)), (b"0 0 3 3", None), (b"0 0 9000 3", None)]
)
def test_a_page_of_no_usual_size(box: bytes, size: tuple[int, int] | None) -> None:
    """A large one is drawn smaller; a tiny one costs that page."""
    with PdfFile(drawn(b"0 0 50 50 re f", box)) as file:
        (page,) = file
    assert (page.image and page.image.size) == size and (page.error is None) == (size is not None)


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
