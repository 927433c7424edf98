"""Pieces of work: batches of questions with the settings that still owe them an answer."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from rotatek.evaluation.journal import setting_id
from rotatek.evaluation.suite import Item
from rotatek.evaluation.tables import Scope
from rotatek.settings import Settings


class Unit(NamedTuple):
    """Questions of one kind, and the settings under which they are asked."""

    items: list[Item]
    owed: list[Settings]

    @property
    def answers(self) -> int:
        """How many there are to give."""
        return len(self.items) * len(self.owed)

    @property
    def long(self) -> bool:
        """Whether whole pages are asked for."""
        return any(item.long for item in self.items)


Wanted = Sequence[tuple[Settings, Scope]]


def size(units: Iterable[Unit]) -> int:
    """How many answers there are to give."""
    return sum(unit.answers for unit in units)


def missing(
    items: Iterable[Item], wanted: Wanted, answered: Collection[tuple[str, str]]
) -> list[tuple[Item, list[Settings]]]:
    """Unanswered questions, pages last, each with the settings that still owe an answer.

    Args:
        items: every question.
        wanted: settings, and whether they are asked everything or pages alone.
        answered: (setting, item) that a journal holds.
    """
    todo = []
    for item in sorted(items, key=lambda item: (item.long, item.document)):
        owed = [
            settings
            for settings, scope in wanted
            if (scope == "all" or item.long) and (setting_id(settings), item.name) not in answered
        ]
        if owed:
            todo.append((item, owed))
    return todo


def batches(todo: Iterable[tuple[Item, list[Settings]]], batch: int, parts: int) -> Iterator[Unit]:
    """What is missing in batches, short questions first, pages last.

    A batch has all its answers before the next begins, so a run cut short leaves questions that are
    complete.

    Args:
        todo: of `missing`.
        batch: questions at once, at most.
        parts: jobs that will share the batches; there are as many for every one of them.
    """
    for unit in _alike(todo):
        yield from _cut(unit, batch, parts)


def even(things: Sequence[Any], parts: int) -> list[list[Any]]:
    """Cut into `parts` runs whose lengths differ by one at most."""
    bounds = [len(things) * part // parts for part in range(parts + 1)] if parts else []
    return [list(things[start:end]) for start, end in pairwise(bounds)]


def _alike(todo: Iterable[tuple[Item, list[Settings]]]) -> list[Unit]:
    """Neighbours of one length that owe the same settings."""
    found: list[Unit] = []
    for item, owed in todo:
        if found and found[-1].owed == owed and found[-1].long == item.long:
            found[-1].items.append(item)
        else:
            found.append(Unit([item], owed))
    return found


def _cut(unit: Unit, batch: int, parts: int) -> list[Unit]:
    """Batches of at most `batch`, as many for each part; of the settings, if questions are few."""
    items, owed = unit
    many = -(-len(items) // batch)
    if len(items) >= parts:
        many = min(len(items), -(-many // parts) * parts)
        return [Unit(some, owed) for some in even(items, many)]
    shares = even(owed, min(parts, len(owed)))
    return [Unit(some, share) for some in even(items, many) for share in shares]
