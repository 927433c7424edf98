"""`rotatek compare`: every method side by side, at the budget of the given settings."""

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from rotatek.cli.answers import print_json, reports, say, table
from rotatek.cli.request_arguments import add_request
from rotatek.cli.settings_arguments import add_sampling, add_settings, given, split
from rotatek.errors import UserError
from rotatek.methods.columns import matched
from rotatek.methods.settings import Settings, check_taken

if TYPE_CHECKING:
    from rotatek.engine.engine import Engine
    from rotatek.inputs.request import Request

EQUAL: Final = ("nominal", "live")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for the question, the settings, and the form of the comparison."""
    add_request(parser)
    add_sampling(parser)
    parser.add_argument(
        "--equal",
        choices=EQUAL,
        default=EQUAL[0],
        help="what every column has alike: the nominal share, as the paper counts it, or the live "
        "bytes of the cache, bases, scales and masks included. Default: nominal",
    )
    add_settings(parser, "a quarter of the Key channels")
    parser.add_argument("--json", action="store_true", help="print one JSON object per method")


def run(args: argparse.Namespace) -> None:
    """Print a table for each question, or a line of JSON for each method; a batch is JSON."""
    made = columns(given(args)) if args.equal == EQUAL[0] else live_columns(given(args))
    for found in reports(args, made):
        if not (args.json or args.batch is not None):
            say(table(found))
            continue
        for report in found:
            print_json(report)


def columns(options: Mapping[str, Any]) -> dict[str, Settings]:
    """The comparison that flat options ask for.

    They set the budget and the chosen method; an option that belongs to another channel method
    changes that method's column.

    Raises:
        UserError: where nothing is compressed.
        SettingError: for a value out of range, or an option that no column has.
    """
    chosen, others = _compressing(options)
    made = matched(chosen, **others)
    check_taken(made.values(), others)
    return made


def live_columns(options: Mapping[str, Any]) -> "Callable[[Engine, Request], dict[str, Settings]]":
    """A function that makes the comparison at equal live bytes for a first question.

    Raises:
        UserError: where nothing is compressed.
        SettingError: for a value out of range.
    """
    from rotatek.engine import equal_bytes  # noqa: PLC0415  # keeps --help quick

    chosen, others = _compressing(options)

    def made(engine: "Engine", request: "Request") -> dict[str, Settings]:
        prompt = engine.vlm.prompt(request, engine.limits.max_prompt_tokens)
        columns = equal_bytes.matched_live(engine.vlm, prompt, chosen, **others)
        check_taken(columns.values(), others)
        return columns

    return made


def _compressing(options: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """The chosen settings, and the options of other methods.

    Raises:
        UserError: where nothing is compressed.
    """
    chosen, others = split(options)
    if chosen.is_baseline:
        raise UserError(
            "There is nothing to compare: these settings compress nothing. Choose others."
        )
    return chosen, others
