"""`rotatek calibrate`: bases computed once, from many images."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rotatek.cli.answers import passing, say
from rotatek.cli.request_arguments import Row, add_request, load_model, progress, rows_of
from rotatek.cluster import quiet
from rotatek.errors import SettingError, UserError

if TYPE_CHECKING:
    from rotatek.methods.calibration import Calibrator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The prompts to learn from, and where the bases go."""
    add_request(parser)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="at once, by Ray")
    parser.add_argument("--out", required=True, metavar="FILE.safetensors")


def run(args: argparse.Namespace) -> None:
    """Prefill every prompt, and write the bases of their averaged covariances.

    A bad row of a batch is named, and left out.

    Raises:
        UserError: for arguments or pictures that are refused; for a batch, in the end.
    """
    rows = rows_of(args)
    if args.jobs < 1:
        raise SettingError("--jobs", "a whole number from 1", args.jobs)
    if not os.access(Path(args.out).absolute().parent, os.W_OK):  # or what is found is lost
        raise UserError(f"{args.out} cannot be written. Give another name or folder as --out.")
    found, name = _here(args, rows) if args.jobs == 1 else _by_jobs(args, rows)
    found.save(args.out, name)
    say(f"{found.samples} prompts -> {args.out}")
    if found.samples < len(rows):
        bad = len(rows) - found.samples
        raise UserError(f"{bad} of the batch's rows could not be used. Mend those named above.")


def _here(args: argparse.Namespace, rows: list[Row]) -> "tuple[Calibrator, str]":
    """In this process: what was seen, and the model's name."""
    from rotatek.cache.rotatek_cache import RotateKCache  # noqa: PLC0415  # keeps --help quick
    from rotatek.engine.decode import prefill  # noqa: PLC0415
    from rotatek.inputs.request import make_request  # noqa: PLC0415
    from rotatek.methods.calibration import PREFILL, Calibrator  # noqa: PLC0415

    vlm, calibrator = load_model(args), Calibrator()
    for row in progress(rows, True):
        with passing(row, args.batch is not None) as bad:
            request = make_request(row.opened(), row.question, 1)
            embedded = vlm.embed(vlm.prompt(request))
        if not bad:
            cache = RotateKCache(vlm.model, embedded.inputs(), PREFILL, recorder=calibrator)
            prefill(vlm, embedded, cache)
    return calibrator, vlm.name


def _by_jobs(args: argparse.Namespace, rows: list[Row]) -> "tuple[Calibrator, str]":
    """By several tasks."""
    quiet.prepare_for("--jobs")
    from rotatek.cluster import tasks  # noqa: PLC0415
    from rotatek.inputs.request import clean_question  # noqa: PLC0415

    prompts = []
    for row in rows:
        with passing(row, args.batch is not None) as bad:
            opened, question = row.opened(), clean_question(row.question)
        if not bad:
            prompts.append((opened, question))
    return tasks.calibrate(tasks.Source(args.model, args.device), prompts, args.jobs)
