"""A visitor's journeys, step by step."""

import io
import re
import time
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, Position, expect

from tests.browser.steps import (
    DONE,
    answered,
    ask,
    begin_long,
    changes,
    drawn,
    findings,
    open_drawer,
    page_width,
    plot_data,
    press,
    reach,
    slide,
    upload,
    watch,
)
from tests.fixtures import Visit, present

pytestmark = pytest.mark.browser


def test_page_greets_with_an_answer_and_every_figure(visit: Visit) -> None:
    page = visit()
    assert not page.evaluate("document.body.classList.contains('dark')")
    expect(page.locator(DONE)).to_have_count(3)
    masks = [f"mask-{name}" for name in ("think", "spark", "rotatek")]
    for name in ("map", "raw", "rotated", *masks, "spectrum", "scores"):
        figure = page.locator(f"#{name}-plot .js-plotly-plot")
        expect(figure).to_be_visible()
        expect(figure).to_have_attribute("role", "img")
        assert len(figure.get_attribute("aria-label") or "") > 40
    expect(page.locator("#answers")).to_contain_text("latency proves nothing")


@pytest.mark.alone
def test_upload_ask_and_read_both_answers(visit: Visit) -> None:
    """Of a format that browsers do not show: the page shows what it reads."""
    page = visit()
    upload(page, drawn(448, 224, "TIFF"), "sign.tif")
    page.wait_for_function("() => document.querySelector('#image img')?.naturalWidth === 448")
    expect(page.locator("#tokens-reading")).to_have_text("keeps 80 of 200 tokens")
    first = ask(page, "What does the sign say?")
    cards = page.locator(DONE)
    expect(cards).to_have_count(3)
    assert cards.nth(0).get_attribute("data-column") == "Uncompressed"
    assert cards.nth(1).get_attribute("data-column") == "FastV + RotateK"
    for card in (cards.nth(0), cards.nth(1)):
        assert card.locator(".rk-answer").inner_text().strip()
    verdict = cards.nth(1).locator(".rk-verdict").inner_text()
    assert 0 < int(present(re.search(r"in (\d+) % of the bytes", verdict)).group(1)) < 100
    expect(cards.nth(1).locator('[data-badge="nominal"] dd')).to_contain_text("25 %")
    expect(page.locator("#kept-caption")).to_contain_text("80 of 200 visual tokens")
    assert first < 10.0


def test_sliders_say_what_they_keep_and_redraw(visit: Visit) -> None:
    page = visit()
    falls, mask = plot_data(page, "spectrum"), plot_data(page, "mask-rotatek")
    expect(page.locator("#channels-reading")).to_contain_text("keeps 32 of 128 channels")
    press(page, "channel-sparsity", "PageUp")
    expect(page.locator("#channels-reading")).not_to_contain_text("keeps 32 of")
    changes(page, "spectrum", falls)
    changes(page, "mask-rotatek", mask)
    said = page.locator("#channels-reading").inner_text()
    kept = int(present(re.search(r"keeps (\d+)", said)).group(1))
    expect(page.locator("#spectrum-caption")).to_contain_text(f"The {128 - kept} dropped")
    open_drawer(page, "setup")
    expect(page.locator("#presets input")).not_to_have_count(0)
    expect(page.locator("#presets input:checked")).to_have_count(0)
    budget = page.locator("#channels-reading").inner_text()
    press(page, "token-sparsity", "PageUp")
    expect(page.locator("#channels-reading")).not_to_have_text(budget)


def test_a_cell_of_the_map_can_be_chosen(visit: Visit) -> None:
    page = visit()
    raw = plot_data(page, "raw")
    page.wait_for_selector("#map-plot .js-plotly-plot")
    area = present(page.locator("#map-plot .nsewdrag").bounding_box())
    layer = page.locator("#layer input[type=number]")
    layers = int(present(layer.get_attribute("max"))) + 1
    cell: Position = {"x": area["width"] * 4.5 / layers, "y": area["height"] * 0.75}
    page.locator("#map-plot .nsewdrag").hover(position=cell)
    page.locator("#map-plot .nsewdrag").click(position=cell)
    changes(page, "raw", raw)
    expect(layer).to_have_value("4")
    expect(page.locator("#head input[type=number]")).to_have_value("1")
    expect(page.locator("#map-caption")).to_contain_text("Layer 4, head 1")


