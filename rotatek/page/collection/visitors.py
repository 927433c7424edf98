"""The pages of each visitor, within bounds, freed when the tab closes."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from rotatek.methods.settings import Settings
from rotatek.pictures import Answer, Picture, Pictures

MOST: Final = 16  # collections of all visitors together; the one used least recently makes room
IDLE_S: Final = 1_800.0


@dataclass(frozen=True)
class Bounds:
    """What one visitor's collection may take.

    pages: that are held; bytes: of their pictures and caches; seconds: of one reading or asking.
    """

    pages: int = 60
    bytes: int = 120_000_000
    seconds: float = 300.0


@dataclass
class CollectedPage:
    """One page: what a visitor calls it, its stored figures, and its picture.

    png: the picture as it was read; thumbnail: a small one, as a data URI.
    """

    label: str
    picture: Picture
    png: bytes
    thumbnail: str
    answer: Answer | None = None


@dataclass
class Question:
    """The last question: its text, and the seconds that its answers took; afresh: the cost of
    reading one page again, with that page's label."""

    text: str
    tokens: int
    seconds: float = 0.0
    afresh: float | None = None
    of: str = ""


@dataclass
class Collection:
    """One visitor's pages.

    pictures: their caches, in memory alone; None before the first page. settings: how they are
    stored. bad: files and pages that could not be read, and why. work: held by what reads or asks.
    """

    pictures: Pictures | None = None
    model: str = ""
    settings: Settings = field(default_factory=Settings)
    pages: list[CollectedPage] = field(default_factory=list)
    bad: list[tuple[str, str]] = field(default_factory=list)
    asked: Question | None = None
    questions: int = 0  # that were asked
    work: threading.Lock = field(default_factory=threading.Lock)
    closed: bool = False

    @property
    def bytes(self) -> int:
        """Of pictures and caches."""
        return sum(len(page.png) + page.picture.cache_bytes for page in self.pages)

    def has(self, name: str) -> bool:
        """Whether a page of that name is here."""
        return any(page.picture.name == name for page in self.pages)

    def close(self) -> None:
        """Free all of it."""
        self.closed = True
        if self.pictures is not None:
            self.pictures.close()
        self.pages, self.bad, self.asked = [], [], None


class Collections:
    """Every visitor's collection, by the session that it belongs to.

    Args:
        most: of them.
        idle_s: after which an unused one is dropped.
    """

    def __init__(self, most: int = MOST, idle_s: float = IDLE_S) -> None:
        self.most, self.idle_s = most, idle_s
        self._held: OrderedDict[str, Collection] = OrderedDict()
        self._timers: dict[str, threading.Timer] = {}
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def of(self, session: str | None) -> Collection:
        """A visitor's own, an empty one at first; it counts as used now."""
        key, gone = session or "", list[Collection]()
        with self._guard:
            found = self._held.setdefault(key, Collection())
            self._held.move_to_end(key)
            self._wait(key)
            while len(self._held) > self.most:
                oldest, left = self._held.popitem(last=False)
                self._timers.pop(oldest).cancel()
                gone.append(left)
        for each in gone:
            each.close()
        return found

    def drop(self, session: str | None) -> None:
        """Free a visitor's collection."""
        key = session or ""
        with self._guard:
            found, timer = self._held.pop(key, None), self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if found is not None:
            found.close()

    def _wait(self, key: str) -> None:
        """Count a collection's idle time from now. The lock is held."""
        if key in self._timers:
            self._timers[key].cancel()
        timer = threading.Timer(self.idle_s, self.drop, (key,))
        timer.daemon = True
        timer.start()
        self._timers[key] = timer
