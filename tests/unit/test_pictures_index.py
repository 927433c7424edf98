"""Files into a store, and questions to all of it, from the command line."""

import csv
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rotatek import errors
from rotatek.cli import main as command
from rotatek.pictures.store import PictureStore
from tests.fixtures import Picture
from tests.tiny import tiny_llava, tiny_qwen
from tests.unit.test_pdf import pdf_of

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model in place of a loaded one; everything else is the real command."""
    from rotatek import models

    kept = {"pocket": tiny_qwen(), "tiny-qwen2_5_vl": tiny_qwen(), "other": tiny_llava()}
    monkeypatch.setattr(models, "load", lambda name, device=None: kept[name])


@pytest.fixture
def folder(picture: Picture, tmp_path: Path) -> Path:
    """Two pictures, one of them below, and what is none."""
    folder = tmp_path / "in"
    (folder / "below").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    picture(150, 120, seed=1).save(folder / "one.png")
    picture(120, 150, seed=2).save(folder / "below" / "two.jpg")
    picture(120, 150, seed=3).save(folder / ".hidden" / "three.png")
    (folder / "README.md").write_text("no picture")
    return folder


def run(*words: str | Path) -> int:
    return command.main([str(word) for word in words])


def test_a_folder_is_read_once_and_asked(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    store = tmp_path / "store"
    assert run("index", folder, "--store", store, "--smaller", "8") == 0
    out, err = capsys.readouterr()
    assert out.startswith("2 pages, 2 read now: ") and "page/s" in err or "s/page" in err
    assert run("index", folder, "--store", store) == 0  # the settings are the store's
    assert capsys.readouterr().out.startswith("2 pages, 0 read now: ")
    assert run("ask", "--store", store, "what?", "--max-new-tokens", "4") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [Path(line.split("\t")[0]).name for line in lines] == ["two.jpg", "one.png"]
    assert all(0 < float(line.split("\t")[2]) <= 1 for line in lines)
    table = tmp_path / "answers.csv"
    words = ("ask", "--store", store, "what?", "--json", "--csv", table, "--max-new-tokens", "4")
    assert run(*words) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [row["page"] for row in rows] == [one["page"] for one in told]
    assert [row["answer"] for row in rows] == [one["answer"] for one in told]
    assert set(told[0]) == {"page", "answer", "confidence"}


def pages_of(store: Path, capsys: Capture) -> list[str]:
    """Every page's label, as `ask` prints them."""
    capsys.readouterr()
    run("ask", "--store", store, "what?", "--max-new-tokens", "2")
    return [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]


def test_only_what_is_new_or_changed_is_read(
    folder: Path, tmp_path: Path, picture: Picture, capsys: Capture
) -> None:
    store = tmp_path / "store"
    picture(120, 150, seed=2).save(folder / "copy.jpg")
    run("index", folder, "--store", store)
    before = set(PictureStore(store).names())
    picture(150, 120, seed=7).save(folder / "one.png")
    picture(150, 120, seed=8).save(folder / "new.webp", lossless=True)
    picture(120, 150, seed=9).save(folder / "copy.jpg")  # what it was is in another file
    os.utime(folder / "below" / "two.jpg", (1, 1))  # a new time, the same content
    capsys.readouterr()
    assert run("index", folder, "--store", store) == 0
    assert capsys.readouterr().out.startswith("4 pages, 3 read now: ")
    after = set(PictureStore(store).names())
    assert len(after) == 4 and len(before & after) == 1  # what one.png was is forgotten


def test_what_cannot_be_read_is_listed_and_the_rest_is_read(
    folder: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "cut.png").write_bytes((folder / "one.png").read_bytes()[:200])
    (folder / "words.png").write_text("no picture, whatever it is called")
    (folder / "layers.png").write_bytes(b"8BPS" + bytes(40))
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing else")
    closed, scan = folder / "closed", os.scandir
    closed.mkdir()

    def refused(path: Any = ".") -> Any:
        if Path(os.fsdecode(path)) == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refused)
    assert run("index", folder, "--store", tmp_path / "store") == 1
    out, err = capsys.readouterr()
    assert out.startswith("2 pages, 2 read now: ") and out.endswith("; 5 could not be read\n")
    assert "cut.png: The image is damaged" in err and "words.png: The file is not an image" in err
    assert "layers.png: This image format" in err and "broken.pdf: The PDF is damaged" in err
    assert "closed: The folder cannot be opened" in err and "README" not in err
    assert run("index", closed, "--store", tmp_path / "store") == 1


