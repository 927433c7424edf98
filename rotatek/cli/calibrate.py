"""`rotatek calibrate`: bases computed once, from many images."""

import argparse
import os
import sys
from pathlib import Path

from rotatek.cli.shared import add_request, load_model, passing, rows_of, say
from rotatek.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request(parser)
    parser.add_argument("--out", required=True, metavar="FILE.safetensors")


def run(args: argparse.Namespace) -> None:
    """Prefill every prompt, and write the bases of their averaged covariances. A bad row of a batch
    is named and left out, and refused in the end."""
    if not os.access(Path(args.out).absolute().parent, os.W_OK):  # refuse before computing
        raise UserError(f"{args.out} cannot be written. Give another name or folder as --out.")
    from tqdm import tqdm  # noqa: PLC0415  # keeps --help quick

    from rotatek.cache.rotatek_cache import RotateKCache  # noqa: PLC0415
    from rotatek.engine.passes import prefill  # noqa: PLC0415
    from rotatek.inputs.request import make_request  # noqa: PLC0415
    from rotatek.methods.calibration import Calibrator  # noqa: PLC0415
    from rotatek.methods.settings import Settings  # noqa: PLC0415

    rows = rows_of(args)
    vlm, calibrator = load_model(args), Calibrator()
    for row in tqdm(rows, unit="question", file=sys.stderr):
        with passing(row, args.batch is not None) as bad:
            request = make_request(row.opened(), row.question, 1)
            embedded = vlm.embed(vlm.prompt(request))
        if not bad:
            cache = RotateKCache(vlm.model, embedded.inputs(), Settings(), recorder=calibrator)
            prefill(vlm, embedded, cache)
    calibrator.save(args.out, vlm.name)
    say(f"{calibrator.samples} prompts -> {args.out}")
    if bad_rows := len(rows) - calibrator.samples:
        raise UserError(
            f"{bad_rows} of the batch's rows could not be used. Mend those named above."
        )
