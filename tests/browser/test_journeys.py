"""What a visitor does, step by step."""

import io
import json
import re
import time
from collections.abc import Callable

import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

DONE = '#answers .rk-card[data-state="done"]'


def drawn(width: int, height: int) -> bytes:
    """A small sign with one word on it, as a PNG file."""
    image = Image.new("RGB", (width, height), "#f6f1e4")
    ImageDraw.Draw(image).text((width // 6, height // 3), "HARBOUR", "#16324f", font_size=40)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def ledger() -> bytes:
    """A table whose transcription takes hundreds of tokens, as a PNG file."""
    image = Image.new("RGB", (560, 448), "white")
    pen = ImageDraw.Draw(image)
    for row in range(12):
        cells = (
            ("City", "Units", "Price") if row == 0 else (f"Town {row}", f"{37 * row}", f"{row}.50")
        )
        for column, cell in enumerate(cells):
            pen.text((30 + 170 * column, 16 + 35 * row), cell, "#111111", font_size=22)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def upload(page: Page, data: bytes, name: str = "sign.png") -> None:
    """Put a file into the image box, in place of the one that is there."""
    page.locator("#image button[aria-label='Remove Image']").click()
    page.locator("#image input[type=file]").set_input_files(
        [{"name": name, "mimeType": "image/png", "buffer": data}]
    )


def watch(page: Page) -> None:
    """Note, from now on, when Ask was busy and when the first word of an answer was there."""
    page.evaluate(
        "() => { window.seen = {busy: 0, word: 0}; const look = () => {"
        " if (document.querySelector('#ask').disabled) seen.busy ||= performance.now();"
        " const live = '#answers .rk-card[data-state=live] .rk-answer';"
        " if (seen.busy && [...document.querySelectorAll(live)].some(a => a.textContent.trim()))"
        " seen.word ||= performance.now() };"
        " new MutationObserver(look).observe(document.body,"
        " {childList: true, subtree: true, attributes: true}) }"
    )


def answered(page: Page) -> float:
    """Wait until a run has begun and ended; returns the seconds from busy to the first word."""
    page.wait_for_function("() => seen.busy && !document.querySelector('#ask').disabled")
    busy, word = page.evaluate("() => [seen.busy, seen.word || performance.now()]")
    return (word - busy) / 1000


def ask(page: Page, question: str) -> float:
    """Ask, wait for every column, and return the seconds until the first word was there."""
    page.locator("#question textarea").fill(question)
    watch(page)
    page.locator("#ask").click()
    return answered(page)


def plot_data(page: Page, name: str) -> str:
    """What a figure is drawn from, as text that changes when the figure does."""
    return page.evaluate(
        "name => { const plot = document.querySelector(`#${name}-plot .js-plotly-plot`);"
        " return JSON.stringify([plot.data.map(t => [t.z, t.x, t.y]), plot.layout.shapes,"
        " plot.layout.annotations]) }",
        name,
    )


def changes(page: Page, name: str, before: str) -> float:
    """Wait for a figure to differ from `before`; returns the seconds it took."""
    started = time.monotonic()
    page.wait_for_function(
        "([name, before]) => { const plot ="
        " document.querySelector(`#${name}-plot .js-plotly-plot`); return plot && plot.data &&"
        " JSON.stringify([plot.data.map(t => [t.z, t.x, t.y]), plot.layout.shapes,"
        " plot.layout.annotations]) !== before }",
        arg=[name, before],
    )
    return time.monotonic() - started


def press(page: Page, slider: str, key: str) -> None:
    """Move a slider by the keyboard."""
    page.locator(f"#{slider} input[type=range]").focus()
    page.keyboard.press(key)


def test_page_greets_with_an_answer_and_every_figure(visit, shoot) -> None:
    page = visit()
    expect(page.locator(DONE)).to_have_count(2)
    for name in ("map", "raw", "rotated", "think", "spark", "rotatek", "energy", "spectrum"):
        figure = page.locator(f"#{name}-plot .js-plotly-plot")
        expect(figure).to_be_visible()
        expect(figure).to_have_attribute("role", "img")
        assert len(figure.get_attribute("aria-label") or "") > 40
    expect(page.locator("#answers")).to_contain_text("latency proves nothing")
    shoot(page, "light")


def test_upload_ask_and_read_both_answers(visit, shoot) -> None:
    page = visit()
    upload(page, drawn(448, 224))
    expect(page.locator("#token-reading")).to_have_text("keeps 51 of 128 tokens")
    first = ask(page, "What does the sign say?")
    cards = page.locator(DONE)
    expect(cards).to_have_count(2)
    assert cards.nth(0).get_attribute("data-column") == "Uncompressed"
    assert cards.nth(1).get_attribute("data-column") == "FastV + RotateK"
    for card in (cards.nth(0), cards.nth(1)):
        assert card.locator(".rk-answer").inner_text().strip()
    share = cards.nth(1).locator('[data-badge="kv"] small').inner_text()
    assert 0 < int(re.match(r"\d+", share).group()) < 100
    expect(cards.nth(1).locator('[data-badge="nominal"] dd')).to_contain_text("25 %")
    expect(page.locator("#kept-caption")).to_contain_text("51 of 128 visual tokens")
    assert first < 10.0
    shoot(page, "asked")


def test_sliders_say_what_they_keep_and_redraw(visit) -> None:
    page = visit()
    energy, mask = plot_data(page, "energy"), plot_data(page, "rotatek")
    expect(page.locator("#channel-reading")).to_contain_text("keeps 32 of 128 channels")
    press(page, "channel-sparsity", "PageUp")
    expect(page.locator("#channel-reading")).not_to_contain_text("keeps 32 of")
    changes(page, "energy", energy)
    changes(page, "rotatek", mask)
    kept = int(re.search(r"keeps (\d+)", page.locator("#channel-reading").inner_text()).group(1))
    expect(page.locator("#energy-caption")).to_contain_text(f"With {kept} of 128 channels")
    expect(page.locator("#presets input:checked")).to_have_count(0)
    budget = page.locator("#budget-reading").inner_text()
    press(page, "token-sparsity", "PageUp")
    expect(page.locator("#budget-reading")).not_to_have_text(budget)


def test_layer_and_head_change_the_figures(visit) -> None:
    page = visit()
    raw, scores = plot_data(page, "raw"), plot_data(page, "scores")
    press(page, "layer", "ArrowRight")
    changes(page, "raw", raw)
    changes(page, "scores", scores)
    raw, frame = plot_data(page, "raw"), plot_data(page, "map")
    press(page, "head", "ArrowRight")
    changes(page, "raw", raw)
    changes(page, "map", frame)
    expect(page.locator("#map-caption")).to_contain_text("Layer 3, head 1")


def test_a_cell_of_the_map_can_be_chosen(visit) -> None:
    page = visit()
    raw = plot_data(page, "raw")
    page.wait_for_selector("#map-plot .js-plotly-plot")
    area = page.locator("#map-plot .nsewdrag").bounding_box()
    cell = {"x": area["width"] * 4.5 / 6, "y": area["height"] * 0.75}
    page.locator("#map-plot .nsewdrag").hover(position=cell)
    page.locator("#map-plot .nsewdrag").click(position=cell)
    changes(page, "raw", raw)
    expect(page.locator("#layer input[type=number]")).to_have_value("4")
    expect(page.locator("#head input[type=number]")).to_have_value("1")
    expect(page.locator("#map-caption")).to_contain_text("Layer 4, head 1")


def test_stop_ends_a_long_answer_at_once(visit) -> None:
    page = visit()
    upload(page, ledger())
    expect(page.locator("#token-reading")).to_contain_text("of 320 tokens")
    page.locator("#more").get_by_role("button").first.click()
    page.locator("#length input[type=number]").fill("1024")
    page.locator("#length input[type=number]").blur()
    page.locator("#question textarea").fill("Transcribe the table as Markdown.")
    watch(page)
    page.locator("#ask").click()
    page.wait_for_function("() => seen.word")
    page.locator("#stop").click()
    started = time.monotonic()
    expect(page.locator("#ask")).to_be_enabled()
    assert time.monotonic() - started < 3.0
    expect(page.locator("#status")).to_contain_text("Stopped.")
    expect(page.locator("#answers .rk-card[data-state=live]")).to_have_count(0)
    expect(page.locator(".toast-body")).to_have_count(0)


def test_examples_fill_in_image_and_question(visit) -> None:
    page = visit()
    before = page.locator("#image img").get_attribute("src")
    page.locator("#examples .thumbnail-item").nth(1).click()
    page.wait_for_function(
        "before => document.querySelector('#image img')?.getAttribute('src') !== before",
        arg=before,
    )
    assert page.locator("#question textarea").input_value().strip()
    ask(page, page.locator("#question textarea").input_value())
    expect(page.locator(DONE)).to_have_count(2)


def test_presets_set_the_controls_and_more_columns_can_be_compared(visit, shoot) -> None:
    page = visit()
    page.locator("#presets label").filter(has_text="62 %").click()
    expect(page.locator("#budget-reading")).to_contain_text("62 %")
    expect(page.locator("#token-reading")).to_contain_text("keeps all")
    page.locator("#more").get_by_role("button").first.click()
    page.locator("#others label").filter(has_text="ThinK").click()
    page.locator("#others label").filter(has_text="SparK").click()
    ask(page, "What is the title?")
    titles = page.locator("#answers .rk-card h3").all_inner_texts()
    assert titles == ["Uncompressed", "RotateK", "ThinK", "SparK"] or set(titles) == {
        "Uncompressed", "RotateK", "ThinK", "SparK",
    }  # fmt: skip
    shoot(page, "four-columns")


def test_a_bad_upload_is_refused_calmly(visit) -> None:
    page = visit()
    upload(page, b"GIF89a" + bytes(200), "picture.png")
    toast = page.locator(".toast-body")
    expect(toast).to_contain_text("This image format is not supported. Save it as PNG, JPEG")
    assert "Traceback" not in page.content() and "/tmp" not in toast.inner_text()


def test_keyboard_alone_is_enough(visit) -> None:
    page = visit()
    page.locator("#question textarea").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("What is the title?")
    watch(page)
    page.keyboard.press("Control+Enter")
    answered(page)
    expect(page.locator(DONE)).to_have_count(2)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "ask"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_reload_in_the_middle_of_an_answer(visit) -> None:
    page = visit()
    watch(page)
    page.locator("#ask").click()
    page.wait_for_function("() => seen.busy")
    page.reload()
    page.wait_for_selector("#raw-plot .js-plotly-plot")
    expect(page.locator("#ask")).to_be_enabled()
    ask(page, "What is the title?")
    expect(page.locator(DONE)).to_have_count(2)


@pytest.mark.parametrize("theme,dark", [("light", False), ("dark", True)])
def test_phone_width_needs_no_sideways_scrolling(visit, shoot, theme: str, dark: bool) -> None:
    page = visit(width=390, height=844, theme=theme)
    ask(page, "What is the title?")
    width = page.evaluate(
        "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"
    )
    assert width <= 390
    cards = [card.bounding_box() for card in page.locator("#answers .rk-card").all()]
    assert cards[1]["y"] >= cards[0]["y"] + cards[0]["height"]
    assert page.evaluate("document.body.classList.contains('dark')") is dark
    shoot(page, f"phone-{theme}")


def test_dark_mode_keeps_its_ink_readable(visit: Callable[..., Page], shoot) -> None:
    page = visit(theme="dark")
    read = (
        "selector => { const e = document.querySelector(selector);"
        " const c = getComputedStyle(e); return [c.color, c.fill] }"
    )
    for selector in (".rk-answer", ".rk-see", ".rk-badges dd"):
        colour = page.evaluate(read, selector)[0]
        assert min(map(int, re.findall(r"\d+", colour)[:3])) > 140, selector
    tick = page.evaluate(read, "#energy-plot .xtick text")[1]
    assert min(map(int, re.findall(r"\d+", tick)[:3])) > 140
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", ground)[:3])) < 40
    shoot(page, "dark")


def test_figures_are_described_by_numbers_that_are_drawn(visit) -> None:
    page = visit()
    said = page.locator("#energy-caption").inner_text()
    k = int(re.search(r"With (\d+) of 128", said).group(1))
    annotations = json.loads(plot_data(page, "energy"))[2]
    assert any(a["text"] == f"k = {k}" for a in annotations)
