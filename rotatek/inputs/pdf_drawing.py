"""The process that draws the pages of a PDF file, with nothing else of the library in it.

It is started by its path, in Python's isolated mode: a module of the folder that somebody happens
to stand in, or of PYTHONPATH, is never imported. Errors are named as in `rotatek.errors`.
"""

import json
import math
import sys
from contextlib import suppress
from typing import Any, BinaryIO, Final

MAX_BYTES: Final = 100 * 1000 * 1000  # of a file
MAX_PAGES: Final = 2_000
DOTS: Final = 150  # an inch
LONGEST_SIDE: Final = 2_000  # pixels of a drawn page
MOST_MEMORY: Final = 4 << 30  # bytes of addresses that this process may have
PASSWORD: Final = 4  # PDFium's number of that error


def draw(data: bytes, first: int, out: BinaryIO) -> None:
    """Draw a file's pages from number `first`, with what is in the fields of its forms: a line of
    JSON each, then its RGB bytes."""
    import pypdfium2  # noqa: PLC0415  # only this process needs it

    def say(pixels: bytes = b"", **told: Any) -> None:
        out.write(json.dumps(told).encode() + b"\n" + pixels)
        out.flush()

    try:
        document = pypdfium2.PdfDocument(data)
        pages = len(document)
    except pypdfium2.PdfiumError as error:
        locked = getattr(error, "err_code", 0) == PASSWORD
        return say(error="PdfEncrypted" if locked else "PdfDamaged")
    if not 1 <= pages <= MAX_PAGES:
        return say(error="PdfTooManyPages" if pages > MAX_PAGES else "PdfDamaged")
    with suppress(pypdfium2.PdfiumError):  # forms that cannot be read leave the pages as they are
        document.init_forms()
    say(pages=pages)
    for number in range(first, pages):
        try:
            page = document[number]
            sides = page.get_size()
            if not all(math.isfinite(side) and side > 0 for side in sides):
                raise ValueError
            scale = min(DOTS / 72, LONGEST_SIDE / max(sides))
            picture = page.render(scale=scale).to_pil().convert("RGB")
            pixels = picture.tobytes()
            say(pixels, width=picture.width, height=picture.height, bytes=len(pixels))
        except (pypdfium2.PdfiumError, ValueError, MemoryError, OSError):
            say(error="PdfDamaged")


def main() -> None:
    """Read a file from stdin, and draw it to stdout; the folders of installed packages follow the
    number of the first page."""
    sys.path.extend(folder for folder in sys.argv[2:] if folder not in sys.path)
    with suppress(ImportError, ValueError, OSError):  # not on every system
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(BrokenPipeError):
        draw(sys.stdin.buffer.read(MAX_BYTES + 1), int(sys.argv[1]), sys.stdout.buffer)


if __name__ == "__main__":
    main()
