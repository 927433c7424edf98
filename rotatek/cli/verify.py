"""`rotatek verify`: second questions, bytes, speed and memory of one model, in minutes."""

import argparse
import sys
from pathlib import Path
from typing import Final

from rotatek.cli.answers import say
from rotatek.cli.request_arguments import add_model
from rotatek.errors import SettingError, UserError
from rotatek.evaluation.suite import QUESTIONS, FileSuite, Suite, draw

EMBEDDED_MODELS: Final = ("pocket", "pocket-smol")  # whose answers are brief
SUITE: Final = "pocket-unseen"  # whose renderers no embedded model was trained on
DRAWN: Final = 7  # questions drawn for each picture that is asked: some have none to follow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, how many pictures, and where the table goes."""
    add_model(parser)
    parser.add_argument(
        "--folder", type=Path, metavar="FOLDER",
        help="of your own pictures, with questions.jsonl; by default pictures are drawn",
    )  # fmt: skip
    parser.add_argument("--pictures", type=int, default=48, metavar="N", help="that are asked")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which pictures")
    parser.add_argument(
        "--minutes", type=float, default=8.0, metavar="M", help="for the answers, at most"
    )
    parser.add_argument(
        "--suffix", metavar="TEXT",
        help="behind every question; by default a wish for brevity, which embedded models need not",
    )  # fmt: skip
    parser.add_argument(
        "--side", type=int, default=1344, metavar="PIXELS",
        help="of the square picture whose cost is measured",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("artifacts/verify"), metavar="FOLDER",
        help="verify.md and verify.json go there; a run that was cut off goes on",
    )  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Answer, measure, print the table.

    Raises:
        UserError: for arguments that are refused, before the model is loaded.
    """
    for name, value, low, high in (
        ("--pictures", args.pictures, 1, 10_000), ("--side", args.side, 56, 8_192),
    ):  # fmt: skip
        if not low <= value <= high:
            raise SettingError(name, f"a whole number from {low} to {high:,}", value)
    suite = _suite(args)
    from rotatek import models  # noqa: PLC0415  # keeps --help quick
    from rotatek.evaluation.verification import BRIEF, Verification, sampled  # noqa: PLC0415

    chosen = sampled(suite, args.pictures, args.seed)
    if not chosen.items:
        raise UserError("No picture has a second question. Give pictures with two questions each.")
    vlm = models.load(args.model, args.device)
    brief = "" if vlm.name in EMBEDDED_MODELS else BRIEF
    suffix = brief if args.suffix is None else args.suffix
    verification = Verification(vlm, chosen, args.out, 60 * args.minutes, args.side, suffix)
    text, _ = verification.run(lambda sentence: print(sentence, file=sys.stderr))
    say(text.rstrip("\n"))


def _suite(args: argparse.Namespace) -> Suite:
    if args.folder is None:
        return draw(SUITE, DRAWN * args.pictures, args.seed, args.out / "suite")
    suite = FileSuite(args.folder / QUESTIONS)
    for sentence in suite.bad:
        print(sentence, file=sys.stderr)
    return suite
