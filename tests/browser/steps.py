"""Steps of journeys: pictures to upload, asking and waiting, reading a figure."""

import io
import time
from contextlib import suppress

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image, ImageDraw
from playwright.sync_api import Error, FilePayload, Page, expect

DATA = (
    "name => { const plot = document.querySelector(`#${name}-plot .js-plotly-plot`);"
    " return plot?.data && JSON.stringify([plot.data.map(t => [t.z, t.x, t.y]),"
    " plot.layout.shapes, plot.layout.annotations]) }"
)
DONE = '#answers .rk-card[data-state="done"]'


def drawn(width: int, height: int, kind: str = "PNG") -> bytes:
    """A small sign with one word on it, as a file."""
    image = Image.new("RGB", (width, height), "#f6f1e4")
    ImageDraw.Draw(image).text((width // 6, height // 3), "HARBOUR", "#16324f", font_size=40)
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def upload(page: Page, data: bytes, name: str = "sign.png") -> None:
    """Put a file into the image box, in place of the one that is there."""
    page.locator("#image button[aria-label='Remove Image']").click()
    file: FilePayload = {"name": name, "mimeType": "image/png", "buffer": data}
    page.locator("#image input[type=file]").set_input_files([file])


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
    page.wait_for_function("() => !document.querySelector('#ask').disabled")  # a slider's own run
    watch(page)
    for wait_ms in (15_000, 30_000):  # a page under load may still empty the box after `fill`
        page.locator("#question textarea").fill(question)
        page.locator("#ask").click()
        with suppress(Error):
            page.wait_for_function("() => seen.busy", timeout=wait_ms)
            break
    return answered(page)


def begin_long(page: Page, tokens: int) -> None:
    """Ask for all of a page's text, and wait until the first word is there."""
    page.locator("#examples .thumbnail-item").nth(5).click()
    expect(page.locator("#suggestions label").first).to_contain_text("Transcribe")
    open_drawer(page, "more")
    page.locator("#length input[type=number]").fill(str(tokens))
    page.locator("#length input[type=number]").blur()
    page.locator("#question textarea").fill("Transcribe the page as Markdown.")
    watch(page)
    page.locator("#ask").click()
    page.wait_for_function("() => seen.word")


def plot_data(page: Page, name: str) -> str:
    """The data of a figure, as text that changes when the figure does."""
    return page.evaluate(f"name => ({DATA})(name)", name)


def changes(page: Page, name: str, before: str) -> float:
    """Wait for a figure to differ from `before`; returns the seconds it took."""
    started = time.monotonic()
    differs = f"([name, before]) => (d => d && d !== before)(({DATA})(name))"
    page.wait_for_function(differs, arg=[name, before])
    return time.monotonic() - started


def open_drawer(page: Page, name: str) -> None:
    """Open one of the closed groups by its heading, and let it settle.

    Gradio mounts what is inside on the first opening and sets its values once more within a
    tenth of a second: a key pressed in between is undone. No person is that fast, a test is.
    """
    page.locator(f"#{name}").get_by_role("button").first.click()
    page.evaluate("() => new Promise(done => setTimeout(() => requestIdleCallback(done), 500))")


def turn(page: Page, theme: str) -> None:
    """Turn the page light or dark, and wait until every figure has its ink and nothing fades."""
    page.evaluate("theme => document.body.classList.toggle('dark', theme === 'dark')", theme)
    page.wait_for_function(
        "() => { const ink = getComputedStyle(document.body).getPropertyValue('--rk-soft').trim();"
        " return [...document.querySelectorAll('.rk-plot.js-plotly-plot')]"
        ".every(plot => plot.layout.font.color === ink) && document.getAnimations()"
        ".every(a => a.playState !== 'running' || a.effect.getComputedTiming().iterations > 9) }"
    )


def page_width(page: Page) -> int:
    """The page's width in pixels: more than its window's where it scrolls sideways."""
    return page.evaluate(
        "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"
    )


def press(page: Page, slider: str, key: str) -> None:
    """Move a slider by the keyboard."""
    handle = page.locator(f"#{slider} input[type=range]")
    expect(handle).to_be_visible()  # one in a drawer that is still opening takes no focus
    handle.focus()
    page.keyboard.press(key)


def slide(page: Page, slider: str, key: str) -> None:
    """Move one of the sliders that ask again, and wait for the answers that they ask for."""
    watch(page)
    press(page, slider, key)
    answered(page)


def findings(page: Page, theme: str) -> list[str]:
    """Violations that axe-core calls serious or critical in a theme, with their elements.

    Only violations are asked for: spelling out what passes took as long again.
    """
    turn(page, theme)
    response = Axe().run(page, options={"resultTypes": ["violations"]}).response
    return [
        f"{theme}: {found['impact']}: {found['help']}: "
        f"{[node['target'] for node in found['nodes'][:4]]}"
        for found in response["violations"]
        if found["impact"] in ("serious", "critical")
    ]


def reach(page: Page, selector: str, most: int = 60) -> None:
    """Press Tab until an element that matches has the focus, and can be seen to have it."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("s => document.activeElement.matches(s)", selector):
            style = page.evaluate(
                "() => { const s = getComputedStyle(document.activeElement);"
                " return s.outlineStyle + s.boxShadow + s.borderColor }"
            )
            assert style != "none"
            return
    pytest.fail(f"{selector} cannot be reached by keyboard")
