"""Files and folders into a store: each picture and each page of a PDF is read once."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from PIL import Image

from rotatek.bridge.attention import StopFlag
from rotatek.errors import (
    FileUnreadable,
    NotAnImage,
    PdfDamaged,
    Stopped,
    StorageFull,
    StoreUnwritable,
    UserError,
)
from rotatek.inputs.pdf import PdfFile, is_pdf
from rotatek.inputs.request import check_header, open_image
from rotatek.pictures.pictures import Picture, Pictures, Prepared
from rotatek.pictures.store import PictureStore

NAMED: Final = frozenset({".png", ".jpg", ".jpeg", ".webp", ".pdf"})
ENDING: Final = (StorageFull, StoreUnwritable, Stopped)  # what ends an index, whatever the file
AHEAD: Final = 2  # calls that wait while the model reads: a page's, and its file's
HEAD: Final = 4096  # bytes that tell a picture from something else
Item = TypeVar("Item")


@dataclass(frozen=True)
class IndexedPage:
    """The outcome of one page.

    path: of its file; number: of the page, from 1; pages: of the file; picture: None where it could
    not be read; error: why; fresh: whether it was read now.
    """

    path: Path
    number: int
    pages: int
    picture: Picture | None
    error: str = ""
    fresh: bool = False


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files to index: those named, and in folders every file that is a picture, a PDF, or named
    like one.

    Links to folders are not followed, and hidden files and folders are passed over.

    Raises:
        FileUnreadable: for a path that there is not.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise FileUnreadable(f"There is no file or folder {path.name}. Check the name.")
        if not path.is_dir():
            found[path] = None
            continue
        for folder, below, names in os.walk(path):
            below[:] = sorted(name for name in below if not name.startswith("."))
            for name in sorted(names):
                one = Path(folder) / name
                if not name.startswith(".") and _belongs(one):
                    found[one] = None
    return list(found)


def _belongs(path: Path) -> bool:
    """Whether a file of a folder is a picture or a PDF, or is called one."""
    if path.suffix.lower() in NAMED or is_pdf(path):
        return True
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            check_header(file.read(HEAD))
    except (NotAnImage, OSError):
        return False
    except UserError as error:  # a picture, though not one that can be read
        return error.code not in ("image_missing",)
    return True


def index(
    pictures: Pictures, files: Sequence[Path], stop: StopFlag | None = None
) -> Iterator[IndexedPage]:
    """Read what is new or has changed; pages of a changed file that are in no other are forgotten.

    Args:
        pictures: with a folder.
        files: of `files_of`.
        stop: ends it between two pages once it is set.

    Yields:
        every page, also those read before and those that cannot be read.

    Raises:
        StorageFull, StoreUnwritable: where nothing more can be kept.
        Stopped: where `stop` was set within a page.
    """
    waiting: deque[Future[IndexedPage | None]] = deque()
    with ThreadPoolExecutor(1) as writer, closing(_read(pictures, files, stop)) as reading:
        while True:
            ended: Exception | None = None
            try:
                job = next(reading, None)
            except ENDING as error:  # what was read before is kept, and said, first
                job, ended = None, error
            if job is not None:
                waiting.append(writer.submit(job))
            while len(waiting) > (AHEAD if job is not None else 0):
                page = waiting.popleft().result()
                if page is not None:
                    yield page
            if ended is not None:
                raise ended
            if job is None:
                return


def made_ahead(items: Generator[Item]) -> Generator[Item]:
    """The same items in order. A thread makes the next one while the caller works with one, so
    that two are held at most. What goes wrong in it is raised where that item would come."""
    with closing(items), ThreadPoolExecutor(1) as maker:
        coming = maker.submit(list, islice(items, 1))
        while made := coming.result():
            coming = maker.submit(list, islice(items, 1))
            yield from made


def _read(
    pictures: Pictures, files: Sequence[Path], stop: StopFlag | None
) -> Generator[Callable[[], IndexedPage | None]]:
    """The model reads page after page; each call that comes keeps one, or completes a file. They
    are made in order, in one thread. In another one files are opened, and the next page's pixels
    prepared."""
    begun, pages = set[str](), list[IndexedPage]()
    with closing(made_ahead(_opened(pictures, files, stop))) as opened:
        for page, found, ends in opened:
            if stop is not None and stop.is_set():
                return
            if found is None:
                yield partial(replace, page)
                continue
            yield _begun(pictures, page, found, stop, begun, pages)
            if ends is not None:
                yield partial(_note, pictures, ends, pages)
                pages = []


@dataclass(frozen=True)
class _File:
    """A file that was opened; before: what is noted of it, if anything."""

    path: Path
    info: os.stat_result
    before: dict | None


class _Opened(NamedTuple):
    """A page, and its prepared picture, or why there is none; nothing where nothing is to be read.
    ends: its file, if this is its last page."""

    page: IndexedPage
    found: Prepared | UserError | None = None
    ends: _File | None = None


def _opened(pictures: Pictures, files: Sequence[Path], stop: StopFlag | None) -> Generator[_Opened]:
    """Every page of every file."""
    store = pictures.store
    assert store is not None
    for path in files:
        if stop is not None and stop.is_set():
            return
        try:
            info = path.stat()
        except OSError:
            yield _Opened(IndexedPage(path, 1, 1, None, FileUnreadable.sentence))
            continue
        file = _File(path, info, store.source(path))
        known = _known(pictures, file)
        for number, picture in enumerate(known, 1):
            yield _Opened(IndexedPage(path, number, len(known), picture))
        if known:
            continue
        for number, count, found in pages_in(path):
            if stop is not None and stop.is_set():
                return
            page = IndexedPage(path, number, count, None)
            yield _Opened(page, _prepared(pictures, found), file if number == count else None)


def _prepared(pictures: Pictures, found: Image.Image | UserError) -> Prepared | UserError:
    """A page's picture for `begin`, or why there is none."""
    if isinstance(found, UserError):
        return found
    try:
        return pictures.prepare(found)
    except ENDING:
        raise
    except UserError as error:
        return error


