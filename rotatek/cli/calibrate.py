"""`rotatek calibrate`: bases computed once, from many images."""

import argparse

from rotatek.cli.request_arguments import add_request, load_model, progress, rows_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The prompts to learn from, and where the bases go."""
    add_request(parser)
    parser.add_argument("--out", required=True, metavar="FILE.safetensors")


def run(args: argparse.Namespace) -> None:
    """Prefill every prompt, and write the bases of their averaged covariances."""
    from rotatek.cache.compressed import RotateKCache  # noqa: PLC0415  # keeps --help quick
    from rotatek.calibration import Calibrator  # noqa: PLC0415
    from rotatek.decode import prefill  # noqa: PLC0415
    from rotatek.inputs import make_request  # noqa: PLC0415

    rows, vlm, calibrator = rows_of(args), load_model(args), Calibrator()
    for row in progress(rows, True):
        request = make_request(row.opened(), row.question, 1)
        embedded = vlm.embed(vlm.prompt(request))
        prefill(vlm, embedded, RotateKCache(vlm.model, embedded.inputs(), recorder=calibrator))
    calibrator.save(args.out, vlm.name)
    print(f"{calibrator.samples} prompts -> {args.out}")
