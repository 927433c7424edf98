"""The answer comes first: the first screen, the sliders, words and where they attended."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.steps import DONE, ask, begin_long, findings, page_width, press
from tests.fixtures import Visit, present

pytestmark = pytest.mark.browser

DESKS = [(1440, 900), (1280, 720)]
INSIDE = (
    "selector => [...document.querySelectorAll(selector)].map(element => {"
    " const box = element.getBoundingClientRect(); return box.height > 0 && box.top >= 0"
    " && box.left >= 0 && box.bottom <= innerHeight && box.right <= innerWidth })"
)
SHIFTS = (
    "() => { window.shifted = 0; new PerformanceObserver(list => {"
    " for (const entry of list.getEntries()) if (!entry.hadRecentInput) shifted += entry.value"
    " }).observe({type: 'layout-shift', buffered: false}) }"
)
LIGHT_MS = 300


def in_view(page: Page, selector: str) -> list[bool]:
    """Of every element that matches, whether all of it is inside the window."""
    return page.evaluate(INSIDE, selector)


@pytest.mark.parametrize(("width", "height"), DESKS)
def test_answers_and_their_sliders_are_in_view(visit: Visit, width: int, height: int) -> None:
    page = visit(width, height)
    assert in_view(page, DONE) == [True] * 3
    assert in_view(page, ".rk-sliders input[type=range]") == [True] * 3
    assert all(in_view(page, "#image, #question, #ask, #stop, .rk-reading, #drawers button"))
    page.mouse.wheel(0, 100_000)
    page.wait_for_function("() => scrollY > 500")
    page.evaluate("scrollTo(0, 0)")
    page.evaluate(SHIFTS)
    ask(page, "How much is the apple pie?")
    assert in_view(page, DONE) == [True] * 3
    assert in_view(page, ".rk-sliders input[type=range]") == [True] * 3
    assert page.evaluate("shifted") < 0.05


def test_on_a_phone_ask_brings_the_answers_into_view(visit: Visit) -> None:
    page = visit(390, 844)
    assert in_view(page, DONE)[0]
    cards = [present(card.bounding_box()) for card in page.locator("#answers .rk-card").all()]
    assert cards[1]["y"] >= cards[0]["y"] + cards[0]["height"]
    page.emulate_media(reduced_motion="reduce")
    page.set_viewport_size({"width": 390, "height": 560})
    assert not any(in_view(page, DONE))
    ask(page, "How much is the apple pie?")
    page.wait_for_function(f"() => ({INSIDE})('#answers .rk-card').some(Boolean)")
    assert page.evaluate("document.activeElement.id") == "answers"
    assert page_width(page) <= 390
    page.emulate_media(reduced_motion="no-preference")


def test_the_narrowest_phone_has_every_tab_and_button(visit: Visit) -> None:
    """320 pixels: what WCAG 1.4.10 asks for."""
    page = visit(320, 720)
    tabs = page.locator("#parts > .tab-wrapper .tab-container:not(.visually-hidden) [role=tab]")
    expect(tabs).to_have_count(3)
    for number in range(3):
        tabs.nth(number).click()
        assert all(in_view(page, "#parts > .tab-wrapper [role=tab]"))
        assert page_width(page) <= 320
        buttons = page.locator("#ask, #stop, #collection-ask, #collection-stop")
        for box in (button.bounding_box() for button in buttons.all() if button.is_visible()):
            assert present(box)["x"] + present(box)["width"] <= 320


@pytest.mark.alone
def test_a_moving_slider_asks_once_and_ends_what_runs(visit: Visit) -> None:
    page = visit(1280, 720)
    begin_long(page, 64)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    for _ in range(4):
        press(page, "token-sparsity", "ArrowRight")
    page.wait_for_timeout(600)
    page.wait_for_function("() => !document.querySelector('#ask').disabled", timeout=60_000)
    expect(page.locator(DONE)).to_have_count(3)
    expect(page.locator("#status")).not_to_contain_text("Stopped")
    expect(page.locator("#answers .rk-card").nth(1).locator(".rk-sub")).to_contain_text(
        "64 % of tokens"
    )


@pytest.mark.alone
def test_a_word_lights_the_picture_in_the_same_view(visit: Visit) -> None:
    page = visit(1280, 720)
    ask(page, "What is the total?")
    for column in ("Uncompressed", "FastV + RotateK"):
        word = page.locator(f'[data-column="{column}"] .rk-word').first
        word.click()  # its attention is known soon after the answer
        expect(page.locator("#lit")).to_contain_text("looked here for")
        word.click()
        expect(page.locator("#lit")).to_contain_text("Choose a word")
        page.evaluate(
            "() => { window.lit = 0; document.addEventListener('pointerup', () => {"
            " window.pressed = performance.now() }, true);"
            " document.addEventListener('rk:lit', () => requestAnimationFrame(() => {"
            " window.lit = performance.now() }), {once: true}) }"
        )
        word.click()
        page.wait_for_function("() => lit")
        assert page.evaluate("lit - pressed") < LIGHT_MS
        expect(page.locator("#lit")).to_contain_text(f"{column} looked here for £20.10")
        assert in_view(page, ".rk-veil[data-on]") == [True]
        assert all(in_view(page, ".rk-word[data-lit], #lit"))
        left, top = brightest(page)
        assert left > 0.6 and 0.5 < top < 0.62  # the position of the total on the receipt


def brightest(page: Page) -> tuple[float, float]:
    """The centre of the light, as shares of the picture's width and height."""
    return tuple(page.evaluate(
        "() => { const veil = document.querySelector('.rk-veil');"
        " const {data, width, height} = veil.getContext('2d')"
        ".getImageData(0, 0, veil.width, veil.height); let best = 0;"
        " for (let i = 0; i < width * height; i++)"
        " if (data[4 * i + 3] < data[4 * best + 3]) best = i;"
        " return [best % width / width, Math.floor(best / width) / height] }"
    ))  # fmt: skip


