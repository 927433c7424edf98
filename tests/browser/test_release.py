"""Kept caches leave with their visitor: the page in this process, so that memory can be seen."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from rotatek.engine.engine import Engine
from rotatek.service.service import Service
from tests.browser.steps import open_drawer
from tests.served import page_of, service_of, square, until
from tests.tiny import tiny_qwen

pytestmark = [
    pytest.mark.browser,
    pytest.mark.alone,
    # Gradio leaves event loops to the collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
    ),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, str]]:
    """A tiny model's service, and where its page is served."""
    service = service_of(Engine(tiny_qwen()))
    with page_of(service, square(tmp_path_factory.mktemp("pictures")), grace_s=1) as (_, url):
        yield service, url


def asked(page: Page, url: str) -> Page:
    """A visitor who has been answered and may ask on."""
    page.set_default_timeout(45_000)
    page.goto(url)
    page.wait_for_selector("#answers .rk-card")
    open_drawer(page, "more")
    page.locator("#length input[type=number]").fill("8")  # a random model finds no end
    page.locator("#length input[type=number]").blur()
    page.locator("#ask").click()
    expect(page.locator("#follow")).to_be_visible()
    return page


def test_caches_leave_with_their_visitor(
    browser: Browser, tab: list[Page], place: tuple[Service, str]
) -> None:
    service, url = place
    page = asked(tab.pop() if tab else browser.new_page(), url)
    assert len(service.conversations) == 1 and service.conversations.bytes > 0
    page.close()
    until(lambda: len(service.conversations) == 0, 5.0)  # a quarter of a second on an idle machine
