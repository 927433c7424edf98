"""A short video: asked about on the page, and inspected frame by frame."""

import re

import pytest
from playwright.sync_api import FilePayload, expect

from tests.browser.steps import DONE, changes, plot_data, press
from tests.fixtures import Shoot, Visit
from tests.unit.test_clip import film

UNDER = "() => document.querySelector('#attention-plot .imagelayer image').href.baseVal"


@pytest.mark.parametrize(
    ("width", "height", "theme"), [(1440, 900, "light"), (390, 844, "dark")], ids=["wide", "narrow"]
)
def test_a_clip_is_looked_into_frame_by_frame(
    visit: Visit, shoot: Shoot, width: int, height: int, theme: str
) -> None:
    page = visit(width, height, theme)
    expect(page.locator("#frame")).to_have_count(0)  # one picture has nothing to step through
    file: FilePayload = {
        "name": "clip.mp4", "mimeType": "video/mp4", "buffer": film(6, size=(224, 160)),
    }  # fmt: skip
    with page.expect_file_chooser() as chooser:
        page.locator("button#clip, #clip button").first.click()
    chooser.value.set_files([file])
    expect(page.locator("#status")).to_contain_text("6 frames of 5 seconds")
    page.locator("#question textarea").fill("What is the name of the shop?")
    page.locator("#ask").click()
    page.wait_for_function(f"() => document.querySelectorAll('{DONE}').length > 1")
    slider = page.locator("#frame input[type=range]")
    expect(slider).to_have_attribute("max", "3")  # two frames share their tokens
    expect(page.locator("#attention-caption")).to_contain_text(re.compile(r"Of frame 1, on which"))
    before, under = plot_data(page, "attention"), page.evaluate(UNDER)
    press(page, "frame", "ArrowRight")
    changes(page, "attention", before)
    for figure in ("attention", "compressed", "kept"):
        expect(page.locator(f"#{figure}-caption")).to_contain_text("Of frame 3")
    page.wait_for_function(f"before => ({UNDER})() !== before", arg=under)
    page.locator("#look-figures").scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shoot(page, f"clip-{width}-{theme}")
