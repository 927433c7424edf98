"""What `ask` and `compare` share: questions in, one report for each column out."""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rotatek.cli.request_arguments import load_model, progress, rows_of
from rotatek.errors import UserError
from rotatek.methods.settings import Settings

if TYPE_CHECKING:
    from rotatek.engine.engine import Engine
    from rotatek.engine.events import Event
    from rotatek.inputs.request import Request

DIGITS: Final = {
    "nominal_kv": 6, "prefill_ms": 3, "decode_ms_per_token": 3, "kl": 6, "confidence": 6,
}  # fmt: skip
Report = dict[str, Any]


def reports(
    args: argparse.Namespace,
    columns: "Mapping[str, Settings] | Callable[[Engine, Request], Mapping[str, Settings]]",
) -> Iterator[list[Report]]:
    """Per question, one report per column in their order. The model loads after the first check.

    In a batch a bad row becomes a report with "error" and the others go on.

    Args:
        args: of the command.
        columns: settings by name, or what makes them for a question.

    Raises:
        UserError: for a question that is refused; in a batch, when all others are answered.
    """
    from rotatek.engine.engine import Engine  # noqa: PLC0415  # keeps --help quick
    from rotatek.inputs.request import make_request  # noqa: PLC0415

    batch, engine, refused = args.batch is not None, None, 0
    for row in progress(rows_of(args), batch):
        place = row.place if batch else {}
        try:
            request = make_request(row.opened(), row.asked(args.place), args.max_new_tokens)
            engine = engine or Engine(load_model(args), graphs=args.graph)
            made = columns(engine, request) if callable(columns) else columns
            yield [place | one for one in answers(engine, request, made)]
        except UserError as error:
            if not batch:
                raise
            refused += 1
            yield [place | {"error": error.message}]
    if refused:
        raise UserError(f'{refused} of the batch\'s questions could not be answered; see "error".')


def answers(engine: "Engine", request: "Request", columns: Mapping[str, Settings]) -> list[Report]:
    """Run one question.

    Returns:
        one report per column, with its name as "method".

    Raises:
        UserError: in the engine's words.
    """
    return collected(engine.compare(request, columns, trace=False), columns)


def collected(events: "Iterable[Event]", columns: Mapping[str, Settings]) -> list[Report]:
    """What an engine's events come to, as of `answers`.

    Raises:
        UserError: in the engine's words.
    """
    from rotatek.compare.report import Column  # noqa: PLC0415
    from rotatek.engine.events import Failed  # noqa: PLC0415

    found = {name: Column(name, settings) for name, settings in columns.items()}
    for event in events:
        if isinstance(event, Failed):
            raise event.error
        if event.column is not None:
            found[event.column].take(event)
    return [{"method": name} | rounded(column.report()) for name, column in found.items()]


def rounded(figures: Report) -> Report:
    """The same with no more digits than mean something."""
    return {
        name: round(value, DIGITS[name]) if name in DIGITS and value is not None else value
        for name, value in figures.items()
    }


def print_json(figures: Report) -> None:
    """One line."""
    print(json.dumps(figures, ensure_ascii=False), flush=True)


def table(reports: Sequence[Report]) -> str:
    """Columns of a comparison as lines of text."""
    head = ("method", "tokens", "nominal", "KV bytes", "of full", "ms/token", "same", "answer")
    return aligned([head, *(_line(one) for one in reports)])


def _line(report: Report) -> tuple[str, ...]:
    return (
        report["method"],
        f"{report['visual_tokens_kept']}/{report['visual_tokens']}",
        f"{report['nominal_kv']:.3f}",
        f"{report['kv_bytes']:,}",
        f"{report['kv_bytes'] / report['kv_bytes_full']:.3f}",
        f"{report['decode_ms_per_token']:.1f}",
        f"{report['agreement']:.2f}",
        report["answer"].replace("\n", " ")[:60],
    )


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
