"""A visitor's journeys, step by step."""

import re
import time

import pytest
from playwright.sync_api import Position, expect

from tests.browser.steps import (
    DONE,
    ask,
    begin_long,
    changes,
    drawn,
    open_drawer,
    plot_data,
    press,
    upload,
)
from tests.fixtures import Shoot, Visit, present

pytestmark = pytest.mark.browser


def test_page_greets_with_an_answer_and_every_figure(visit: Visit, shoot: Shoot) -> None:
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
    shoot(page, "light")


@pytest.mark.alone
def test_upload_ask_and_read_both_answers(visit: Visit, shoot: Shoot) -> None:
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
    shoot(page, "asked")


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
