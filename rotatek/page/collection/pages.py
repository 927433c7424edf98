"""The pages of each visitor, within bounds: files become pages, pictures as they are and PDFs page
by page, each read once."""

import io
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from PIL import Image

from rotatek import errors
from rotatek.bridge.attention import StopFlag
from rotatek.engine.engine import Engine
from rotatek.methods.settings import Settings
from rotatek.page.markup import as_uri
from rotatek.pictures import Answer, Picture, Pictures
from rotatek.pictures.indexing import pages_in

IDLE_S: Final = 1_800.0  # after which a collection is freed
SMALL: Final = 144  # pixels of a thumbnail's longer side


@dataclass(frozen=True)
class Bounds:
    """What one visitor's collection may take: pages and their bytes, caches included, and the
    seconds of one reading or asking."""

    pages: int = 60
    bytes: int = 120_000_000
    seconds: float = 300.0


@dataclass
class CollectedPage:
    """What a visitor calls a page, its stored figures, its picture as it was read, and a small one
    as a data URI."""

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
    """One visitor's pages. pictures: their caches, in memory alone; None before the first page.
    bad: what could not be read, and why. work: held by what reads or asks."""

    pictures: Pictures | None = None
    model: str = ""
    settings: Settings = field(default_factory=Settings)
    pages: list[CollectedPage] = field(default_factory=list)
    bad: list[tuple[str, str]] = field(default_factory=list)
    asked: Question | None = None
    work: threading.Lock = field(default_factory=threading.Lock)
    closed: bool = False

    @property
    def cache_bytes(self) -> int:
        """Of pictures and caches."""
        return sum(len(page.png) + page.picture.cache_bytes for page in self.pages)

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of its pages' caches, uncompressed and as stored."""
        pictures = [page.picture for page in self.pages]
        return sum(p.full_bytes for p in pictures), sum(p.cache_bytes for p in pictures)

    @property
    def ranked(self) -> list[tuple[int, CollectedPage, Answer]]:
        """Answered pages with their numbers: by falling confidence, those with an error last."""
        found = [(n, page, page.answer) for n, page in enumerate(self.pages) if page.answer]
        return sorted(found, key=lambda one: (bool(one[2].error), -one[2].confidence))

    def close(self) -> None:
        """Free all of it."""
        self.closed = True
        if self.pictures is not None:
            self.pictures.close()
        self.pages, self.bad, self.asked = [], [], None


def prepare(collection: Collection, engine: Engine, model: str, settings: Settings) -> Pictures:
    """The `Pictures` that store a collection's pages, made for its first page.

    Raises:
        CollectionElsewhere: for an engine whose model is in another process.
        CollectionOfOtherSettings: where its pages are stored otherwise.
        UserError: for settings that cannot store a picture.
    """
    if type(engine) is not Engine:
        raise errors.CollectionElsewhere
    if collection.pictures is not None and not collection.pages:
        collection.pictures.close()
        collection.pictures = None
    if collection.pictures is None:
        collection.pictures = Pictures(engine, settings)
        collection.model, collection.settings = model, settings
    elif (collection.model, collection.settings) != (model, settings):
        raise errors.CollectionOfOtherSettings
    return collection.pictures


def read(
    collection: Collection, files: Sequence[str], bounds: Bounds, stop: StopFlag
) -> Iterator[str]:
    """Read files one page after another, and yield the label of each; what cannot be read is noted,
    and the others go on.

    Raises:
        CollectionFull, CollectionTooLong: at a bound; what was read stays.
        Stopped: where `stop` was set.
    """
    began = time.monotonic()
    for path in map(Path, files):
        for number, pages, found in pages_in(path):
            label = path.name if pages == 1 else f"{path.name}, page {number}"
            if stop.is_set() or collection.closed:
                raise errors.Stopped
            if time.monotonic() - began > bounds.seconds:
                raise errors.CollectionTooLong
            if isinstance(found, Exception):
                collection.bad.append((label, errors.public_message(found)))
            else:
                if len(collection.pages) >= bounds.pages or collection.cache_bytes > bounds.bytes:
                    raise errors.CollectionFull
                _add(collection, label, found, stop)
            yield label


def _add(collection: Collection, label: str, image: Image.Image, stop: StopFlag) -> None:
    """Read one page, unless it is here already."""
    assert collection.pictures is not None
    try:
        picture = collection.pictures.add(image, stop)
    except errors.Stopped:
        raise
    except Exception as error:
        collection.bad.append((label, errors.public_message(error)))
        return
    if all(page.picture.name != picture.name for page in collection.pages):
        png = io.BytesIO()
        image.save(png, "PNG", compress_level=1)
        page = CollectedPage(label, picture, png.getvalue(), as_uri(image, SMALL))
        collection.pages.append(page)
