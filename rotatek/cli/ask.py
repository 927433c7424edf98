"""`rotatek ask`: answer a question about an image, a further one on a stored cache, or one about
every page of a store."""

import argparse
import sys
from collections.abc import Generator
from contextlib import closing
from typing import Final

from rotatek.cli.answers import Report, collected, doubt_of, print_json, reports, say
from rotatek.cli.request_arguments import add_request, load_model, rows_of
from rotatek.cli.settings_arguments import (
    add_sampling,
    add_settings,
    given,
    sampling_of,
    settings_of,
)
from rotatek.cli.store import ask_store
from rotatek.errors import CacheNotStorable, UserError
from rotatek.methods.settings import USUAL, path_names

BESIDE: Final = ("method", "agreement", "first_divergence", "kl")  # figures of a comparison


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for the question, the settings, and the form of the answer."""
    add_request(parser)
    add_sampling(parser)
    parser.set_defaults(model=None)  # a store knows its model
    parser.add_argument(
        "--store", metavar="DIR", help="ask the QUESTION to every page that `rotatek index` stored"
    )
    parser.add_argument("--csv", metavar="FILE", help="with --store: also write the answers there")
    parser.add_argument(
        "--save-cache", metavar="FILE", help="store the compressed cache, for further questions"
    )
    parser.add_argument(
        "--load-cache", metavar="FILE",
        help="ask a further QUESTION on a stored cache; the image is not read again",
    )  # fmt: skip
    add_settings(parser, USUAL.channels.form)
    parser.add_argument(
        "--json", action="store_true", help="print the answer and its figures as JSON"
    )


def run(args: argparse.Namespace) -> int:
    """Print the answer alone, or as JSON; a batch is always JSON; of a store, a line a page.

    Returns:
        0, or 1 where a page of a store could not answer.
    """
    if args.store is not None:
        return ask_store(args)
    if args.csv is not None:
        raise UserError("--csv is for the answers of a store. Add --store DIR, or leave it out.")
    args.model = args.model or "pocket"
    stored = args.save_cache is not None or args.load_cache is not None
    found = talk(args) if stored else reports(args, {"answer": settings_of(args)})
    with closing(found):
        for (report,) in found:
            if args.json or args.batch is not None:
                print_json({name: value for name, value in report.items() if name not in BESIDE})
            else:
                say(report["answer"])
                if report["doubt"]:
                    print(report["doubt"], file=sys.stderr)
    return 0


def talk(args: argparse.Namespace) -> Generator[list[Report], None, None]:
    """Ask one question of a conversation that is loaded from a file, saved to one, or both.

    The answer is printed first, and the cache is saved even if printing fails: neither is lost by a
    failure of the other.

    Raises:
        UserError: for a question or a file that is refused, before the model is loaded if possible.
    """
    from rotatek.cache.cache_file import coder  # noqa: PLC0415  # keeps --help quick
    from rotatek.engine.conversation import Conversation  # noqa: PLC0415
    from rotatek.engine.engine import Engine  # noqa: PLC0415

    if args.batch is not None:
        raise UserError("A stored cache holds one conversation. Leave --batch out.")
    sampling = sampling_of(args)
    coder()
    if args.load_cache is None:
        (row,) = rows_of(args)
        settings = settings_of(args)
        if settings.is_baseline:
            raise CacheNotStorable
        request = row.request(args.max_new_tokens, sampling)
        engine, conversation = Engine(load_model(args), graphs=args.graph), Conversation()
        pictures = request.images
        events = engine.compare(
            request, {"answer": settings}, trace=False, conversation=conversation
        )
    else:
        if args.image is None or args.question is not None:
            raise UserError("With --load-cache give the QUESTION alone: the image was read before.")
        if given(args).keys() - path_names():
            raise UserError("A stored cache keeps its own settings. Leave the others out.")
        engine = Engine(load_model(args), graphs=args.graph)
        conversation = Conversation.load(args.load_cache, engine.vlm, **given(args))
        (column,) = conversation.columns
        column.name, settings = "answer", column.settings
        pictures = ()  # a stored cache does not know them
        events = engine.follow(conversation, args.image, args.max_new_tokens, sampling=sampling)
    try:
        found = collected(events, {"answer": settings})
        found[0]["doubt"] = doubt_of(engine, found[0], pictures)
        try:
            yield found
        finally:
            if args.save_cache is not None:
                conversation.save(args.save_cache)
    finally:
        conversation.close()
