"""For everyone: no serious finding of axe-core, and every step by keyboard alone."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.steps import turn
from tests.fixtures import Visit

pytestmark = pytest.mark.browser

SERIOUS = ("serious", "critical")


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
        if found["impact"] in SERIOUS
    ]


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
