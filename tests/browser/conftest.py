"""The program in a process of its own, a browser, and pages that must not complain."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    Request,
    expect,
    sync_playwright,
)

from tests.fixtures import Visit
from tests.served import page_process, wait_ready

ROOT = Path(__file__).resolve().parents[2]
# What gradio's own client says when a page with a running request is left; Chromium words the
# first by what was being read, and newer ones name the buffer.
CUT_SHORT = re.compile(
    r"^AbortError: (signal is aborted|BodyStreamBuffer was aborted)|Connection errored out"
)
ALL_DRAWN = (
    "() => [...document.querySelectorAll('.rk-plot')].filter(plot => plot.offsetWidth)"
    ".every(plot => plot.classList.contains('js-plotly-plot'))"
)
WAIT_MS = 120_000  # a busy machine is slow, and not wrong: 45 s were too short twice
expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """app.py on a free port, started in another folder; or what ROTATEK_PAGE_COMMAND starts."""
    usual = f"{sys.executable} {ROOT / 'app.py'}"
    command = shlex.split(os.environ.get("ROTATEK_PAGE_COMMAND", usual))
    log = tmp_path_factory.mktemp("page") / "log.txt"
    threads = "1" if "PYTEST_XDIST_WORKER" in os.environ else "2"  # the cores are taken already
    with page_process(command, log, OMP_NUM_THREADS=threads) as (process, url):
        wait_ready(process, url, log)
        yield url


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium of the system."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed; CI installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def tab() -> list[Page]:
    """Where the tab is kept that the next visit may load the page in anew."""
    return []


@pytest.fixture
def visit(
    browser: Browser, address: str, tab: list[Page], request: pytest.FixtureRequest
) -> Iterator[Visit]:
    """Open the page; at the end no page may have logged an error or called a foreign host.

    A visit goes on in the tab of a test that has passed: it loads everything anew and is another
    visitor's, but a new tab compiles the scripts again, three fifths of what a visit takes.
    """
    pages: list[Page] = []
    complaints: list[str] = []
    failed_before = request.session.testsfailed

    def heard(message: ConsoleMessage) -> None:
        if message.type == "error" and not CUT_SHORT.search(message.text):
            complaints.append(f"console: {message.text}")

    def sent(request: Request) -> None:
        if not request.url.startswith((address, "data:", "blob:")):
            complaints.append(f"foreign host: {request.url}")

    def raised(error: Error) -> None:
        complaints.append(f"page: {error}")

    def open_page(width: int = 1400, height: int = 1000, theme: str = "light") -> Page:
        page = tab.pop() if tab else browser.new_page()
        pages.append(page)
        page.set_viewport_size({"width": width, "height": height})
        page.set_default_timeout(WAIT_MS)
        page.on("console", heard)
        page.on("request", sent)
        page.on("pageerror", raised)
        page.goto(f"{address}/?__theme={theme}")
        page.wait_for_selector("#raw-plot .js-plotly-plot .heatmaplayer image")
        page.wait_for_selector("#budget-plot .js-plotly-plot .barlayer")
        page.wait_for_function(ALL_DRAWN)
        return page

    yield open_page
    for page in pages:
        page.remove_listener("console", heard)
        page.remove_listener("request", sent)
        page.remove_listener("pageerror", raised)
        if tab or request.session.testsfailed > failed_before:
            page.close()
        else:
            tab.append(left(page))
    assert not complaints, "\n".join(complaints)


def left(page: Page) -> Page:
    """The same tab as a stranger finds it: empty, nothing stored or permitted, no mouse on it."""
    page.evaluate("localStorage.clear(), sessionStorage.clear()")
    page.context.clear_cookies()
    page.context.clear_permissions()
    page.goto("about:blank")
    page.mouse.move(0, 0)
    return page
