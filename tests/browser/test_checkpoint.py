"""Load a checkpoint from the page, where the host allows it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from rotatek.engine.engine import Engine
from rotatek.models.loading import POCKET
from rotatek.page import server
from rotatek.page.build import build
from rotatek.page.page_context import PageContext
from rotatek.service.model_list import Model, load_examples
from rotatek.service.service import Service
from tests.browser.steps import open_drawer
from tests.fixtures import Visit
from tests.tiny import tiny_qwen

pytestmark = [
    pytest.mark.browser,
    # Gradio leaves event loops to the collector.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
    ),
]


@pytest.fixture(scope="module")
def open_host() -> Iterator[str]:
    """A page whose host allows checkpoints, on a tiny model; every source loads that model."""
    vlm = tiny_qwen()
    service = Service([Model("tiny", "Tiny", "nowhere")], lambda source: Engine(vlm))
    site = PageContext(service, load_examples(server.ASSETS / "examples"), loads_checkpoints=True)
    page = build(site, server.ASSETS)
    _, url, _ = server.launch(
        page, service, prevent_thread_lock=True, quiet=True, server_name="127.0.0.1"
    )
    yield url
    page.close(verbose=False)


def load_checkpoint(page: Page, source: str) -> None:
    page.locator("#checkpoint-source textarea, #checkpoint-source input").first.fill(source)
    page.locator("#checkpoint-load").click()


def test_a_checkpoint_is_brought_and_chosen(open_host: str, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(open_host)
    open_drawer(page, "more")
    load_checkpoint(page, str(Path(POCKET)))
    expect(page.locator("#checkpoint-progress")).to_contain_text("pocket is ready, and chosen.")
    expect(page.locator("#model input")).to_have_value("pocket")
    page.reload()
    open_drawer(page, "more")
    page.locator("#model input").click()
    expect(page.get_by_role("option", name="pocket")).to_be_visible()
    page.close()


def test_what_is_none_is_refused_in_a_sentence(open_host: str, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(open_host)
    open_drawer(page, "more")
    load_checkpoint(page, str(Path(POCKET).with_name("nothing")))
    expect(page.locator("#checkpoint-progress")).to_contain_text("There is no model")
    expect(page.locator("#checkpoint-load")).to_be_enabled()
    expect(page.locator("#model input")).to_have_value("Tiny")
    page.close()


def test_a_public_page_has_no_such_box(visit: Visit) -> None:
    page = visit()
    open_drawer(page, "more")
    expect(page.locator("#model input")).to_be_visible()
    expect(page.locator("#checkpoint-source")).to_have_count(0)
