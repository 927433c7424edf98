"""Shared by `ask` and `compare`: questions in, one report for each column out."""

import argparse
import json
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rotatek.cli.request_arguments import Row, load_model, progress, rows_of
from rotatek.errors import SettingError, UserError, public_message
from rotatek.inputs.text_files import as_json

if TYPE_CHECKING:
    from PIL.Image import Image

    from rotatek.engine.engine import Engine
    from rotatek.engine.events import Event
    from rotatek.inputs.request import Request
    from rotatek.methods.settings import Settings

DIGITS: Final = {
    "nominal_kv": 6, "prefill_ms": 3, "decode_ms_per_token": 3, "kl": 6, "confidence": 6,
    "visual_times_smaller": 3,
}  # fmt: skip
Report = dict[str, Any]


def reports(
    args: argparse.Namespace,
    columns: "Mapping[str, Settings] | Callable[[Engine, Request], Mapping[str, Settings]]",
) -> Generator[list[Report], None, None]:
    """Per question, one report per column in their order. The model loads after the first check.

    In a batch a bad row becomes a report with "error" and the others go on.

    Args:
        args: of the command.
        columns: settings by name, or what makes them for a question.

    Raises:
        UserError: for a question that is refused; in a batch, when all others are answered.
    """
    from rotatek.cli.settings_arguments import sampling_of  # noqa: PLC0415  # keeps --help quick
    from rotatek.engine.engine import Engine  # noqa: PLC0415

    batch, engine, refused = args.batch is not None, None, 0
    sampling = sampling_of(args)
    for row in progress(rows_of(args), batch):
        place = row.place if batch else {}
        with passing(row, batch) as bad:
            request = row.request(args.max_new_tokens, sampling)
        if not bad:
            engine = engine or Engine(load_model(args), graphs=args.graph)  # or all rows end here
            with passing(row, batch) as bad:
                made = columns(engine, request) if callable(columns) else columns
                found = collected(engine.compare(request, made, trace=False), made)
                for one in found:
                    one["doubt"] = doubt_of(engine, one, request.images)
        refused += bool(bad)
        yield [place | one for one in (bad or found)]
    if refused:
        raise UserError(
            f"{refused} of the batch's questions could not be answered. Mend those named above, or "
            'see "error".'
        )


@contextmanager
def passing(row: Row, batch: bool) -> Iterator[list[Report]]:
    """In a batch, report a row's failure on stderr and in its result, and go on.

    Settings hold for all rows, so a wrong setting ends the run.
    """
    bad: list[Report] = []
    try:
        yield bad
    except Exception as error:
        if not batch or isinstance(error, SettingError):
            raise
        from tqdm import tqdm  # noqa: PLC0415

        sentence = public_message(error)
        tqdm.write(row.fault or f"{row.line}: {sentence}", file=sys.stderr)  # above the bar
        bad.append({"error": sentence})


def doubt_of(engine: "Engine", report: Report, pictures: "Sequence[Image]") -> str | None:
    """Why an answer is to be doubted, in a sentence; None where nothing says so.

    Args:
        engine: that answered.
        report: of `collected`.
        pictures: that were asked about, as far as they are known.
    """
    from rotatek.inspect.doubt import any_photo, doubt  # noqa: PLC0415

    sure = report["confidence"] if report["new_tokens"] else None
    return doubt(engine.vlm.name, report["answer"], sure, lambda: any_photo(pictures)) or None


def collected(events: "Iterable[Event]", columns: "Mapping[str, Settings]") -> list[Report]:
    """The result of an engine's events: a report a column, with its name as "method".

    Raises:
        UserError: in the engine's words.
    """
    from rotatek.engine.events import folded  # noqa: PLC0415

    found = folded(events, columns)
    for missed in filter(None, (column.missed for column in found.values())):
        print(missed, file=sys.stderr)
    told = [{"method": name} | column.report() for name, column in found.items()]
    for figures in told:
        for name, digits in DIGITS.items():  # no more than mean something
            if figures[name] is not None:
                figures[name] = round(figures[name], digits)
    return told


def say(text: object) -> None:
    """Print on stdout.

    Raises:
        OSError: where stdout cannot be written; the text is then on stderr, if that is open.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError:  # a full disk
        print(text, file=sys.stderr)
        raise


def print_json(figures: Report) -> None:
    """One line, which stays JSON in every encoding."""
    text = as_json(figures)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(figures)
    say(text)


def table(reports: Sequence[Report]) -> str:
    """Columns of a comparison as lines of text."""
    head = ("method", "tokens", "nominal", "KV bytes", "of full", "ms/token", "same", "answer")
    lines = [
        (
            one["method"],
            f"{one['visual_tokens_kept']}/{one['visual_tokens']}",
            f"{one['nominal_kv']:.3f}",
            f"{one['kv_bytes']:,}",
            f"{one['kv_bytes'] / one['kv_bytes_full']:.3f}",
            f"{one['decode_ms_per_token']:.1f}",
            f"{one['agreement']:.2f}",
            one["answer"].replace("\n", " ")[:60],
        )
        for one in reports
    ]
    return aligned([head, *lines])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
