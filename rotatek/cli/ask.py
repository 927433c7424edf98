"""`rotatek ask`: answer a question about an image."""

import argparse
from typing import Final

from rotatek.cli.answers import print_json, reports
from rotatek.cli.request_arguments import add_request
from rotatek.cli.settings_arguments import add_settings, settings_of

BESIDE: Final = ("method", "agreement", "first_divergence", "kl")  # figures of a comparison


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What is asked, under which settings, and how the answer is printed."""
    add_request(parser)
    add_settings(parser)
    parser.add_argument(
        "--json", action="store_true", help="print the answer and its figures as JSON"
    )


def run(args: argparse.Namespace) -> None:
    """Print the answer alone, or as JSON; a batch is always JSON."""
    for (report,) in reports(args, {"answer": settings_of(args)}):
        if args.json or args.batch is not None:
            print_json({name: value for name, value in report.items() if name not in BESIDE})
        else:
            print(report["answer"], flush=True)
