"""Questions of training: shares of kinds, few unanswerables, first turns like those of a
visitor."""

import random
from collections import Counter

import numpy as np
import pytest

from pocket.document import Question
from pocket.models import tokenizer
from pocket.models.config import text_length
from pocket.questions.templates import ABSENT
from pocket.training import data, packing
from pocket.training.data import draw_document

READ = ("field", "fact", "value", "cell", "total")


def asked() -> list[list[Question]]:
    """The turns of 600 training sequences, in their order."""
    out = []
    for i in range(300):
        _, (width, height), names = data.curriculum(random.Random(f"size/{i}"), 0.5)
        rng = random.Random(i)
        document = draw_document(rng, width, height, names, None)
        for _ in range(2):
            made = packing.chosen(rng, document.questions, text_length(width, height))
            out.append([q for q, _ in made])
    return out


@pytest.fixture(scope="module")
def sequences() -> list[list[Question]]:
    return asked()


def test_first_turns_ask_what_visitors_ask_and_seldom_for_what_is_not_there(
    sequences: list[list[Question]],
) -> None:
    first = Counter(turns[0].kind for turns in sequences if turns)
    n = sum(first.values())
    assert 0.1 < first["transcribe"] / n < 0.4
    assert sum(first[k] for k in READ) / n > 0.12
    assert (first["highest"] + first["lowest"]) / n > 0.07
    denied = sum(turns[0].answer == ABSENT for turns in sequences if turns)
    assert 0 < denied < 0.35 * (denied + sum(first[k] for k in READ))


def test_unanswerable_questions_are_few_and_one_in_a_sequence(
    sequences: list[list[Question]],
) -> None:
    denied = [sum(q.answer == ABSENT for q in turns) for turns in sequences]
    assert max(denied) == 1
    assert 0.015 < sum(denied) / sum(map(len, sequences)) < 0.075
    kinds = Counter(q.kind for turns in sequences for q in turns)
    assert len(kinds) >= 15 and kinds.most_common(1)[0][1] < 0.2 * sum(kinds.values())


def test_weak_kinds_come_before_easy_ones() -> None:
    made = [Question(k, f"{k} {i}?", f"{k} {i}") for k in ("lowest", "yes_no") for i in range(3)]
    first = Counter(packing.shuffled(random.Random(i), made)[0].kind for i in range(400))
    assert first["lowest"] > 4 * first["yes_no"] > 0


def test_what_an_earlier_turn_has_said_comes_last_and_counts_less() -> None:
    page = Question("transcribe", "Transcribe.", "Colour: amber\nPlace: Lund")
    others = [Question("field", "The colour?", "amber"), Question("count", "How many?", "2")]
    seen = set()
    for seed in range(60):
        made = packing.chosen(random.Random(seed), [page, *others], 600)
        order = [q.kind for q, _ in made]
        assert len(order) == len(set(order)) and {"field", "count"} <= set(order)
        worth = {q.kind: w for q, w in made}
        assert made[0][1] == packing.FIRST
        if order[0] == "transcribe":
            assert order == ["transcribe", "count", "field"]
            assert worth["field"] == packing.SAID < worth["count"]
        elif "transcribe" in order:
            assert order[-1] == "transcribe"
        seen.add(tuple(order))
    assert len(seen) == 5  # leading once; else two orders, with the page behind and without


def test_turns_keep_within_the_room_and_use_it() -> None:
    rng = random.Random(3)
    for seed in range(40):
        made = [
            Question("field", f"What is {i}?", "".join(rng.choices("abc", k=rng.randint(1, 60))))
            for i in range(30)
        ] + [Question("transcribe", "Read.", "abc " * rng.randint(10, 120))]
        text, labels, weights = packing.pack(random.Random(seed), made, 400)
        assert (
            len(text) == 400 and (labels[:-1][labels[:-1] >= 0] == text[1:][labels[:-1] >= 0]).all()
        )
        assert (text != tokenizer.PAD).sum() > 300
        ends = (labels == tokenizer.IM_END).sum()
        assert ends == len(packing.chosen(random.Random(seed), made, 400))
        assert ((labels >= 0) == (weights > 0)).all()


def test_a_stretched_picture_keeps_its_glyphs_on_their_ink() -> None:
    stretched = 0
    for seed in range(24):
        document = draw_document(random.Random(seed), 448, 392, ("signs",), None)
        assert document.image.size == (448, 392)
        pixels = np.asarray(document.image.convert("L"), np.int16)
        ink = [
            np.ptp(pixels[int(y) - 12 : int(y) + 12, int(x) - 9 : int(x) + 9]) > 30
            for _, x, y in document.glyphs
            if 12 <= x < 436 and 12 <= y < 380
        ]
        assert np.mean(ink) > 0.9
        rng = random.Random(seed)
        rng.getrandbits(48)
        stretched += rng.random() < data.STRETCHED_SHARE
    assert stretched >= 2
