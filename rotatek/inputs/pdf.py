"""Reads a PDF file, page by page, as checked pictures.

Pages are drawn by PDFium in a process of their own, with limits on its memory and on the time of
each page: a page that makes it crash, grow or hang is lost, and nothing else.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from PIL import Image

from rotatek import errors
from rotatek.inputs import pdf_drawing
from rotatek.inputs.images import format_of, open_image, read_file

MAX_PDF_BYTES: Final = pdf_drawing.MAX_BYTES
PAGES_OF_A_QUESTION: Final = 8
PAGE_S: Final = 20.0  # to draw one page
OPEN_S: Final = 60.0  # to start the process and open the file
RESTARTS: Final = 3  # of a process that had to be ended, in one file
_SIGN: Final = b"%PDF-"
_SIGN_WITHIN: Final = 1024  # bytes from the start: readers allow so much before it


class PdfPage(NamedTuple):
    """One page: its number from 1, and its picture; or why there is none."""

    number: int
    image: Image.Image | None
    error: errors.UserError | None = None


def can_be_read() -> bool:
    """Whether this installation reads PDF files."""
    return find_spec("pypdfium2") is not None


def is_pdf(path: os.PathLike[str] | bytes) -> bool:
    """Whether a file's content says that it is a PDF; False for one that cannot be read."""
    if isinstance(path, bytes):
        return _SIGN in path[:_SIGN_WITHIN] and format_of(path) is None
    try:
        if not Path(path).is_file():
            return False
        with open(path, "rb") as file:
            return _SIGN in file.read(_SIGN_WITHIN)
    except (OSError, ValueError):
        return False


class PdfFile:
    """An open PDF; a context manager, over its pages an iterator.

    Args:
        data: a file's bytes, or a path (an `os.PathLike`).

    Attributes:
        pages: their number.

    Raises:
        UserError: in a sentence that says what to change.
    """

    def __init__(self, data: bytes | os.PathLike[str]) -> None:
        if not can_be_read():
            raise errors.PdfNotInstalled
        if isinstance(data, os.PathLike):
            data = read_file(data, MAX_PDF_BYTES, errors.PdfTooLarge)
        if len(data) > MAX_PDF_BYTES:
            raise errors.PdfTooLarge
        if _SIGN not in data[:_SIGN_WITHIN]:
            raise errors.PdfDamaged
        self._data = bytes(data)
        self._process, self.pages = self._start(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._process)

    def __iter__(self) -> Iterator[PdfPage]:
        restarts = RESTARTS
        for number in range(1, self.pages + 1):
            page = self._next_page(number)
            yield page
            if isinstance(page.error, errors.PdfPageTooLong) and restarts and number < self.pages:
                restarts -= 1
                with contextlib.suppress(errors.UserError):
                    self._process, _ = self._start(number)

    def _start(self, first: int) -> tuple[subprocess.Popen[bytes], int]:
        """A process that draws pages from number `first`, from 0; and how many there are in all."""
        found = (find_spec(name) for name in ("pypdfium2", "pypdfium2_raw", "PIL", "numpy"))
        homes = [str(Path(one.origin).parents[1]) for one in found if one and one.origin]
        process = subprocess.Popen(
            [sys.executable, "-I", pdf_drawing.__file__, str(first), *dict.fromkeys(homes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdin is not None
        with _watched(process, OPEN_S):
            with contextlib.suppress(OSError), process.stdin as pipe:  # it may be gone already
                pipe.write(self._data)
            head = _line(process)
        if head is None or "error" in head:
            _end(process)
            raise getattr(errors, (head or {}).get("error", "PdfDamaged"))
        return process, int(head["pages"])

    def _next_page(self, number: int) -> PdfPage:
        """The next page from the process, checked like any picture; `PdfPageTooLong` where the
        process has ended."""
        process = self._process
        assert process.stdout is not None
        with _watched(process, PAGE_S):
            head = _line(process)
            size = 0 if head is None else int(head.get("bytes", 0))
            data = process.stdout.read(size) if size else b""
        if head is None or len(data) != size:
            _end(process)
            return PdfPage(number, None, errors.PdfPageTooLong())
        try:
            picture = Image.frombytes("RGB", (head["width"], head["height"]), data)
            return PdfPage(number, open_image(picture))
        except errors.UserError as error:
            return PdfPage(number, None, error)
        except (ValueError, KeyError, TypeError):  # it says why in place of the sides
            return PdfPage(number, None, errors.PdfDamaged())


def pictures_of(path: os.PathLike[str] | bytes, until: float | None = None) -> list[Image.Image]:
    """Every page of a short PDF, for one question.

    Args:
        path: of the file; or its bytes.
        until: when to begin no further page, by `time.monotonic`.

    Raises:
        PdfPageTooLong: where pages are left then.
        PdfManyPages: for more pages than one question may have pictures.
        UserError: for a file or a page that cannot be read.
    """
    with PdfFile(path) as file:
        if file.pages > PAGES_OF_A_QUESTION:
            raise errors.PdfManyPages
        found = []
        for page in file:
            if page.image is None:
                raise page.error or errors.PdfDamaged
            found.append(page.image)
            if until is not None and len(found) < file.pages and time.monotonic() > until:
                raise errors.PdfPageTooLong
        return found


def _line(process: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    """The next line of JSON, or None where there is none."""
    assert process.stdout is not None
    try:
        found = json.loads(process.stdout.readline(4096))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


@contextlib.contextmanager
def _watched(process: subprocess.Popen[bytes], seconds: float) -> Iterator[None]:
    """End a process that takes longer than so many seconds."""
    watch = threading.Timer(seconds, process.kill)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop a process in any state. Safe to repeat."""
    process.kill()
    if process.stdout is not None:
        process.stdout.close()
    process.wait()
