"""`rotatek index`: read pictures and PDF files once, into a store."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from tqdm import tqdm

from rotatek.cli.settings_arguments import add_settings
from rotatek.cli.shared import add_model
from rotatek.cli.store import MEMORY, open_pictures, sized
from rotatek.errors import UserError
from rotatek.inputs.text_files import one_line
from rotatek.pictures import Picture
from rotatek.pictures.indexing import files_of, index


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    add_settings(parser, "8 times smaller")


def run(args: argparse.Namespace) -> int:
    """Read new and changed files, with a progress bar; report unreadable ones on stderr."""
    files = files_of(args.paths)
    if not files:
        raise UserError("There are no pictures or PDF files there. Name others.")
    pictures = open_pictures(args, new=True)
    assert pictures.store is not None
    pictures.store.sweep()
    read: dict[str, Picture] = {}
    fresh = unread = 0
    with tqdm(total=len(files), unit="page", file=sys.stderr) as bar:
        for page in index(pictures, files):
            if page.number == 1:
                bar.total += page.pages - 1
            if page.picture is None:
                unread += 1
                number = f"#{page.number}" if page.pages > 1 else ""
                bar.write(f"{one_line(page.path)}{number}: {page.error}", file=sys.stderr)
            else:
                read[page.picture.name] = page.picture
                fresh += page.fresh
            bar.set_postfix_str(_bytes(read.values()), refresh=False)
            bar.update()
    told = f"{len(read)} pages, {fresh} read now: {_bytes(read.values())}"
    print(f"{told}; {unread} could not be read" if unread else told, flush=True)
    return int(bool(unread))


def _bytes(pictures: Iterable[Picture]) -> str:
    """Before and after, and how many times fewer."""
    sizes = [(one.full_bytes, one.file_bytes) for one in pictures]
    full, kept = (sum(size[part] for size in sizes) for part in (0, 1))
    return f"{sized(full)} -> {sized(kept)}" + (f", 1/{full / kept:.0f}" if kept else "")