def test_the_pages_of_a_pdf_are_pages(
    folder: Path, tmp_path: Path, picture: Picture, capsys: Capture
) -> None:
    """A page that cannot be read is listed, and none of the file as it was answers any more."""
    path, store = folder / "pages.pdf", tmp_path / "store"
    shown = [picture(100, 80, seed=s) for s in (4, 5, 6)]
    path.write_bytes(pdf_of(shown))
    assert run("index", path, folder / "one.png", "--store", store) == 0
    assert "4 pages, 4 read now" in capsys.readouterr().out
    every = ["one.png", *(f"pages.pdf#{n}" for n in (1, 2, 3))]
    assert [Path(page).name for page in pages_of(store, capsys)] == every
    path.write_bytes(pdf_of([shown[0], picture(2, 80), picture(100, 80, seed=7)]))
    for again in (1, 0):
        assert run("index", path, "--store", store) == 1
        out, err = capsys.readouterr()
        assert "pages.pdf#2: " in err and out.startswith(f"2 pages, {again} read now: ")
    found = pages_of(store, capsys)
    assert [Path(page).name for page in found] == [every[0], every[1], every[3]]
    assert run("store", store, "--forget", path) == 0 and len(PictureStore(store).names()) == 1
    path.write_bytes(pdf_of(shown))
    assert run("ask", path, "what?", "--max-new-tokens", "2") == 0  # three pictures of one prompt
    path.write_bytes(pdf_of([picture(32, 32, seed=s) for s in range(9)]))
    capsys.readouterr()
    assert run("ask", path, "what?") == 2
    assert capsys.readouterr().err == errors.PdfManyPages.sentence + "\n"


def test_a_file_is_one_page_whatever_its_spelling(
    folder: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    (folder / "link").symlink_to("below")
    (folder / "same.jpg").symlink_to("below/two.jpg")
    monkeypatch.chdir(folder / "below")
    for spelling in ("two.jpg", "../below/./two.jpg", folder / "link" / "two.jpg", folder):
        assert run("index", spelling, "--store", store) == 0
    assert [Path(page).name for page in pages_of(store, capsys)] == ["two.jpg", "one.png"]
    os.rename(folder / "one.png", folder / "moved.png")
    assert run("index", folder, "--store", store) == 0
    assert [Path(page).name for page in pages_of(store, capsys)] == ["two.jpg", "moved.png"]
    assert run("store", store, "--forget", "../same.jpg") == 0
    assert [Path(page).name for page in pages_of(store, capsys)] == ["moved.png"]


def test_a_name_is_printed_in_one_line(
    folder: Path, tmp_path: Path, picture: Picture, capsys: Capture
) -> None:
    store = tmp_path / "store"
    for seed, name in enumerate((b"two\nlines", b"tab\there", b"latin-\xe9", b"\x1b[31mred")):
        path = os.path.join(os.fsencode(folder), name)
        os.rename(folder / "one.png", path + b".png")
        picture(150, 120, seed=seed).save(folder / "one.png")
        Path(os.fsdecode(path + b".pdf")).write_bytes(b"%PDF-")
    assert run("index", folder, "--store", store) == 1
    said = capsys.readouterr().err
    assert "two\\nlines.pdf: The PDF is damaged" in said and "\x1b" not in said
    pages = pages_of(store, capsys)
    assert len(pages) == 6 and {len(page.splitlines()) for page in pages} == {1}
    run("ask", "--store", store, "what?", "--max-new-tokens", "2", "--json")
    told = [json.loads(line)["page"] for line in capsys.readouterr().out.splitlines()]
    assert len(told) == 6 and sum("two\nlines.png" in page for page in told) == 1


def test_a_store_says_what_is_in_it(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    store = tmp_path / "store"
    run("index", folder, "--store", store, "--smaller", "8")
    capsys.readouterr()
    assert run("store", store) == 0
    out = capsys.readouterr().out
    assert "one.png" in out and "150x120" in out and "2 pages: " in out and "smaller=8" in out
    assert run("store", store, "--check") == 0
    assert capsys.readouterr().out == "2 pages are whole, 0 were damaged\n"
    name = PictureStore(store).names()[0]
    path = PictureStore(store).path(name)
    assert path is not None
    path.write_bytes(path.read_bytes()[:-3])
    assert run("ask", "--store", store, "what?", "--max-new-tokens", "2") == 1
    assert "(The stored page is damaged." in capsys.readouterr().out
    assert run("store", store, "--check") == 1
    assert f"{name}: damaged, forgotten" in capsys.readouterr().out
    assert run("index", folder, "--store", store) == 0
    assert "2 pages, 1 read now" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ask --store {store} picture.png what?", "give the QUESTION alone"),
        ("ask --store {store} what? --save-cache x", "keeps its own caches"),
        ("ask --store {store} what? --smaller 4", "made with other settings"),
        ("ask --store {store} what? --model other", "belongs to another model"),
        ("index {picture} --store {store} --memory none", "--memory must be bytes"),
        ("ask --store {store}/nothing what?", "no store of pictures"),
        ("index {store}/nothing --store {store}", "no file or folder nothing"),
        ("index {store} --store {store}", "no pictures or PDF files there"),
        ("index {picture} --store {store} --weigh-by picture", "The flag --weigh-by is gone"),
        ("store {store} --check --forget x", "not both"),
        ("store {store} --forget nobody", "No page of the store has that name"),
    ],
)
def test_refusals_are_one_sentence(
    words: str, said: str, folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    store = tmp_path / "store"
    run("index", folder / "one.png", "--store", store, "--smaller", "8")
    capsys.readouterr()
    given = words.format(store=store, picture=folder / "one.png").split()
    assert run(*given) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and err.endswith(".\n")
