"""`rotatek store`: what a store of pictures holds; check it, or forget pages. And what `index` and
`ask --store` do with a store and its model."""

import argparse
import csv
import os
import sys
from typing import Any, Final

from rotatek.cache.cache_file import coder
from rotatek.cli.settings_arguments import given, sampling_of
from rotatek.cli.shared import Report, aligned, load_model, print_json, say
from rotatek.errors import StoreForeign, UserError
from rotatek.inputs.text_files import one_line
from rotatek.methods.settings import STORED, Settings, path_names
from rotatek.pictures import Pictures
from rotatek.pictures.indexing import labels_of
from rotatek.pictures.pictures import bytes_of
from rotatek.pictures.store import PictureStore

MEMORY: Final = "2GB"  # of pages, where no flag says otherwise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="of `rotatek index`")
    parser.add_argument(
        "--check", action="store_true", help="read every page completely, and forget damaged ones"
    )
    parser.add_argument(
        "--forget", nargs="+", metavar="NAME", help="pages: names, beginnings of them, or files"
    )


def run(args: argparse.Namespace) -> int:
    """Print the store's content, or do the operation; 1 where `--check` found a damaged page."""
    if args.check and args.forget:
        raise UserError("Give either --check or --forget, not both.")
    store = PictureStore(args.folder)
    if args.forget:
        names = list(dict.fromkeys(name for given in args.forget for name in store.find(given)))
        store.forget(names)
        print(f"{len(names)} pages forgotten")
        return 0
    if args.check:
        swept = store.sweep()
        damaged = [name for name, good in store.check() if not good]
        store.forget(damaged)
        for name in damaged:
            print(f"{name}: damaged, forgotten. Index its file again.")
        left = f"; {swept} drafts removed" if swept else ""
        print(f"{len(store.names())} pages are whole, {len(damaged)} were damaged{left}")
        return int(bool(damaged))
    _describe(store)
    return 0


def _describe(store: PictureStore) -> None:
    """A line a page, the sum, and the model and settings: without options at their defaults, or all
    of them where a method is not installed here."""
    rows = [("page", "name", "size", "visual tokens", "dense", "stored")]
    facts = {name: store.facts(name) or {} for name in store.names()}
    for label, name in labels_of(store):
        own = facts[name]
        width, height = own.get("size", (0, 0))
        rows.append((
            one_line(label), name[:12], f"{width}x{height}", str(own.get("visual_tokens", "?")),
            sized(own.get("full_bytes", 0)), sized(own.get("file_bytes", 0)),
        ))  # fmt: skip
    full, kept = (
        sum(own.get(part, 0) for own in facts.values()) for part in ("full_bytes", "file_bytes")
    )
    settings = store.described["settings"]
    told = {key: settings[key] for key in ("tokens", "channels")}
    try:
        usual = Settings.from_dict(told).as_dict()
    except UserError:
        usual = {}
    told |= {key: value for key, value in settings.items() if usual.get(key, ()) != value}
    print(aligned(rows))
    share = f", 1/{full / kept:.1f}" if kept else ""
    print(f"{len(facts)} pages: {sized(full)} -> {sized(kept)}{share}")
    options = " ".join(f"{key}={value}" for key, value in told.items())
    print(f"model {store.described.get('model_name', '?')}; {options}")


def open_pictures(args: argparse.Namespace, *, new: bool) -> Pictures:
    """The store of a command line, with its model loaded after all checks. new: whether one may be
    made."""
    described: dict[str, Any] = {}
    try:
        described = PictureStore(args.store).described
    except StoreForeign:
        if not new:
            raise
    coder()
    memory = bytes_of("--memory", getattr(args, "memory", MEMORY))
    own = given(args)
    if not described:
        settings = Settings.from_dict(own, STORED)
    elif own.keys() <= path_names():
        settings = Settings.from_dict(described["settings"]).with_options(**own)
    else:
        settings = Settings.of(**own)
    args.model = args.model or described.get("model_name", "pocket")
    return Pictures(load_model(args), settings, args.store, memory, getattr(args, "disk", None))


def ask_store(args: argparse.Namespace) -> int:
    """Ask every page, and print a line each: page, answer, confidence; 1 where one cannot."""
    if args.image is None or args.question is not None or args.batch:
        raise UserError("With --store give the QUESTION alone: its pages were read before.")
    if args.save_cache or args.load_cache:
        raise UserError("A store keeps its own caches. Leave --save-cache and --load-cache out.")
    sampling = sampling_of(args)
    pictures = open_pictures(args, new=False)
    assert pictures.store is not None
    labels = labels_of(pictures.store)
    names = [name for _, name in labels]
    answers = pictures.answers(names, args.image, args.max_new_tokens, sampling=sampling)
    failed = doubted = 0
    where = args.csv or os.devnull
    with open(where, "w", 1, "utf-8", "backslashreplace", newline="") as file:
        write = csv.writer(file).writerow  # a row when it is known
        write(["page", "answer", "confidence", "doubt", "error"])
        for (label, _), answer in zip(labels, answers, strict=True):
            failed += bool(answer.error)
            doubt, sure = pictures.doubt(answer), round(answer.confidence, 4)
            doubted += bool(doubt)
            try:
                if args.json:
                    told: Report = {"page": label, "answer": answer.text, "confidence": sure}
                    beside = {"doubt": doubt, "error": answer.error}
                    print_json(told | {name: why for name, why in beside.items() if why})
                else:
                    text = f"({answer.error})" if answer.error else answer.text
                    say(f"{one_line(label)}\t{' '.join(text.split())}\t{sure:.2f}")
            finally:  # the table has what stdout did not take
                write([one_line(label), answer.text, f"{sure:.4f}", doubt, answer.error])
    if doubted and not args.json:
        why = "Add --json or --csv FILE to read why."
        print(f"{doubted} of {len(labels)} answers are doubtful. {why}", file=sys.stderr)
    return int(bool(failed))


def sized(number: int) -> str:
    """Bytes for people: 468 KB, 3.7 MB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"
