"""The questions of a picture in one training sequence: their choice, order and weights.

A visitor asks one thing first, so the first turn is drawn like the others, by need; and an answer
that an earlier turn contains is read from text, not from pixels.
"""

import random
from collections import Counter
from typing import Final

import numpy as np

from pocket.document import Question
from pocket.models import tokenizer
from pocket.models.tokenizer import Codec
from pocket.questions.templates import ABSENT

# How often a kind is asked for, where a document has it; by what the last weights got wrong.
NEED: Final = {
    "colour": 4.0, "highest": 3.2, "lowest": 3.6, "value": 2.8, "find": 3.3, "field": 2.0,
    "fact": 2.2, "list": 3.2, "cell": 2.4, "total": 2.4, "count": 2.0, "nth": 1.4, "reverse": 2.0,
    "ranking": 3.5, "compare": 2.6, "second": 2.8, "kind": 0.4, "yes_no": 0.4, "title": 0.7,
    "absent": 1.3,
}  # fmt: skip
HARDER: Final = {
    "highest": 3.0, "lowest": 3.0, "reverse": 1.5, "colour": 2.2, "value": 1.5, "cell": 1.5,
    "count": 1.5, "ranking": 1.3, "second": 3.0, "list": 1.3, "field": 1.3, "find": 1.5,
    "fact": 1.3, "compare": 2.5,
}  # fmt: skip
DENIED: Final = 0.75  # sequences with one unanswerable question, where a document has any
LEADS: Final = 0.3  # sequences that begin with the transcription ...
ENDS: Final = 0.65  # ... and of the rest those that end with it
FIRST: Final = 1.5  # the first turn counts for more ...
SAID: Final = 0.4  # ... and an answer that an earlier turn has said for less
LEAST: Final = 24  # tokens: in less room there is no turn
Row = tuple[np.ndarray, np.ndarray, np.ndarray]


def pack(
    rng: random.Random,
    questions: list[Question],
    length: int,
    alone: bool = False,
    codec: Codec = tokenizer,
) -> Row:
    """As many turns as fit into a sequence.

    An answer of n tokens counts about sqrt(n): a long page does not drown the short answers.

    Args:
        rng: Says which, and in which order.
        questions: The document's.
        length: Tokens of the sequence.
        alone: Whether each turn is written as a first one; `models.forward` hides them apart.
        codec: Makes token ids of words; bytes, unless another model is trained.

    Returns:
        Text int64 [length], labels (-1 where there is no loss) and float32 weights, as long.
    """
    text = np.full(length, codec.PAD, np.int64)
    labels = np.full(length, -1, np.int64)
    weights = np.zeros(length, np.float32)
    at = 0
    for question, worth in chosen(rng, questions, length, codec):
        head = codec.question_ids(question.text, first=alone or at == 0)
        answer = codec.answer_ids(question.answer)
        end, start = at + len(head) + len(answer), at + len(head) - 1
        text[at:end] = head + answer
        labels[start : end - 1] = answer
        weight = worth * len(answer) ** -0.5 * HARDER.get(question.kind, 1.0)
        weights[start : end - 1] = weight
        weights[start : start + 2] = 2 * weight  # where the decision falls; the rest is copying
        at = end
    return text, labels, weights


def chosen(
    rng: random.Random, questions: list[Question], length: int, codec: Codec = tokenizer
) -> list[tuple[Question, float]]:
    """The turns that fit into `length` tokens, in their order, and what each is worth."""
    turns, page = shuffled(rng, questions), None
    pages = [q for q in questions if q.kind == "transcribe" and _cost(q, codec, True) <= length]
    if pages:
        pages.sort(key=lambda q: -len(q.answer))  # the whole page, before a part of it
        page = pages[0] if rng.random() < 0.7 else rng.choice(pages)
        if rng.random() < LEADS:
            turns, page = [page, *turns], None
        elif rng.random() > ENDS:
            page = None
    taken = _fitting(turns, length - (_cost(page, codec) if page else 0), codec)
    return [*taken, (page, 1.0 if taken else FIRST)] if page else taken


def _fitting(turns: list[Question], room: int, codec: Codec) -> list[tuple[Question, float]]:
    """Those of `turns` that fit into `room` tokens; what has been said already comes last."""
    taken, late, said = list[tuple[Question, float]](), list[Question](), ""
    for question in turns:
        if len(question.answer) > 2 and question.answer in said:
            late.append(question)
        elif (cost := _cost(question, codec, not taken)) <= room:
            taken.append((question, 1.0 if taken else FIRST))
            said, room = f"{said}\n{question.answer}", room - cost
            if room < LEAST:
                return taken
    for question in late:
        if (cost := _cost(question, codec)) <= room:
            taken.append((question, SAID))
            room -= cost
    return taken


def _cost(question: Question, codec: Codec, first: bool = False) -> int:
    """Tokens of a turn."""
    asked, said = codec.question_ids(question.text, first), codec.answer_ids(question.answer)
    return len(asked) + len(said)


def shuffled(rng: random.Random, questions: list[Question]) -> list[Question]:
    """All but the transcriptions, drawn one after the other by need, most unanswerables left out.

    The more questions of a kind a document has, the less each of them is needed.
    """
    rest = [q for q in questions if q.kind != "transcribe"]
    denied = [q for q in rest if q.answer == ABSENT]
    asked = [q for q in rest if q.answer != ABSENT]
    if denied and rng.random() < DENIED:
        asked.append(rng.choice(denied))
    seen: Counter[str] = Counter()
    places: list[tuple[float, int]] = []
    for i in rng.sample(range(len(asked)), len(asked)):
        kind = asked[i].kind
        seen[kind] += 1
        places.append((rng.random() ** (seen[kind] / NEED.get(kind, 1.0)), i))
    return [asked[i] for _, i in sorted(places, reverse=True)]
