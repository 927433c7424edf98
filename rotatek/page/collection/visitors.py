"""The pages of each visitor, within bounds, freed when the tab closes."""

import threading
from dataclasses import dataclass, field
from typing import Final

from rotatek.methods.settings import Settings
from rotatek.pictures import Answer, Picture, Pictures

IDLE_S: Final = 1_800.0  # after which a collection is freed


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
    def cache_bytes(self) -> int:
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
