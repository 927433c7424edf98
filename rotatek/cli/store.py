"""`rotatek store`: what a store of pictures holds; check it, or forget pages. And what `index` and
`ask --store` do with a store and its model."""

import argparse
import csv
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from rotatek.cli.answers import aligned, print_json, say
from rotatek.cli.settings_arguments import given, sampling_of
from rotatek.errors import StoreForeign, UserError
from rotatek.inputs.text_files import one_line
from rotatek.methods.settings import STORED, Settings, path_names

if TYPE_CHECKING:
    from rotatek.pictures import Answer, Pictures
    from rotatek.pictures.store import PictureStore

DAMAGED: Final = 1  # exit status where a page is not as it was written
MEMORY: Final = "2GB"  # of pages, where no flag says otherwise
AT_ONCE: Final = 32  # pages a batch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for the store and the operation."""
    parser.add_argument("folder", metavar="DIR", help="of `rotatek index`")
    parser.add_argument(
        "--check", action="store_true", help="read every page completely, and forget damaged ones"
    )
    parser.add_argument(
        "--forget", nargs="+", metavar="NAME", help="pages: names, beginnings of them, or files"
    )


def run(args: argparse.Namespace) -> int:
    """Print the store's content, or do the operation.

    Returns:
        0, or 1 where `--check` found a damaged page.

    Raises:
        UserError: for a folder or a name that is refused.
    """
    from rotatek.pictures.store import PictureStore  # noqa: PLC0415  # keeps --help quick

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
        return DAMAGED if damaged else 0
    _describe(store)
    return 0


def _describe(store: "PictureStore") -> None:
    """A line a page, and the sum."""
    from rotatek.pictures.indexing import labels_of  # noqa: PLC0415

    rows, full, kept = [("page", "name", "size", "visual tokens", "dense", "stored")], 0, 0
    facts = {name: store.facts(name) or {} for name in store.names()}
    for label, name in labels_of(store):
        own = facts[name]
        width, height = own.get("size", (0, 0))
        rows.append((
            one_line(label), name[:12], f"{width}x{height}", str(own.get("visual_tokens", "?")),
            sized(own.get("full_bytes", 0)), sized(own.get("file_bytes", 0)),
        ))  # fmt: skip
    for own in facts.values():
        full, kept = full + own.get("full_bytes", 0), kept + own.get("file_bytes", 0)
    told = store.described
    settings = " ".join(_described(told["settings"]))
    print(aligned(rows))
    share = f", 1/{full / kept:.1f}" if kept else ""
    print(f"{len(facts)} pages: {sized(full)} -> {sized(kept)}{share}")
    print(f"model {told.get('model_name', '?')}; {settings}")


def _described(settings: dict[str, Any]) -> list[str]:
    """A store's settings, without options at their defaults; all of them where a method is not
    installed here."""
    names = {key: settings[key] for key in ("tokens", "channels")}
    try:
        usual = Settings.from_dict(names).as_dict()
    except UserError:
        usual = {}
    own = {key: value for key, value in settings.items() if usual.get(key, ()) != value}
    return [f"{key}={value}" for key, value in (names | own).items()]


def open_pictures(args: argparse.Namespace, *, new: bool) -> "Pictures":
    """The store of a command line, with its model loaded.

    Args:
        args: with store, model, device, settings and perhaps memory.
        new: whether a store may be made.

    Raises:
        UserError: for a folder, a model or settings that do not fit; before the model is loaded,
            if possible.
    """
    from rotatek import models  # noqa: PLC0415  # heavy imports only when they are needed
    from rotatek.cache.cache_file import coder  # noqa: PLC0415
    from rotatek.pictures.pictures import Pictures, bytes_of  # noqa: PLC0415
    from rotatek.pictures.store import PictureStore  # noqa: PLC0415

    described: dict[str, Any] = {}
    try:
        described = PictureStore(args.store).described
    except StoreForeign:
        if not new:
            raise
    coder()
    memory = bytes_of("--memory", getattr(args, "memory", MEMORY))
    disk = getattr(args, "disk", None)
    own = given(args)
    if not described:
        settings = Settings.from_dict(own, STORED)
    elif own.keys() <= path_names():
        settings = Settings.from_dict(described["settings"]).with_options(**own)
    else:
        settings = Settings.of(**own)
    name = args.model or described.get("model_name", "pocket")
    vlm = models.load(name, args.device)
    return Pictures(vlm, settings, args.store, memory, disk)


def ask_store(args: argparse.Namespace) -> int:
    """Ask every page, and print a line each: page, answer, confidence.

    Returns:
        0, or 1 where a page could not answer.

    Raises:
        UserError: for arguments, a question or a store that is refused.
    """
    if args.image is None or args.question is not None or args.batch:
        raise UserError("With --store give the QUESTION alone: its pages were read before.")
    if args.save_cache or args.load_cache:
        raise UserError("A store keeps its own caches. Leave --save-cache and --load-cache out.")
    from rotatek.pictures.indexing import labels_of  # noqa: PLC0415

    sampling = sampling_of(args)
    pictures = open_pictures(args, new=False)
    assert pictures.store is not None
    labels = labels_of(pictures.store)
    names = [name for _, name in labels]
    answers = pictures.answers(
        names, args.image, args.max_new_tokens, batch=AT_ONCE, sampling=sampling
    )
    failed = doubted = 0
    with (
        nullcontext()
        if args.csv is None
        else open(args.csv, "w", 1, "utf-8", "backslashreplace", newline="") as file
    ):
        write = None if file is None else csv.writer(file).writerow  # a row when it is known
        if write is not None:
            write(["page", "answer", "confidence", "doubt", "error"])
        for (label, _), answer in zip(labels, answers, strict=True):
            failed += bool(answer.error)
            doubt = pictures.doubt(answer)
            doubted += bool(doubt)
            try:
                _print(label, answer, doubt, args.json)
            finally:  # the table has what stdout did not take
                if write is not None:
                    sure = f"{answer.confidence:.4f}"
                    write([one_line(label), answer.text, sure, doubt, answer.error])
    if doubted and not args.json:
        why = "Add --json or --csv FILE to read why."
        print(f"{doubted} of {len(labels)} answers are doubtful. {why}", file=sys.stderr)
    return 1 if failed else 0


def _print(label: str, answer: "Answer", doubt: str, as_json: bool) -> None:
    """One line."""
    confidence = round(answer.confidence, 4)
    if as_json:
        told: dict[str, Any] = {"page": label, "answer": answer.text, "confidence": confidence}
        told |= {"doubt": doubt} if doubt else {}
        told |= {"error": answer.error} if answer.error else {}
        print_json(told)
        return
    text = " ".join((answer.error and f"({answer.error})" or answer.text).split())
    say(f"{one_line(label)}\t{text}\t{confidence:.2f}")


def sized(number: int) -> str:
    """Bytes for people: 468 KB, 3.7 MB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"
