"""An answer ends with its tab: the page in this process, so that the engine can be seen."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from rotatek.engine.engine import Engine
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
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, str]]:
    """A tiny model's engine, and where its page is served."""
    engine = Engine(tiny_qwen())
    with page_of(service_of(engine), square(tmp_path_factory.mktemp("pictures"))) as (_, url):
        yield engine, url


def test_an_answer_ends_with_its_tab(
    browser: Browser, tab: list[Page], place: tuple[Engine, str]
) -> None:
    engine, url = place
    page = tab.pop() if tab else browser.new_page()
    page.set_default_timeout(45_000)
    page.goto(url)
    page.wait_for_selector("#answers .rk-card")
    open_drawer(page, "more")
    page.locator("#length input[type=number]").fill("1024")  # a random model finds no end
    page.locator("#length input[type=number]").blur()
    page.locator("#ask").click()
    until(lambda: engine.scheduler.running > 1, 30.0)
    page.close()
    until(lambda: engine.scheduler.running == 0, 5.0)
