"""Frames around a page: they answer their own questions, and questions they make unclear are
removed."""

import html
import random
import re
from dataclasses import replace

import pytest

from pocket.document import Question
from pocket.layouts.html import templates
from pocket.layouts.html.composed import composed
from pocket.layouts.html.frames import FRAMES, Frame, clear, framed
from pocket.layouts.style import pick_style
from pocket.questions.templates import ABSENT


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_says_what_it_is_asked_for(name: str) -> None:
    kinds = set()
    for seed in range(60):
        rng = random.Random(seed)
        frame = FRAMES[name](rng, pick_style(rng, 672, 560, fancy=0))
        shown = html.unescape(re.sub(r"<[^>]+>", "\n", frame.before + frame.after))
        for q in frame.questions:
            kinds.add(q.kind)
            parts = q.answer.split(", ") if q.kind == "list" else [q.answer]
            if q.kind != "count":
                assert all(part in shown for part in parts), q
        assert frame.inset[0] < 300 and frame.inset[1] < 200
    assert {"field", "find"} & kinds


@pytest.mark.parametrize("name", sorted(set(templates.TEMPLATES) - {"site"}))
def test_every_page_can_stand_in_a_frame(name: str) -> None:
    for seed in range(40):
        rng = random.Random(f"{name}/{seed}")
        style = pick_style(
            rng, *rng.choice(((308, 392), (448, 336), (784, 448), (896, 672))), fancy=0
        )
        body, questions = framed(templates.TEMPLATES[name], rng, style, rng.choice((1.0, 0.4)))
        assert body.count("<div") == body.count("</div") and questions


def test_a_framed_page_keeps_what_it_held() -> None:
    rng = random.Random(3)
    for seed in range(20):
        style = pick_style(random.Random(seed), 728, 560, fancy=0)
        body, questions = framed(templates.table, rng, style, 0.8)
        assert "<table" in body and body.count("<div") == body.count("</div")
        assert any(q.kind == "cell" for q in questions)
        assert not any(q.kind == "nth" for q in questions)


@pytest.mark.parametrize(
    "question,kept",
    [
        (Question("transcribe", "Transcribe the page.", "# A\n\nb"), False),
        (Question("transcribe", "Copy the table", "| a |\n| --- |\n| b |\n| c |"), True),
        (Question("absent", "What is the website?", ABSENT), False),
        (Question("fact", "What is the website?", "www.a.org"), True),
        (Question("absent", "What is the deposit?", ABSENT), True),
        (Question("yes_no", "Is there Settings?", "no"), False),
        (Question("nth", "Read the last point.", "b"), False),
        (Question("count", "How many lines are there?", "4"), False),
    ],
)
def test_a_question_that_the_frame_makes_unclear_is_left_out(
    question: Question, kept: bool
) -> None:
    frame = Frame("", "", (0, 0), [], ["Settings"], r"web|url")
    assert clear(question, [frame]) == kept
    assert clear(replace(question, kind="nth"), [frame]) is False


def test_a_page_of_several_parts_asks_what_one_part_answers() -> None:
    several = 0
    for seed in range(60):
        rng = random.Random(seed)
        style = pick_style(rng, *rng.choice(((448, 336), (784, 560), (1008, 616))), fancy=0)
        body, questions = composed(rng, style, 0.8)
        shown = html.unescape(re.sub(r"<[^>]+>", "\n", body))
        assert body.count("<div") == body.count("</div")
        texts = [q.text.lower().rstrip("?. ") for q in questions]
        assert len(set(texts)) == len(texts) and ABSENT not in {q.answer for q in questions}
        assert not {"title", "count", "transcribe", "nth", "list"} & {q.kind for q in questions}
        assert all(q.answer in shown for q in questions if q.kind in ("value", "cell"))
        several += len({q.kind == "fact" for q in questions}) > 1
    assert several > 30
