"""One part of every run of `evaluate.sh`, run after run in one process: to start Python, load the
library and test its kernels takes as long as a short run.

    python -m deploy.evaluate_part STATE I/N END < runs

A line of `runs` is a run's name, its weight and the words of its `rotatek evaluate`. A run gets its
weight's share of the seconds to END (of the clock), and what one leaves is the next one's, so that
the heaviest comes last. STATE has a folder a run and its log. Exit status 3: not all is answered
yet.
"""

import gc
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Final

import torch

from rotatek.cli.evaluate import STOPPED_EARLY
from rotatek.cli.main import main as command

FAILED: Final = 1


def main(argv: Sequence[str], runs: Sequence[str]) -> int:
    """Answer a part of every run.

    Args:
        argv: STATE, I/N and END.
        runs: the lines.

    Returns:
        1 if a run failed, else 3 if one has not answered all, else 0.
    """
    state, part, end = Path(argv[0]), argv[1], float(argv[2])
    split = sorted((line.split() for line in runs), key=lambda words: int(words[1]))
    left, found = sum(int(weight) for _, weight, *_ in split), {0}
    for name, weight, *words in split:
        mark = state / name / f"done-{part.replace('/', '-of-')}"
        seconds = (end - time.time()) * int(weight) / left
        left -= int(weight)
        if mark.exists():
            continue
        if seconds <= 0:
            found.add(STOPPED_EARLY)
            continue
        words += ["--part", part, "--limit-s", f"{seconds:.0f}"]
        log = state / f"{name}-{part.partition('/')[0]}.log"
        with log.open("w", encoding="utf-8") as file, redirect_stderr(file):
            status = command(["evaluate", *words])
        if status == 0:
            mark.touch()
        elif status != STOPPED_EARLY:
            print("\n".join(log.read_text("utf-8").splitlines()[-5:]), file=sys.stderr)
        found.add(status)
        gc.collect()
        torch.cuda.empty_cache()  # other processes may take what this run held
    return 0 if found == {0} else STOPPED_EARLY if found <= {0, STOPPED_EARLY} else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdin.readlines()))
