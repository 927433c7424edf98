"""Texts of the page; failures leave nothing behind; what stands beside an answer."""

import time
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rotatek import Engine, Settings, open_image
from rotatek.engine.events import Answer, Event, Failed, Finished, Token
from rotatek.errors import UserError, WeightsMissing
from rotatek.inspect.doubt import UNSURE_NOTE
from rotatek.methods.settings import UNCOMPRESSED, titled
from rotatek.page.ask import answers
from rotatek.page.ask.answers import fidelity, words_of
from rotatek.page.ask.events import IN_TALK, AskEvents
from rotatek.page.page_context import PageContext
from rotatek.page.settings import values_of
from rotatek.paths import assets
from rotatek.service.model_list import Model, load_examples
from rotatek.service.service import Run, Service, start
from tests.fixtures import at_once
from tests.served import service_of

CHOSEN = Settings.of(tokens="fastv", keep_tokens=0.5, keep_channels=0.25)


class Tags(HTMLParser):
    """Every tag and attribute name of some HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {tag, *(name for name, _ in attrs)}


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


def test_a_crash_becomes_an_id_and_the_next_question_works(
    service: Service, image: Image.Image, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "/".join(["", "secret", "path"])

    class Breaking(Engine):
        def compare(self, *args: Any, **options: Any) -> Iterator[Event]:
            raise RuntimeError(secret)

    vlm = service.engine("tiny").vlm
    broken = service_of(Breaking(vlm))
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
    asked = AskEvents(site).ask(
        image=image, question="Which?", model="tiny", max_new_tokens=4, times=5,
        **values_of(CHOSEN),
    )  # fmt: skip
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
    at_once([lambda: crowd.engine("tiny")] * 4)
    assert built == ["where"]


# -- what stands beside an answer --------------------------------------------------------------


def test_what_is_unsure_or_was_cut_is_said_and_not_of_a_stopped_answer() -> None:
    example = load_examples(assets() / "examples")[0]
    run = start(titled(Settings(), []), np.asarray(open_image(example.image)), "?", "pocket")
    for title in run.columns:
        figures = {"kv_bytes": 480, "kv_bytes_full": 1000, "confidence": 0.3}
        run.take(Finished(title, "an answer", 4, 1.0, figures))
    for stopped, most in ((False, 4), (False, 5), (True, 4)):
        run.stopped, run.max_new_tokens = stopped, most
        assert answers.note(run) == ("" if stopped else UNSURE_NOTE)
        cut = answers.CUT_NOTE in answers.cards(run, on_cpu=False)["further"]
        assert cut == (most == 4 and not stopped)


# -- the one number of a column, and its words -------------------------------------------------

PIECES = [
    ["H", "a", "r", " ", "C", "a", "f", "", "é"],
    ["The", " total", " is", " £", "20", ".", "10"],
    [" ", "", "x", "\n\n", "y "],
    [],
]


@pytest.mark.parametrize("pieces", PIECES)
def test_words_are_the_answer_and_hold_every_token(pieces: list[str]) -> None:
    words = words_of(pieces)
    assert "".join(word.space + "".join(word.pieces) for word in words) == "".join(pieces)
    held = [token for word in words for token in range(word.first, word.last + 1)]
    assert held == list(range(len(pieces)))
    assert all(" " not in "".join(word.pieces) for word in words)


def test_fidelity_is_agreement_weighed_by_divergence() -> None:
    column = Answer("x", Settings())
    assert fidelity(column) is None
    for index, (differs, kl) in enumerate([(False, 0.0), (False, 0.5), (True, None)]):
        column.take(Token("x", index, index, "a", 1.0, differs, kl))
    assert fidelity(column) == pytest.approx((1 + np.exp(-0.5)) / 3)


def run_of(service: Service, image: Image.Image, settings: Settings) -> Run:
    *_, run = service.ask("tiny", image, "Which?", titled(settings, []), 4)
    return run


ASKED = Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=0.25)


def asking(
    site: PageContext, run: Run | None, image: Image.Image | None, **change: Any
) -> list[dict]:
    given: dict[str, Any] = {
        "run": run, "image": image, "question": "Which?", "session": "me", "model": "tiny",
        "max_new_tokens": 4, "times": 5,
    }  # fmt: skip
    return list(AskEvents(site).again(**(given | values_of(ASKED) | change)))


def test_a_slider_renews_an_answer_and_nothing_else(service: Service, image: Image.Image) -> None:
    site = PageContext(service)
    run = run_of(service, image, ASKED)
    assert asking(site, run, image)[-1]["run"].chosen.finished
    assert asking(site, None, image) == [] and asking(site, run, None) == []
    assert asking(site, run, image, question=" ") == []
    talk = run.next("And?", 4)
    (shown,) = asking(site, talk, image)
    assert IN_TALK in shown["status"] and "run" not in shown
