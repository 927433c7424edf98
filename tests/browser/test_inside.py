"""Looking inside: figures that follow at once, can be stepped through and carried away."""

import io
import statistics
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from tests.browser.steps import press
from tests.fixtures import Visit

pytestmark = pytest.mark.browser

REDRAW_MS = 1500  # a busy machine's bar; the README has the measured figure
CLOCK = (
    "() => { window.clock = {moved: 0, drawn: 0, rounds: 0};"
    " document.addEventListener('input', () => { clock.moved = performance.now() }, true);"
    " document.addEventListener('rk:drawn', () => {"
    " clock.drawn = performance.now(); clock.rounds += 1 }) }"
)


@pytest.mark.alone
def test_every_figure_follows_a_layer_at_once(visit: Visit, capsys: pytest.CaptureFixture) -> None:
    page = visit()
    page.evaluate(CLOCK)
    taken = []
    for key in ("ArrowRight", "ArrowLeft") * 5:
        rounds = page.evaluate("clock.rounds")
        press(page, "layer", key)
        page.wait_for_function("rounds => clock.rounds > rounds", arg=rounds)
        page.wait_for_timeout(150)
        taken.append(page.evaluate("clock.drawn - clock.moved"))
    with capsys.disabled():
        print(f" [{statistics.median(taken):.0f} ms to the last figure] ", end="")
    assert statistics.median(taken) < REDRAW_MS


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
