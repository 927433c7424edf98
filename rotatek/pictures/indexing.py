"""Files and folders into a store: each picture and each page of a PDF is read once."""

import os
import stat
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from PIL import Image

from rotatek import errors
from rotatek.inputs.images import check_header, open_image
from rotatek.inputs.pdf import PdfFile, is_pdf
from rotatek.inputs.text_files import one_line
from rotatek.pictures.pictures import Picture, Pictures, Prepared
from rotatek.pictures.store import PictureStore

NAMED: Final = frozenset({".png", ".jpg", ".jpeg", ".webp", ".pdf"})
AHEAD: Final = 1  # pages that are kept while the model reads the next one
HEAD: Final = 4096  # bytes that tell a picture from something else
Item = TypeVar("Item")


@dataclass(frozen=True)
class IndexedPage:
    """The outcome of one page. number: from 1; pages: of its file; picture: None where it could not
    be read; error: why; fresh: whether it was read now."""

    path: Path
    number: int
    pages: int
    picture: Picture | None
    error: str = ""
    fresh: bool = False


def files_of(paths: Sequence[Path]) -> list[Path]:
    """The files to index: those named, and in folders every file that is a picture, a PDF, or named
    like one; a folder that cannot be opened stands for what is in it.

    Links to folders are not followed, and hidden files and folders are passed over. A file of
    several spellings is there once.
    """
    found: dict[str, Path] = {}

    def add(path: Path) -> None:
        found.setdefault(os.path.realpath(path), path)

    for path in paths:
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except PermissionError:
            is_folder = False  # said when it is read
        except (OSError, ValueError) as error:
            said = f"There is no file or folder {one_line(path.name)}. Check the name."
            raise errors.FileUnreadable(said) from error
        if not is_folder:
            add(path)
            continue
        for folder, below, names in os.walk(path, onerror=lambda e: add(Path(e.filename))):
            below[:] = sorted(name for name in below if not name.startswith("."))
            for one in (Path(folder) / name for name in sorted(names)):
                if not one.name.startswith(".") and _belongs(one):
                    add(one)
    return list(found.values())


def _belongs(path: Path) -> bool:
    """Whether a file of a folder is a picture or a PDF, or is called one."""
    if path.suffix.lower() in NAMED or is_pdf(path):
        return True
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            check_header(file.read(HEAD))
    except (errors.NotAnImage, errors.ImageMissing, OSError):
        return False
    except errors.UserError:
        pass  # a picture, though not one that can be read
    return True


def index(pictures: Pictures, files: Sequence[Path]) -> Iterator[IndexedPage]:
    """Read what is new or has changed; pages of a changed file that are in no other are forgotten.

    Args:
        pictures: with a folder.
        files: of `files_of`.

    Yields:
        every page, also those read before and those that cannot be read.

    Raises:
        StorageFull, StoreUnwritable: which end it, whatever the file.
    """
    names, store = list[str | None](), pictures.store  # names: of a file's pages
    assert store is not None

    def keep(
        page: IndexedPage, complete: Callable[[], Picture] | None, ends: os.stat_result | None
    ) -> IndexedPage:
        """Keep a page, and note its file behind the last one: all in one thread."""
        if complete is not None:
            count = pictures.counts["read"]
            try:
                picture = complete()
                page = replace(page, picture=picture, fresh=pictures.counts["read"] > count)
            except (errors.StorageFull, errors.StoreUnwritable):
                raise
            except errors.UserError as error:
                page = replace(page, error=error.message)
        if page.number == 1:
            names.clear()
        names.append(None if page.picture is None else page.picture.name)
        if ends is not None:
            gone = store.note_source(page.path, ends.st_size, ends.st_mtime_ns, names)
            pictures.forget(gone)  # of those that it had before
        return page

    waiting = deque[Future[IndexedPage]]()
    ahead = made_ahead(_opened(pictures, store, files))
    with ThreadPoolExecutor(1) as writer, closing(ahead) as opened:
        for page, ready, ends in opened:
            complete = None
            try:
                complete = None if ready is None else pictures.begin(ready)
            except errors.UserError as error:
                page = replace(page, error=error.message)
            waiting.append(writer.submit(keep, page, complete, ends))
            while len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def made_ahead(items: Generator[Item]) -> Generator[Item]:
    """The same items in order. A thread makes the next one while the caller works with one, so
    that two are held at most. What goes wrong in it is raised where that item would come."""
    with closing(items), ThreadPoolExecutor(1) as maker:
        coming = maker.submit(next, items, None)
        while (made := coming.result()) is not None:
            coming = maker.submit(next, items, None)
            yield made


def _opened(
    pictures: Pictures, store: PictureStore, files: Sequence[Path]
) -> Generator[tuple[IndexedPage, Prepared | None, os.stat_result | None]]:
    """Every page of every file; its prepared picture, where it is to be read; and with the last
    page of a file that is read, what the system said of it before."""
    for path in files:
        try:
            info = path.stat()
        except OSError:
            yield IndexedPage(path, 1, 1, None, errors.FileUnreadable.sentence), None, None
            continue
        noted, known = store.source(path), list[Picture | None]()
        if noted and (noted["size"], noted["time_ns"]) == (info.st_size, info.st_mtime_ns):
            known = [pictures.find(name) if name else None for name in noted["pages"]]
        if all(known):  # it has not changed, and all of it is there
            for number, picture in enumerate(known, 1):
                yield IndexedPage(path, number, len(known), picture), None, None
        for number, count, found in () if known and all(known) else pages_in(path):
            page, ready = IndexedPage(path, number, count, None), None
            try:
                if isinstance(found, errors.UserError):
                    raise found
                made = pictures.prepare(found)
                if isinstance(made, Prepared):
                    ready = made
                else:
                    page = replace(page, picture=made)
            except errors.UserError as error:
                page = replace(page, error=error.message)
            yield page, ready, info if number == count else None


def pages_in(path: Path) -> Iterator[tuple[int, int, Image.Image | errors.UserError]]:
    """Every page of a file: its number from 1, how many there are, and the picture of it, or why
    there is none."""
    try:
        if path.is_dir():
            raise errors.FolderUnreadable
        if not is_pdf(path):
            yield 1, 1, open_image(path)
            return
        with PdfFile(path) as file:
            for page in file:
                yield page.number, file.pages, page.image or page.error or errors.PdfDamaged()
    except errors.UserError as error:
        yield 1, 1, error


def labels_of(store: PictureStore) -> list[tuple[str, str]]:
    """Every page's label and name: indexed files in order, then the rest.

    A page of a PDF is called `FILE#NUMBER`, a picture without a file by its name. A file that is
    gone names no page that another one has: it was moved.
    """
    sources, here = store.indexed(), os.path.realpath(os.curdir)
    files = Counter(name for source in sources for name in {*source["pages"]})
    names, told = set(store.names()), []
    for source in sources:
        path, pages = Path(source["path"]), source["pages"]
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        for number, name in enumerate(pages, 1):
            if name in names and (files[name] == 1 or path.exists()):
                told.append((f"{shown}#{number}" if len(pages) > 1 else str(shown), name))
    left = names - {name for _, name in told}
    return told + [(name, name) for name in sorted(left)]