def _begun(
    pictures: Pictures,
    page: IndexedPage,
    found: Prepared | UserError,
    stop: StopFlag | None,
    begun: set[str],
    pages: list[IndexedPage],
) -> Callable[[], IndexedPage]:
    """Read one page, unless it was read before; the call that is returned keeps it.

    Args:
        pictures: with a folder.
        page: which one.
        found: what `Pictures.begin` takes, or why there is none.
        stop: ends it within the page.
        begun: names of pictures that this index reads; grows.
        pages: of its file; the call adds the page.
    """

    def ended(page: IndexedPage) -> IndexedPage:
        pages.append(page)
        return page

    try:
        if isinstance(found, UserError):
            raise found
        complete = pictures.begin(found, stop)
    except ENDING:
        raise
    except UserError as error:
        return partial(ended, replace(page, error=error.message))
    name, twice = found.name, found.name in begun
    begun.add(name)

    def kept() -> IndexedPage:
        count = pictures.counts["read"]
        try:
            picture = (pictures.find(name) if twice else None) or complete()
        except ENDING:
            raise
        except UserError as error:
            return ended(replace(page, error=error.message))
        return ended(replace(page, picture=picture, fresh=pictures.counts["read"] > count))

    return kept


def _note(pictures: Pictures, file: _File, pages: Sequence[IndexedPage]) -> None:
    """Note a file whose pages are all kept, and forget those that no indexed file has any more."""
    store, names = pictures.store, [page.picture.name for page in pages if page.picture]
    if store is None or not names or len(names) < len(pages):
        return
    store.note_source(file.path, file.info.st_size, file.info.st_mtime_ns, names)
    if file.before is not None:
        held = {name for source in store.indexed() for name in source["pages"]}
        pictures.forget(sorted(set(file.before["pages"]) - set(names) - held))


def _known(pictures: Pictures, file: _File) -> list[Picture]:
    """The pages of a file that has not changed, if all of them are there; else none."""
    noted, now = file.before, (file.info.st_size, file.info.st_mtime_ns)
    if noted is None or (noted.get("size"), noted.get("time_ns")) != now:
        return []
    found = [pictures.find(name) for name in noted["pages"]]
    here = [one for one in found if one is not None]
    return here if len(here) == len(found) else []


def pages_in(path: Path) -> Iterator[tuple[int, int, Image.Image | UserError]]:
    """Every page of a file: its number from 1, how many there are, and the picture of it, or why
    there is none."""
    try:
        if not is_pdf(path):
            yield 1, 1, open_image(path)
            return
        with PdfFile(path) as file:
            for page in file:
                yield page.number, file.pages, page.image or page.error or PdfDamaged()
    except UserError as error:
        yield 1, 1, error


def labels_of(store: PictureStore) -> list[tuple[str, str]]:
    """Every page's label and name: indexed files in order, then the rest.

    A page of a PDF is called `FILE#NUMBER`, a picture without a file by its name.
    """
    names, told, here = set(store.names()), [], Path.cwd()
    for source in store.indexed():
        path = Path(source["path"])
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        many = len(source["pages"]) > 1
        for number, name in enumerate(source["pages"], 1):
            if name in names:
                told.append((f"{shown}#{number}" if many else str(shown), name))
    left = names - {name for _, name in told}
    return told + [(name, name) for name in sorted(left)]
