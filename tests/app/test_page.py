"""Texts and drawings of the page; Stop and failures leave nothing behind."""

import threading
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rotatek.engine.engine import Engine
from rotatek.engine.events import Event, Failed, Finished, Token
from rotatek.errors import UserError, WeightsMissing
from rotatek.methods.columns import UNCOMPRESSED, titled
from rotatek.methods.settings import Settings
from rotatek.page.ask import answers
from rotatek.page.ask.events import AskEvents
from rotatek.page.form import values_of
from rotatek.page.page_context import PageContext
from rotatek.service.model_list import Model, models_on_offer
from rotatek.service.run import Run, start
from rotatek.service.service import Service
from tests.fixtures import present

CHOSEN = Settings.of(tokens="fastv", keep_tokens=0.5, keep_channels=0.25)


class Tags(HTMLParser):
    """Every tag and attribute name of some HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {tag, *(name for name, _ in attrs)}


@pytest.fixture(scope="module")
def image() -> Image.Image:
    noise = np.random.default_rng(3).integers(0, 255, (4, 6, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((168, 112))


@pytest.fixture(scope="module")
def run(service: Service, image: Image.Image) -> Run:
    *_, last = service.ask(
        "tiny", image, "Which?", titled(CHOSEN, [CHOSEN.with_channels("think")]), 6
    )
    return last


def test_a_run_grows_and_is_complete_at_the_end(run: Run) -> None:
    assert list(run.columns) == [UNCOMPRESSED, "FastV + RotateK", "FastV + ThinK"]
    assert [column.method.name for column in run.columns.values()] == ["full", "rotatek", "think"]
    for column in run.columns.values():
        assert column.finished is not None and column.failure is None
        assert column.answer.strip() == column.finished.answer.rstrip("\ufffd").strip()
    assert present(run.chosen.kept).sum() == 12 and run.trace is not None


def test_nothing_of_an_answer_becomes_markup(image: Image.Image) -> None:
    nasty = "<img src=x onerror=alert(1)><script>alert(1)</script>\"' &amp; </div>"
    run = start(titled(CHOSEN, []), np.asarray(image), nasty)
    for title in run.columns:
        run.take(Token(title, 0, 1, nasty, 1.0, False))
        run.take(Token(title, 1, 2, nasty, 1.0, title != UNCOMPRESSED))
    html = "".join(answers.cards(run, on_cpu=True).values())
    assert "<img" not in html and "<script" not in html and "alert(1)" in html
    assert not {"img", "script", "onerror", "src"} & Tags(html).names
    assert html.count("<mark") == 1
    run.take(Failed(UserError(nasty)))
    failed = [*answers.cards(run, on_cpu=False).values(), answers.status(run)]
    assert "<img" not in "".join(failed)


@pytest.mark.alone
def test_stop_ends_within_a_token_and_forgets_the_visitor(
    service: Service, image: Image.Image
) -> None:
    running = service.ask("tiny", image, "Go on", titled(CHOSEN, []), 512, "visitor")
    for run in running:
        if run.chosen.pieces:
            break
    service.stop("somebody else")
    said = len(run.chosen.pieces)
    service.stop("visitor")
    started = time.monotonic()
    *_, run = running
    assert run.stopped and len(run.chosen.pieces) <= said + 2
    assert time.monotonic() - started < 2.0
    assert not service._stops
    assert "Stopped." in answers.status(run)


def test_a_crash_becomes_an_id_and_the_next_question_works(
    service: Service, image: Image.Image, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "/".join(["", "secret", "path"])

    class Breaking(Engine):
        def compare(self, *args: Any, **options: Any) -> Iterator[Event]:
            raise RuntimeError(secret)

    vlm = service.engine("tiny").vlm
    broken = Service([Model("tiny", "Tiny", "nowhere")], lambda source: Breaking(vlm))
    broken._engines["tiny"] = Breaking(vlm)
    request = {"image": image, "question": "Which?", "model": "tiny", "max_new_tokens": 4}
    asked = AskEvents(PageContext(broken)).ask(
        **request, times=5, session="v", **values_of(Settings())
    )
    with pytest.warns(UserWarning, match=r"^Something went wrong \(id [0-9a-f]{4}\)$"):
        *_, last = asked
    assert last["ask"]["interactive"] is True and last["stop"]["interactive"] is False
    assert "id " in caplog.text and secret not in caplog.text
    assert not broken._stops
    good = list(service.ask("tiny", image, "Which?", titled(CHOSEN, []), 2))[-1]
    assert isinstance(good.chosen.finished, Finished)


def test_missing_weights_are_a_sentence_in_the_log_and_on_the_page(
    image: Image.Image, caplog: pytest.LogCaptureFixture
) -> None:
    def make(source: str) -> Engine:
        raise WeightsMissing

    site = PageContext(Service([Model("tiny", "Tiny", "nowhere")], make))
    site.prepare()
    assert f"not ready: {WeightsMissing.sentence}" in caplog.text
    asked = AskEvents(site).ask(image, "Which?", "tiny", 4, 5, **values_of(CHOSEN))
    with pytest.warns(UserWarning, match="weights were not found"):
        *_, last = asked
    assert "weights were not found" in last["status"]


def test_models_load_once_even_when_many_ask(service: Service) -> None:
    built: list[str] = []
    vlm = service.engine("tiny").vlm

    def make(source: str) -> Engine:
        built.append(source)
        time.sleep(0.05)
        return Engine(vlm)

    crowd = Service([Model("tiny", "Tiny", "where")], make)
    threads = [threading.Thread(target=crowd.engine, args=("tiny",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == ["where"]


def test_a_folder_is_offered_by_name_and_never_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTATEK_MODELS", "pocket, /srv/secret/My-Model")
    pocket, folder = models_on_offer()
    assert pocket.name == "pocket" and pocket.label != "pocket"
    assert (folder.name, folder.label) == ("My-Model", "My-Model")
    assert folder.source == "/srv/secret/My-Model"
