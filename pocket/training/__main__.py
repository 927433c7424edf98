"""Train a pocket model: `python -m pocket.training --out FOLDER [--family FAMILY]`.

A run is a chain of links: each continues from FOLDER's checkpoint, stops after --link-minutes, and
leaves a checkpoint and an export that `from_pretrained` loads. With --steps the schedule counts
steps and the run is reproducible; with --minutes it is fitted to the clock. On several GPUs start
it with torchrun, or a training of its own on each for `training.averaging` to average.
"""

from pocket.training.options import arguments
from pocket.training.smol_trainer import TRAINERS
from pocket.training.trainer import train


def main(argv: list[str] | None = None) -> None:
    """Train as the command line says."""
    args = arguments(argv, __doc__)
    train(args, TRAINERS[args.family])


if __name__ == "__main__":
    main()
