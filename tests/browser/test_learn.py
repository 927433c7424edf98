"""The lessons and the results: drawn from files, with or without a model."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from playwright.sync_api import Error as PlaywrightError

from rotatek.page import server
from rotatek.page.build import build
from rotatek.page.page_context import PageContext
from rotatek.page.results import files
from rotatek.service.model_list import load_examples
from tests.browser.steps import open_results
from tests.fixtures import Shoot, Visit

pytestmark = pytest.mark.browser


def open_tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def test_a_lesson_sets_the_controls_and_leads_back_to_them(visit: Visit, shoot: Shoot) -> None:
    page = visit()
    open_tab(page, "Learn")
    expect(page.locator("#learn-figure-7-2-plot .js-plotly-plot")).to_be_visible()
    assert page.locator("[id^=lesson-]").count() == 7
    assert page.locator("[id^=learn-figure-] .rk-see:empty").count() == 0
    shoot(page, "learn")
    page.locator("#try-5").click()
    expect(page.locator("#ask")).to_be_visible()
    expect(page.locator("#token-reading")).to_contain_text("of")
    expect(page.locator("#token-sparsity input[type=number]")).to_have_value("0.6")
    expect(page.locator("#channel-sparsity input[type=number]")).to_have_value("0.75")


def test_results_open_with_a_sentence_and_a_figure_for_each_model(
    visit: Visit, shoot: Shoot
) -> None:
    models = [run["model"]["name"] for run in files.load(server.ASSETS / "results").results.main]
    page = visit(1280, 800)
    open_tab(page, "Results")
    expect(page.locator("#opening-plot .js-plotly-plot")).to_be_visible()
    expect(page.locator("[id$=-results] .rk-plot:visible")).to_have_count(len(models))
    again = r"Asked again, RotateK's bits beat others at their own bytes in \d+ of \d+"
    expect(page.locator("#results-opening p")).to_contain_text(re.compile(again))
    for model in models:
        named = f"{model}: " if len(models) > 1 else ""
        within = rf"{named}Within two points of the uncompressed [\d.]+ %, \w+ needs \d+ % of the"
        expect(page.locator("#results-opening p")).to_contain_text(re.compile(within))
    drawn = page.locator("#opening-plot .scatterlayer .trace .point")
    assert drawn.count() > 20
    assert page.evaluate("document.documentElement.scrollHeight") < 1500
    shoot(page, "results-opening")


def test_results_are_drawn_when_their_group_is_opened(visit: Visit, shoot: Shoot) -> None:
    page = visit()
    open_results(page)
    frames = page.locator("[id$=-results] .rk-plot")
    page.wait_for_function(
        "() => document.querySelectorAll('[id$=-results] .rk-plot').length >= 10"
    )
    expect(page.locator("[id$=-results] .rk-plot.js-plotly-plot")).to_have_count(frames.count())
    names = page.evaluate("[...document.querySelectorAll('[id$=-plot]')].map(one => one.id)")
    assert len(names) == len(set(names))  # else one figure is drawn into another's frame
    frontier = page.locator("#frontier-fastv-plot")
    shown = frontier.locator(".scatterlayer .trace:visible")
    before = shown.count()
    frontier.locator(".legendtoggle").first.click()
    expect(shown).not_to_have_count(before)
    shoot(page, "results")


def test_results_fit_a_phone_and_their_table_scrolls_inside(visit: Visit, shoot: Shoot) -> None:
    page = visit(width=390, height=844)
    open_results(page)
    plot = "#eff-kv-mib-llama3-8b-plot"
    expect(page.locator(f"{plot}.js-plotly-plot, {plot} .js-plotly-plot")).to_be_visible()
    page.locator("#efficiency-group .rk-table summary").click()
    expect(page.locator("#efficiency-group .rk-table td").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    box = page.locator("#efficiency-group .rk-table div")
    assert box.evaluate("e => e.scrollWidth > e.clientWidth")
    shoot(page, "results-phone")


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The program's page with a model that is not there, served by this process."""
    monkeypatch.setenv("ROTATEK_MODELS", str(tmp_path / "none"))
    service = server.service_here()
    site = PageContext(service, load_examples(server.ASSETS / "examples"))
    site.prepare()
    assert service.failure and not service.loaded()
    page = build(site, server.ASSETS)
    _, url, _ = server.launch(
        page, service, prevent_thread_lock=True, quiet=True, server_name="127.0.0.1"
    )
    yield url
    page.close(verbose=False)


# Gradio leaves event loops to the collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_the_lessons_need_no_model(empty: str, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(empty)
    first = page.locator("#learn-figure-1-1-plot .heatmaplayer image")
    for _ in range(3):  # a click that comes before Gradio has wired its events is lost
        open_tab(page, "Learn")
        with suppress(PlaywrightError):
            first.wait_for(timeout=10_000)
            break
        open_tab(page, "Results")
    expect(first).to_be_visible()
    expect(page.locator("#learn-figure-6-1-plot .barlayer")).to_be_visible()
    page.close()
