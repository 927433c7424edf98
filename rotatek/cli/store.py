"""`rotatek store`: what a store of pictures holds; check it, or forget pages."""

import argparse
from typing import TYPE_CHECKING, Any, Final

from rotatek.cli.answers import aligned
from rotatek.cli.store_arguments import sized
from rotatek.errors import UserError
from rotatek.inputs.text_files import one_line

if TYPE_CHECKING:
    from rotatek.pictures.store import PictureStore

DAMAGED: Final = 1  # exit status where a page is not as it was written


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
    from rotatek.methods.settings import Settings  # noqa: PLC0415

    names = {key: settings[key] for key in ("tokens", "channels")}
    try:
        usual = Settings.from_dict(names).as_dict()
    except UserError:
        usual = {}
    own = {key: value for key, value in settings.items() if usual.get(key, ()) != value}
    return [f"{key}={value}" for key, value in (names | own).items()]
