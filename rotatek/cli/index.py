"""`rotatek index`: read pictures and PDF files once, into a store."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rotatek.cli.request_arguments import add_model
from rotatek.cli.settings_arguments import add_settings
from rotatek.cli.store_arguments import MEMORY, open_pictures, sized
from rotatek.errors import UserError
from rotatek.inputs.text_files import one_line

if TYPE_CHECKING:
    from rotatek.pictures.indexing import IndexedPage
    from rotatek.pictures.pictures import Picture

INCOMPLETE: Final = 1  # exit status where a file could not be read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for the pictures, the store, and the settings."""
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="FILE", help="pictures, PDF files, or folders"
    )
    parser.add_argument("--store", required=True, metavar="DIR", help="an old store, or a new one")
    add_model(parser)
    parser.set_defaults(model=None)  # an old store knows its model
    parser.add_argument(
        "--memory", default=MEMORY, metavar="BYTES", help="of pages, at most. Default: 2GB"
    )
    parser.add_argument(
        "--disk", metavar="BYTES", help="limit of the store: pages used least recently are removed"
    )
    parser.add_argument(
        "--weigh-by",
        default="questions",
        metavar="NAME",
        help="queries that weigh a picture before its first question: questions (a few general "
        "ones) or picture (its own last tokens). Default: questions",
    )
    add_settings(parser, "8 times smaller")


def run(args: argparse.Namespace) -> int:
    """Read new and changed files, with a progress bar; report unreadable ones on stderr.

    Returns:
        0, or 1 where something could not be read.

    Raises:
        UserError: for arguments, a store or a disk that is refused.
    """
    from rotatek.pictures.indexing import files_of, index  # noqa: PLC0415  # keeps --help quick

    files = files_of(args.paths)
    if not files:
        raise UserError("There are no pictures or PDF files there. Name others.")
    pictures = open_pictures(args, new=True)
    assert pictures.store is not None
    pictures.store.sweep()
    progress = _Progress(len(files))
    try:
        for page in index(pictures, files):
            progress.show(page)
    finally:
        progress.bar.close()
    print(progress.summary(), flush=True)
    return INCOMPLETE if progress.unread else 0


class _Progress:
    """A bar on stderr: pages, pages a second, time left, bytes before and after."""

    def __init__(self, files: int) -> None:
        from tqdm import tqdm  # noqa: PLC0415

        self.bar: Any = tqdm(total=files, unit="page", file=sys.stderr)
        self.fresh = self.unread = 0
        self._pictures: dict[str, Picture] = {}

    def show(self, page: "IndexedPage") -> None:
        """One page is done."""
        if page.number == 1:
            self.bar.total += page.pages - 1
        if page.picture is None:
            self.unread += 1
            number = f"#{page.number}" if page.pages > 1 else ""
            self.bar.write(f"{one_line(page.path)}{number}: {page.error}", file=sys.stderr)
        else:
            self._pictures[page.picture.name] = page.picture
            self.fresh += page.fresh
        self.bar.set_postfix_str(self._bytes(), refresh=False)
        self.bar.update()

    def _bytes(self) -> str:
        full = sum(one.full_bytes for one in self._pictures.values())
        kept = sum(one.file_bytes for one in self._pictures.values())
        return f"{sized(full)} -> {sized(kept)}" + (f", 1/{full / kept:.0f}" if kept else "")

    def summary(self) -> str:
        """One line for all."""
        told = f"{len(self._pictures)} pages, {self.fresh} read now: {self._bytes()}"
        return told if not self.unread else f"{told}; {self.unread} could not be read"
