"""`rotatek ask`: answer a question about an image, a further one on a stored cache, or one about
every page of a store."""

import argparse
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Final

from PIL.Image import Image
from tqdm import tqdm

from rotatek.cache.cache_file import coder
from rotatek.cli.settings_arguments import (
    add_sampling,
    add_settings,
    given,
    sampling_of,
    settings_of,
)
from rotatek.cli.shared import Report, add_request, load_model, passing, print_json, rows_of, say
from rotatek.cli.store import ask_store
from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Event, folded
from rotatek.errors import CacheNotStorable, UserError
from rotatek.inputs.request import Request, make_request
from rotatek.inspect.doubt import any_photo, doubt
from rotatek.methods.settings import USUAL, Settings, path_names

BESIDE: Final = ("method", "agreement", "first_divergence", "kl")  # figures of a comparison
DIGITS: Final = {  # no more than mean something
    "nominal_kv": 6, "prefill_ms": 3, "decode_ms_per_token": 3, "kl": 6, "confidence": 6,
    "visual_times_smaller": 3,
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    """Print the answer alone, or as JSON; a batch is always JSON; of a store, a line a page."""
    if args.store is not None:
        return ask_store(args)
    if args.csv is not None:
        raise UserError("--csv is for the answers of a store. Add --store DIR, or leave it out.")
    args.model = args.model or "pocket"
    stored = args.save_cache is not None or args.load_cache is not None
    with closing(talk(args) if stored else reports(args, {"answer": settings_of(args)})) as found:
        for (report,) in found:
            if args.json or args.batch is not None:
                print_json({name: value for name, value in report.items() if name not in BESIDE})
            else:
                say(report["answer"])
                if report["doubt"]:
                    print(report["doubt"], file=sys.stderr)
    return 0


def reports(
    args: argparse.Namespace,
    columns: Mapping[str, Settings] | Callable[[Engine, Request], Mapping[str, Settings]],
) -> Generator[list[Report]]:
    """Per question, one report per column in their order. The model loads after the first check.

    In a batch a bad row becomes a report with "error" and the others go on; it is refused at its
    end. columns: settings by name, or what makes them for a question.
    """
    batch, engine, refused = args.batch is not None, None, 0
    sampling = sampling_of(args)
    for row in tqdm(rows_of(args), unit="question", file=sys.stderr, disable=not batch):
        with passing(row, batch) as bad:
            request = make_request(
                row.opened(), row.question, args.max_new_tokens, sampling=sampling
            )
        if not bad:
            engine = engine or Engine(load_model(args), graphs=args.graph)  # or all rows end here
            with passing(row, batch) as bad:
                made = columns(engine, request) if callable(columns) else columns
                events = engine.compare(request, made, trace=False)
                found = collected(engine, events, made, request.images)
        refused += bool(bad)
        yield [{**row.place} | one for one in (bad or found)]
    if refused:
        raise UserError(
            f"{refused} of the batch's questions could not be answered. Mend those named above, or "
            'see "error".'
        )


def collected(
    engine: Engine, events: Iterable[Event], columns: Mapping[str, Settings],
    pictures: Sequence[Image],
) -> list[Report]:  # fmt: skip
    """A report a column, with its name as "method", and as "doubt" why its answer is doubtful."""
    told = []
    for name, column in folded(events, columns).items():
        if column.missed:
            print(column.missed, file=sys.stderr)
        report = {"method": name} | column.report()
        for figure, digits in DIGITS.items():
            if report[figure] is not None:
                report[figure] = round(report[figure], digits)
        sure = report["confidence"] if report["new_tokens"] else None
        why = doubt(engine.vlm.name, report["answer"], sure, lambda: any_photo(pictures))
        told.append(report | {"doubt": why or None})
    return told


def talk(args: argparse.Namespace) -> Generator[list[Report]]:
    """Ask one question of a conversation that is loaded from a file, saved to one, or both.

    The answer is printed first, and the cache is saved even if printing fails: neither is lost by a
    failure of the other. What can be refused is, before the model is loaded.
    """
    if args.batch is not None:
        raise UserError("A stored cache holds one conversation. Leave --batch out.")
    sampling = sampling_of(args)
    coder()
    pictures: Sequence[Image] = ()  # a stored cache does not know them
    if args.load_cache is None:
        (row,) = rows_of(args)
        settings = settings_of(args)
        if settings.is_baseline:
            raise CacheNotStorable
        request = make_request(row.opened(), row.question, args.max_new_tokens, sampling=sampling)
        engine, conversation = Engine(load_model(args), graphs=args.graph), Conversation()
        pictures, columns = request.images, {"answer": settings}
        events = engine.compare(request, columns, trace=False, conversation=conversation)
    else:
        if args.image is None or args.question is not None:
            raise UserError("With --load-cache give the QUESTION alone: the image was read before.")
        if given(args).keys() - path_names():
            raise UserError("A stored cache keeps its own settings. Leave the others out.")
        engine = Engine(load_model(args), graphs=args.graph)
        conversation = Conversation.load(args.load_cache, engine.vlm, **given(args))
        (column,) = conversation.columns
        column.name, settings = "answer", column.settings
        events = engine.follow(conversation, args.image, args.max_new_tokens, sampling=sampling)
    with closing(conversation):
        found = collected(engine, events, {"answer": settings}, pictures)
        try:
            yield found
        finally:
            if args.save_cache is not None:
                conversation.save(args.save_cache)
