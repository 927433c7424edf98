"""Columns side by side, follow-up questions, and what is taken away."""

import json

import pytest
from playwright.sync_api import Page, expect

from rotatek.methods.channels.bits import DEFAULT_TIMES
from tests.browser.steps import DONE, answered, ask, open_drawer, press, watch
from tests.fixtures import Visit

pytestmark = pytest.mark.browser
FOLLOW = "#follow-text textarea, #follow-text input, textarea#follow-text"


def cards_of(page: Page) -> list[str]:
    """The titles of the answers."""
    return page.locator("#answers .rk-card h3").all_inner_texts()


def kilobytes(text: str) -> float:
    """`2.08 MB` as 2080."""
    number, unit = text.split()[:2]
    return float(number) * {"kB": 1, "MB": 1e3, "GB": 1e6}[unit]


def held(page: Page, card: int) -> float:
    """The bytes on a card, in kilobytes."""
    return kilobytes(page.locator(DONE).nth(card).locator(".rk-held b").first.inner_text())


def may_follow(page: Page) -> None:
    """Wait until a follow-up may be typed."""
    expect(page.locator("#follow")).to_be_visible()
    page.wait_for_timeout(250)  # Gradio sets a box once more just after it has appeared


def type_on(page: Page, question: str) -> None:
    """Type a follow-up question, again where Gradio sets the box late on a busy machine."""
    may_follow(page)
    box = page.locator(FOLLOW).first
    for _ in range(8):
        box.fill(question)
        page.wait_for_timeout(250)
        if box.input_value() == question:
            break
    expect(box).to_have_value(question)


def follow(page: Page, question: str) -> None:
    """Ask on, and wait for every column."""
    type_on(page, question)
    watch(page)
    page.locator(FOLLOW).first.press("Control+Enter")
    answered(page)
    expect(page.locator(FOLLOW).first).to_have_value("")  # the box is emptied for the next one


def test_rivals_answer_beside_the_three(visit: Visit) -> None:
    page = visit()
    open_drawer(page, "setup")
    for name in ("Dropped tokens alone", "ThinK", "SparK"):
        page.locator("#others label").filter(has_text=name).click()
    ask(page, "What is the total?")
    expect(page.locator(DONE)).to_have_count(6)
    for summary in page.locator("#answers summary").all():
        summary.click()
    assert cards_of(page) == [
        "Uncompressed", "FastV + RotateK", f"RotateK ({DEFAULT_TIMES} times smaller)", "FastV",
        "FastV + ThinK", "FastV + SparK",
    ]  # fmt: skip
    nominal = page.locator('#answers [data-badge="nominal"] dd').all_inner_texts()
    shares = [text.split("%")[0].strip() for text in nominal]
    assert shares == ["100", "25", f"{100 / DEFAULT_TIMES:.0f}", "25", "25", "25"]
    expect(page.locator("#answers .rk-parting table")).to_have_count(5)
    expect(page.locator("#answers .rk-why").nth(1)).to_contain_text("logit KL")
    expect(page.locator("#answers .rk-why").nth(1)).to_contain_text("ms a token, uncompressed")
    page.wait_for_function(
        "document.querySelector('#budget-plot .js-plotly-plot').layout.yaxis.ticktext.length === 6"
    )


def test_a_follow_up_goes_on_from_the_kept_caches(visit: Visit) -> None:
    page = visit()
    expect(page.locator("#follow")).to_be_hidden()
    ask(page, "What is the total?")
    expect(page.locator("#follow")).to_be_visible()
    before = [held(page, 0), held(page, 1)]
    follow(page, "What is the name of the shop?")
    first = page.locator(DONE).first
    expect(first.locator(".rk-asked")).to_have_text(
        ["What is the total?", "What is the name of the shop?"]
    )
    expect(first.locator(".rk-told")).to_contain_text("20.10")
    expect(first.locator(".rk-answer")).to_contain_text("Harbour")
    first.locator("summary").click()
    expect(first.locator('[data-badge="prefill"]')).to_contain_text("question only")
    assert held(page, 0) > before[0] and held(page, 1) > before[1]
    expect(page.locator(FOLLOW).first).to_have_value("")
    page.locator("#examples .thumbnail-item").nth(1).click()
    expect(page.locator("#follow")).to_be_hidden()


def downloaded(page: Page, button: str) -> tuple[str, str]:
    """Name and text of the file that a button saves."""
    with page.expect_download() as waiting:
        page.locator(button).click()
    file = waiting.value
    with open(file.path(), encoding="utf-8") as saved:
        return file.suggested_filename, saved.read()


def test_answers_are_saved(visit: Visit) -> None:
    page = visit()
    ask(page, "What is the total?")
    follow(page, "What is the time?")
    open_drawer(page, "export")
    name, text = downloaded(page, "#export-json")
    got = json.loads(text)
    assert name == "rotatek.json" and len(got["turns"]) == 2
    shown = page.locator(DONE).nth(1).locator(".rk-answer").inner_text()
    assert got["turns"][1]["columns"]["FastV + RotateK"]["answer"] == shown.strip()
    expect(page.locator("#export-said")).to_have_text("Saved as rotatek.json.")
    expect(page.locator("#export-code")).to_contain_text("engine.follow(talk, 'What is the time?'")


def test_a_link_brings_everything_back(visit: Visit, address: str) -> None:
    page = visit()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#examples .thumbnail-item").nth(2).click()
    open_drawer(page, "setup")
    page.locator("#presets label").filter(has_text="62 %").click()
    expect(page.locator("#channels-reading")).to_contain_text("62 %")
    page.locator("#others label").filter(has_text="ThinK").click()
    press(page, "times-smaller", "ArrowRight")
    smaller = f"{100 / (DEFAULT_TIMES + 1):.0f} %"
    expect(page.locator("#times-reading")).to_contain_text(smaller)
    page.locator("#question textarea").fill("Which rows & columns?")
    open_drawer(page, "export")
    page.locator("#export-link").click()
    expect(page.locator("#export-said")).to_have_text("Link copied.")
    link = page.url
    assert page.evaluate("navigator.clipboard.readText()") == link and link.startswith(address)
    page.goto(link)
    expect(page.locator("#question textarea")).to_have_value("Which rows & columns?")
    expect(page.locator("#channels-reading")).to_contain_text("62 %")
    expect(page.locator("#times-reading")).to_contain_text(smaller)
    open_drawer(page, "setup")
    expect(page.locator("#others input:checked")).to_have_count(1)
    expect(page.locator("#status")).to_contain_text("come from the link")
    assert "table.png" in (page.locator("#image img").get_attribute("src") or "")
    open_drawer(page, "export")
