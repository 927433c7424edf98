"""The Collection tab: pictures and a PDF are dropped once and asked twice."""

import csv
import io
import time
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import FilePayload, Page, expect

from tests.browser.steps import drawn, findings, page_width
from tests.fixtures import Visit
from tests.unit.test_pdf import pdf_of

pytestmark = pytest.mark.browser

EXAMPLES = Path(__file__).resolve().parents[2] / "assets" / "examples"
ROWS = "#collection-table tbody tr"
PAGES = 6


def payload(name: str, data: bytes, kind: str = "image/png") -> FilePayload:
    return {"name": name, "mimeType": kind, "buffer": data}


def pictures() -> list[FilePayload]:
    """Two examples, and signs of two sizes."""
    paths = sorted(EXAMPLES.glob("*.png"))[:2]
    files = [payload(path.name, path.read_bytes()) for path in paths]
    return files + [payload(f"sign {n}.png", drawn(448 + 28 * n, 224)) for n in (1, 2)]


def document() -> FilePayload:
    """Two pages of a PDF."""
    shown = [Image.open(io.BytesIO(drawn(width, 1300))) for width in (1000, 1020)]
    return payload("letter.pdf", pdf_of(shown), "application/pdf")


def done(page: Page) -> None:
    """Wait until nothing runs."""
    expect(page.locator("#collection-stop")).to_be_disabled()


def ask(page: Page, question: str) -> float:
    """Ask every page; the seconds until all have answered."""
    page.locator("#collection-question textarea").fill(question)
    started = time.monotonic()
    page.locator("#collection-ask").click()
    shown = """([rows, pages, question]) => document.querySelectorAll(rows).length === pages
        && document.querySelector("#collection-table caption").innerText === question"""
    # `expect` checks twice a second only
    page.wait_for_function(shown, arg=[ROWS, PAGES, question], polling=20)
    return time.monotonic() - started


@pytest.mark.alone
@pytest.mark.slow
def test_pages_are_dropped_once_and_asked_twice(visit: Visit) -> None:
    page = visit(1440, 900)
    page.get_by_role("tab", name="Collection").click()
    box = page.locator("#collection-files input[type=file]")
    started = time.monotonic()
    box.set_input_files([*pictures(), document(), payload("notes.txt", b"words", "text/plain")])
    expect(page.locator("#collection-tiles li button")).to_have_count(PAGES, timeout=90_000)
    done(page)
    read = time.monotonic() - started
    expect(page.locator("#collection-tiles .rk-bad")).to_contain_text("notes.txt The file is not")
    expect(page.locator("#collection-status")).to_contain_text(f"{PAGES} pages: ")
    first = read + ask(page, "What is the title?")
    done(page)
    later = []
    for question in ("What is the date?", "What is the total?"):  # the machine may be busy once
        later.append(ask(page, question))
        done(page)
    assert min(later) < first / 3, (read, first, later)
    took = page.locator("#collection-twice [data-way]")
    stored, again = (float(one.get_attribute("data-seconds") or 0) for one in took.all())
    assert 0 < stored < again
    expect(took.nth(1)).to_contain_text("Measured on ")

    with page.expect_download() as saved:
        page.locator("#collection-csv").click()
    text = Path(saved.value.path()).read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == PAGES and {row["question"] for row in rows} == {"What is the total?"}
    sure = [float(row["confidence"]) for row in rows]
    assert sure == sorted(sure, reverse=True)
    labels = [row.locator("th span").inner_text() for row in page.locator(ROWS).all()]
    assert labels == [row["page"] for row in rows] and "letter.pdf, page 2" in labels
    assert all(3 * int(r["stored_bytes"]) < int(r["uncompressed_bytes"]) for r in rows)

    complaints = []
    for theme in ("light", "dark"):
        for width, height in ((1440, 900), (390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            complaints += findings(page, theme)
            assert page_width(page) <= width
    assert not complaints, "\n".join(complaints)


def test_a_page_opens_large_and_its_words_light_up(visit: Visit) -> None:
    page = visit(1280, 800)
    page.get_by_role("tab", name="Collection").click()
    receipt = EXAMPLES / "receipt.png"
    page.locator("#collection-files input[type=file]").set_input_files([receipt])
    expect(page.locator("#collection-tiles li button")).to_have_count(1)
    done(page)
    page.locator("#collection-tiles li button").click()
    dialog = page.locator("#rk-opened")
    expect(dialog.locator("img")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.locator("#collection-question textarea").fill("What is the total?")
    page.locator("#collection-question textarea").press("Control+Enter")
    expect(page.locator(ROWS)).to_have_count(1)
    done(page)
    page.locator(f"{ROWS} button").focus()
    page.keyboard.press("Enter")
    words = dialog.locator(".rk-word")
    expect(words).not_to_have_count(0)
    words.first.click()
    expect(dialog.locator(".rk-veil[data-on]")).to_be_visible()
    expect(dialog.locator(".rk-lit")).to_contain_text("The stored page looked here for ")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    page.locator("#collection-clear").click()
    expect(page.locator("#collection-tiles li button")).to_have_count(0)
    expect(page.locator("#collection-csv")).to_be_disabled()


def test_a_pdf_is_asked_on_the_first_tab(visit: Visit) -> None:
    page = visit()
    with page.expect_file_chooser() as chooser:
        page.locator("button#pdf, #pdf button").first.click()
    chooser.value.set_files([document()])
    expect(page.locator("#status")).to_contain_text("Page 1 of 2 is ready to ask about.")
    expect(page.locator("#image .image-frame img")).to_be_visible()
