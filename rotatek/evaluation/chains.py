"""Second questions: each picture's questions in a row, on the cache that the first one left.

Compression happens at the end of the prompt, whose own attention reads full Keys: the first answer
token is the same under every channel method. What a later question reads is the compressed cache.
So a picture's first question opens a conversation, and its other questions follow in it. A neutral
opening asks for nothing in particular: then no weight of a query points to what is asked later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rotatek.evaluation.suite import Item

FIRST, SECOND, NEUTRAL = "first", "second", "neutral"
ASKS: Final = (FIRST, SECOND, NEUTRAL)
OPENING: Final = "opening"  # of cells: the first questions of conversations
NEUTRAL_QUESTION: Final = "What kind of page is this?"
NEUTRAL_TOKENS: Final = 16  # of its answer, which is not to write down what is asked later


@dataclass(frozen=True)
class Chain(Item):
    """A picture's questions in a row, asked as one item: `question` opens it.

    Attributes:
        name: of the last question, which is answered when all are.
        opening: the first question where it is one of the suite's.
        later: the questions that follow.
    """

    opening: Item | None = None
    later: tuple[Item, ...] = ()


def chains(items: Sequence[Item], ask: str) -> list[Chain]:
    """One chain a picture that has a question to follow; whole pages are asked last.

    Args:
        items: a suite's questions.
        ask: `SECOND` or `NEUTRAL`.
    """
    by_document: dict[int, list[Item]] = {}
    for item in items:
        by_document.setdefault(item.document, []).append(item)
    made = []
    for document, mine in by_document.items():
        mine.sort(key=lambda item: item.long)
        opening = mine[0] if ask == SECOND else None
        later = tuple(mine[1:] if ask == SECOND else mine)
        if not later or (opening is not None and opening.long):
            continue
        question = NEUTRAL_QUESTION if opening is None else opening.question
        last = later[-1]
        made.append(Chain(
            last.name, document, last.category, question, (), "exact_match",
            any(item.long for item in later), opening, later,
        ))  # fmt: skip
    return made


def counted(items: Sequence[Item], ask: str) -> Mapping[str, list[Item]]:
    """Questions by what their cells say in `ask`: all of them, or those that follow and that open.

    Args:
        items: a suite's questions.
        ask: one of `ASKS`.
    """
    if ask == FIRST:
        return {FIRST: list(items)}
    made = chains(items, ask)
    opened = [chain.opening for chain in made if chain.opening is not None]
    found = {ask: [item for chain in made for item in chain.later]}
    return found | ({OPENING: opened} if opened else {})


def answered_by(item: Item) -> tuple[Item | None, ...]:
    """The question that each turn answers: the item itself, or every question of a chain.

    None is a neutral opening, whose answer is not scored.
    """
    return (item.opening, *item.later) if isinstance(item, Chain) else (item,)
