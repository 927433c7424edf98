"""`rotatek compare`: every method side by side, at the nominal budget of the given settings."""

import argparse
from collections.abc import Mapping
from typing import Any

from rotatek.cli.answers import print_json, reports, table
from rotatek.cli.request_arguments import add_request
from rotatek.cli.settings_arguments import add_settings, given, split
from rotatek.compare.columns import matched
from rotatek.errors import UserError
from rotatek.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is asked, under which settings, and how the comparison is printed."""
    add_request(parser)
    add_settings(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object per method")


def run(args: argparse.Namespace) -> None:
    """Print a table for each question, or a line of JSON for each method; a batch is JSON."""
    for found in reports(args, columns(given(args))):
        if not (args.json or args.batch is not None):
            print(table(found), flush=True)
            continue
        for report in found:
            print_json(report)


def columns(options: Mapping[str, Any]) -> dict[str, Settings]:
    """The comparison that flat options ask for.

    They set the budget and the chosen method; an option that only another channel method has goes
    to that one's column.

    Raises:
        UserError: where nothing is compressed.
        SettingError: for a value out of range, or an option that no column has.
    """
    chosen, others = split(options)
    if chosen.is_baseline:
        raise UserError("There is nothing to compare: these settings compress nothing.")
    made = matched(chosen, **others)
    held = [settings.as_dict() for settings in made.values()]
    for key, value in others.items():
        if not any(key in one and one[key] == value for one in held):
            Settings.from_dict(options)  # says which method would have it
    return made
