"""Units of work: batches of questions with the settings that have not answered them yet."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from rotatek.evaluation.journal import setting_id
from rotatek.evaluation.suite import Item
from rotatek.evaluation.tables import Taken, asked
from rotatek.methods.settings import Settings

WINDOW: Final = 4  # batches among which questions are sorted by the size of their pictures


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


Wanted = Sequence[tuple[Settings, Taken]]
Todo = Sequence[tuple[Item, list[Settings]]]  # settings that have not answered a question


def size(units: Iterable[Unit]) -> int:
    """How many answers there are to give."""
    return sum(unit.answers for unit in units)


def missing(items: Iterable[Item], wanted: Wanted, answered: Collection[tuple[str, str]]) -> Todo:
    """Unanswered questions, spread over categories, each with the settings that have not answered
    it.

    Args:
        items: every question.
        wanted: settings, and which questions they are asked.
        answered: (setting, item) that a journal holds.
    """
    todo: list[tuple[Item, list[Settings]]] = []
    every = list(items)
    takes = {scope: {item.name for item in asked(scope, every)} for _, scope in wanted}
    for item in _by_turns(every):
        owed = dict.fromkeys(
            settings
            for settings, scope in wanted
            if item.name in takes[scope] and (setting_id(settings), item.name) not in answered
        )
        if owed:
            todo.append((item, list(owed)))
    return todo


def of_part(todo: Todo, items: Sequence[Item], wanted: Wanted, number: int, parts: int) -> Todo:
    """The share of one part of a run, whatever has been answered before.

    Short questions are divided by picture, equally in each kind, so that a picture is prepared
    once. Every part asks all whole pages, but only under its own settings: decode time grows with
    the number of settings and hardly with the number of pages, and a page's answer takes hundreds
    of steps.

    Args:
        todo: of `missing`.
        items: every question.
        wanted: settings, and which questions they are asked.
        number: of the part, from 0.
        parts: how many there are.
    """
    alike = sorted(items, key=lambda item: item.category)
    pictures = set(list(dict.fromkeys(item.document for item in alike))[number::parts])
    settings = dict.fromkeys(one for one, _ in sorted(wanted, key=_scope))
    under = set(list(settings)[number::parts])
    mine = []
    for item, owed in todo:
        if item.long:
            owed = [one for one in owed if one in under]
        elif item.document not in pictures:
            continue
        if owed:
            mine.append((item, owed))
    return mine


def _scope(pair: tuple[Settings, Taken]) -> str:
    """A scope's word; a setting whose questions are named is in the scope "all"."""
    return pair[1] if isinstance(pair[1], str) else "all"


def batches(
    todo: Todo,
    batch: int,
    size: Callable[[Item], Any] | None = None,
) -> Iterator[Unit]:
    """What is missing in batches, the kinds of question by turns.

    A batch has all its answers before the next begins, so a run cut short leaves questions that are
    complete, and about as large a share of each kind.

    Args:
        todo: of `missing`.
        batch: questions at once, at most.
        size: of a question's picture; a batch has alike ones, which need little padding.
    """
    placed = []
    for unit in _alike(todo):
        many = -(-len(unit.items) // batch)
        cut = [Unit(some, unit.owed) for some in _alike_in_size(unit.items, many, size)]
        placed += [((place + 0.5) / len(cut), one) for place, one in enumerate(cut)]
    yield from (unit for _, unit in sorted(placed, key=lambda pair: pair[0]))


def even(things: Sequence[Any], parts: int) -> list[list[Any]]:
    """Cut into `parts` runs whose lengths differ by one at most."""
    bounds = [len(things) * part // parts for part in range(parts + 1)] if parts else []
    return [list(things[start:end]) for start, end in pairwise(bounds)]


def _by_turns(items: Sequence[Item]) -> list[Item]:
    """Categories side by side, each in its own order: any beginning holds as large a share."""
    sizes = Counter(item.category for item in items)
    seen: Counter[str] = Counter()
    places = []
    for item in items:
        seen[item.category] += 1
        places.append(seen[item.category] / sizes[item.category])
    order = sorted(range(len(items)), key=places.__getitem__)
    return [items[number] for number in order]


def _alike(todo: Todo) -> list[Unit]:
    """Questions of one length that the same settings have not answered; short ones first."""
    found: dict[tuple[bool, tuple[Settings, ...]], Unit] = {}
    for item, owed in todo:
        found.setdefault((item.long, tuple(owed)), Unit([], owed)).items.append(item)
    return [found[key] for key in sorted(found, key=lambda key: key[0])]


def _alike_in_size(
    items: Sequence[Item], many: int, size: Callable[[Item], Any] | None
) -> list[list[Item]]:
    """So many batches; of every `WINDOW` in a row each has pictures of a size, the middle first.

    A run cut short between them has asked about neither the small nor the large alone.
    """
    if size is None:
        return even(items, many)
    found = []
    windows = -(-many // WINDOW)
    for some, count in zip(even(items, windows), map(len, even(range(many), windows)), strict=True):
        cut = even(sorted(some, key=size), count)
        found += [cut.pop(len(cut) // 2) for _ in range(count)]
    return found
