"""The progress of a training run, and the learning rate there."""

import argparse
import time


class Clock:
    """Progress in [0, 1] through the schedule, over all links."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.steps, self.seconds = args.steps, args.minutes * 60
        self.step, self.before, self.begun = 0, 0.0, time.monotonic()
        self.link_seconds, self.save_seconds = args.link_minutes * 60, args.save_minutes * 60
        self.saved = self.begun
        self.agreed: float | None = None  # progress as rank 0 has broadcast it, on several ranks

    @property
    def elapsed(self) -> float:
        """Seconds of training so far."""
        return self.before + time.monotonic() - self.begun

    @property
    def progress(self) -> float:
        """The progress of the schedule: the same on all ranks, or their weights would drift
        apart."""
        return self.own_progress if self.agreed is None else self.agreed

    @property
    def own_progress(self) -> float:
        """The progress of the schedule by this process's clock."""
        done = self.step / self.steps if self.steps else self.elapsed / self.seconds
        return min(1.0, done)

    def to_save(self) -> bool:
        """Whether a checkpoint is due; if so, the next one is due an interval from now."""
        due = time.monotonic() - self.saved > self.save_seconds
        if due:
            self.saved = time.monotonic()
        return due

    def link_over(self) -> bool:
        """Whether this link has used its time."""
        return time.monotonic() - self.begun > self.link_seconds


def rate(progress: float, step: int, args: argparse.Namespace) -> float:
    """Learning rate: warm-up, constant, linear decay."""
    warm = min(1.0, (step + 1) / args.warm_up)
    fall = min(1.0, (1 - progress) / (1 - args.decay_from)) if args.decay_from < 1 else 1.0
    return args.lr * warm * max(0.0, fall)
