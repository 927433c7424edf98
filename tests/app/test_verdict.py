"""The one sentence and the one number of a column, and its words."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from rotatek.engine.answer import Answer
from rotatek.engine.events import Token
from rotatek.methods.columns import titled
from rotatek.methods.settings import Settings
from rotatek.page.ask.card import compare, fidelity, words_of
from rotatek.page.ask.events import IN_TALK, AskEvents
from rotatek.page.page_context import PageContext
from rotatek.page.settings import values_of
from rotatek.service.run import Run
from rotatek.service.service import Service

SPELLINGS = [
    ("Harbour Café", "harbour cafe", "different"),
    ("Harbour Café", "HARBOUR  café.", "spelling"),
    ("20.10", "20.10 ", "same"),
    ("1,204", "1.204", "different"),
    ("£20.10", "20.10", "different"),
    ("-5", "5", "different"),
    ("Open: Monday", "open Monday!", "spelling"),
    ("", "", "same"),
]


@pytest.mark.parametrize("one,other,expected", SPELLINGS)
def test_spelling_is_case_space_and_punctuation_outside_numbers(
    one: str, other: str, expected: str
) -> None:
    assert compare(one, other) == expected == compare(other, one)


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


CHOSEN = Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=0.25)


def asking(
    site: PageContext, run: Run | None, image: Image.Image | None, **change: Any
) -> list[dict]:
    given: dict[str, Any] = {
        "run": run, "image": image, "question": "Which?", "session": "me", "model": "tiny",
        "max_new_tokens": 4, "times": 5,
    }  # fmt: skip
    return list(AskEvents(site).again(**(given | values_of(CHOSEN) | change)))


def test_a_slider_renews_an_answer_and_nothing_else(service: Service, image: Image.Image) -> None:
    site = PageContext(service)
    run = run_of(service, image, CHOSEN)
    assert asking(site, run, image)[-1]["run"].chosen.finished
    assert asking(site, None, image) == [] and asking(site, run, None) == []
    assert asking(site, run, image, question=" ") == []
    talk = run.next("And?", 4)
    (shown,) = asking(site, talk, image)
    assert IN_TALK in shown["status"] and "run" not in shown