@pytest.mark.alone
def test_stop_ends_a_long_answer_at_once(visit: Visit) -> None:
    page = visit()
    begin_long(page, 1024)
    page.locator("#stop").click()
    started = time.monotonic()
    expect(page.locator("#ask")).to_be_enabled()
    assert time.monotonic() - started < 3.0
    expect(page.locator("#status")).to_contain_text("Stopped.")
    expect(page.locator("#answers .rk-card[data-state=live]")).to_have_count(0)
    expect(page.locator(".toast-body")).to_have_count(0)


# -- looking inside: figures that can be stepped through and carried away ----------------------


def saved(page: Page, figure: str, kind: str) -> Path:
    """Press a figure's button and return the file."""
    with page.expect_download() as download:
        page.locator(f"#{figure} button[data-save={kind}]").click()
    assert download.value.suggested_filename == f"rotatek-{figure}.{kind}"
    return download.value.path()


def test_a_figure_can_be_carried_away(visit: Visit, browser: Browser, tmp_path: Path) -> None:
    page = visit()
    picture = Image.open(io.BytesIO(saved(page, "raw", "png").read_bytes())).convert("RGB")
    assert picture.width > 500 and len(picture.getcolors(1 << 24) or ()) > 100
    assert picture.getpixel((1, 1)) == (255, 255, 255)
    kept = tmp_path / "figure.html"
    kept.write_bytes(saved(page, "attention", "html").read_bytes())
    alone = browser.new_page()
    complaints: list[str] = []
    alone.on("pageerror", lambda error: complaints.append(str(error)))
    alone.route("http*://**", lambda route: complaints.append(route.request.url))
    alone.goto(kept.as_uri())
    alone.wait_for_selector("#figure .heatmaplayer image")
    assert alone.locator("#figure image").count() >= 2  # the heat map, and the picture under it
    assert alone.locator("h1").inner_text() == "Where this head looks"
    alone.close()
    assert not complaints


def test_where_they_part_leads_to_the_picture_and_inside(visit: Visit) -> None:
    """By keyboard: the line opens, a step's button lights its word and selects its query."""
    page = visit(1280, 720)
    slide(page, "channel-sparsity", "End")
    ask(page, "How much is the apple pie?")
    line = page.locator("#card-1 .rk-parting summary")
    expect(line).to_contain_text("Parts at token")
    reach(page, "#card-1 .rk-parting summary")
    page.keyboard.press("Enter")
    rows = page.locator("#card-1 .rk-parting tbody tr")
    expect(rows.last).to_be_visible()
    page.evaluate(
        "() => { const card = document.querySelector('#card-1 .rk-card');"
        " card.parentElement.innerHTML = card.parentElement.innerHTML }"
    )  # as any update draws it anew
    assert page.evaluate("document.activeElement.matches('#card-1 .rk-parting summary')")
    reach(page, "#card-1 button[data-token]")
    page.keyboard.press("Enter")
    expect(page.locator("#card-1 .rk-word[data-lit]")).to_have_count(1)
    number = int(rows.first.locator("button").inner_text())
    expect(page.locator("#said")).to_contain_text(f"token {number} of")


@pytest.mark.parametrize("width", [1440, 390])
def test_the_heads_that_did_the_harm_and_what_if(visit: Visit, width: int) -> None:
    """Damage, its worst head, and a column in which that head is whole, by keyboard alone."""
    page = visit(width, 900)
    slide(page, "channel-sparsity", "End")
    ask(page, "How much is the apple pie?")
    reach(page, "#quantity input[value=damage]", 90)
    page.keyboard.press("Space")
    worst = page.locator(".rk-worst button")
    expect(worst).not_to_have_count(0)
    expect(page.locator("#damage")).to_contain_text("of the damage. Each was compressed alone")
    expect(page.locator("#map-caption")).to_contain_text("damage")
    layer, head = (worst.first.get_attribute("data-head") or "").split(",")
    reach(page, ".rk-worst button")
    page.keyboard.press("Enter")
    expect(page.locator("#layer input[type=number]")).to_have_value(layer)
    expect(page.locator("#head input[type=number]")).to_have_value(head)
    watch(page)
    reach(page, "#what-leave")
    page.keyboard.press("Enter")
    answered(page)
    expect(page.locator(DONE)).to_have_count(4)
    card = page.locator("#further .rk-card")
    expect(card.locator("h3")).to_have_text(f"FastV + RotateK ({layer}.{head} whole)")
    expect(card.locator(".rk-parting summary")).to_be_visible()
    expect(card).to_contain_text("save no bytes")
    expect(worst).not_to_have_count(0)  # what was measured of the same answer stays
    complaints = findings(page, "dark") + findings(page, "light")
    assert page_width(page) <= width
    assert not complaints, "\n".join(complaints)
