"""`rotatek calibrate`: bases computed once, from many images."""

import argparse
from typing import Final

from rotatek.cli.request_arguments import Removed, add_request, load_model, progress, rows_of

ONE: Final = "Leave it out: one process reads all prompts."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The prompts to learn from, and where the bases go."""
    add_request(parser)
    parser.add_argument("--jobs", action=Removed, const=ONE, help=argparse.SUPPRESS)
    parser.add_argument("--out", required=True, metavar="FILE.safetensors")


def run(args: argparse.Namespace) -> None:
    """Prefill every prompt, and write the bases of their averaged covariances.

    Raises:
        UserError: for arguments or pictures that are refused.
    """
    from rotatek.cache.rotatek_cache import RotateKCache  # noqa: PLC0415  # keeps --help quick
    from rotatek.engine.decode import prefill  # noqa: PLC0415
    from rotatek.inputs.request import make_request  # noqa: PLC0415
    from rotatek.methods.calibration import PREFILL, Calibrator  # noqa: PLC0415

    rows = rows_of(args)
    vlm, calibrator = load_model(args), Calibrator()
    for row in progress(rows, True):
        request = make_request(row.opened(), row.question, 1)
        embedded = vlm.embed(vlm.prompt(request))
        prefill(
            vlm, embedded, RotateKCache(vlm.model, embedded.inputs(), PREFILL, recorder=calibrator)
        )
    calibrator.save(args.out, vlm.name)
    print(f"{calibrator.samples} prompts -> {args.out}")