def test_on_a_phone_the_picture_comes_to_the_word(visit: Visit) -> None:
    page = visit(390, 844)
    ask(page, "What is the total?")
    page.locator("#answers").evaluate("answers => answers.scrollIntoView({block: 'start'})")
    word = page.locator('[data-column="Uncompressed"] .rk-word').first
    word.click()
    small = page.locator(".rk-beside")
    expect(small).to_be_visible()
    assert all(in_view(page, ".rk-beside, .rk-word[data-lit]"))
    small.click()
    expect(small).to_have_count(0)
    expect(page.locator(".rk-word[data-lit]")).to_have_count(0)


def test_the_keyboard_reaches_everything_on_the_first_screen(visit: Visit) -> None:
    page = visit(1280, 720)
    wanted = {
        "[role=tab]", "#image button", "#examples button", "#question textarea, textarea#question",
        "#ask", "#suggestions input", "#answers .rk-answer", "#answers summary",
        "#token-sparsity input[type=range]", "#channel-sparsity input[type=range]",
        "#times-smaller input[type=range]", "#answers .rk-parting summary",
        "#setup button", "#more button", "#export button",
    }  # fmt: skip
    seen: set[str] = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen |= set(
            page.evaluate(
                "wanted => wanted.filter(s => document.activeElement.matches(s))", list(wanted)
            )
        )
        if seen == wanted:
            break
    assert seen == wanted, wanted - seen


@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious(visit: Visit, width: int) -> None:
    """Every tab, light and dark; of the two others one is drawn in either ink."""
    page = visit(width, 900)
    for summary in page.locator("#setup, #more").all():
        summary.get_by_role("button").first.click()
    for summary in page.locator("#answers summary").all():
        summary.click()
    found = findings(page, "light") + findings(page, "dark")
    page.get_by_role("tab", name="Results").click()
    expect(page.locator("#results-opening")).to_be_visible()
    found += findings(page, "light") + findings(page, "dark")
    assert not found, "\n".join(found)
