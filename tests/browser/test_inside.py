"""Looking inside: figures that follow at once, can be stepped through and carried away."""

import io
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.browser.steps import DONE, answered, ask, findings, page_width, reach, slide, watch
from tests.fixtures import Shoot, Visit

pytestmark = pytest.mark.browser


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
def test_the_heads_that_did_the_harm_and_what_if(visit: Visit, shoot: Shoot, width: int) -> None:
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
    shoot(page, f"what-if-{width}")
    assert not complaints, "\n".join(complaints)
