"""`python -m benchmarks pictures --part NAME`: stored pictures beside the model asked afresh.

`times`: a page's first token, answer and bytes, and what `index` adds to reading. `answers`: how
many are those of the uncompressed model. `many`: stores of 200 and 2,000 pages. `full-size`: the
first of these for Qwen2.5-VL-7B's shapes with random weights on a GPU.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.harness import chosen, machine
from benchmarks.pictures.answers import answers
from benchmarks.pictures.full_size import full_size
from benchmarks.pictures.many import many
from benchmarks.pictures.times import times_of
from rotatek import load
from rotatek.evaluation.suite import EMBEDDED
from rotatek.methods.settings import Settings

Row = dict[str, Any]
FULL_SIZE: Final = "full-size"
SIZES: Final = (200, 2_000)  # of the stores of `many`
PARTS: Final = ("times", "answers", "many", FULL_SIZE)


def pictures(
    part: str = "times",
    model: str = "pocket",
    device: str = "cpu",
    pages: int = 24,
    side: int | None = None,
    bits: float = 0.75,
    suites: Sequence[str] = ("pocket",),
    weigh: Sequence[str] = ("questions",),
    rounds: int = 5,
    tiny: bool = False,
) -> Iterator[Row]:
    """One part's report, under its name.

    Args:
        part: of `PARTS`.
        model: a name or a folder, as `rotatek.load` takes it; `full-size` has its own.
        device: of the model.
        pages: how many are read and asked.
        side: pixels of a page's longer edge; None as it is.
        bits: a number.
        suites: of questions: `pocket`, `pocket-unseen`, or a file of JSON lines.
        weigh: ways to weigh a picture that is read before any question.
        rounds: how often the arms of `full-size` take turns.
        tiny: `full-size` with a tiny model on a CPU.
    """
    chosen([part], PARTS)
    if part == FULL_SIZE:
        if not tiny and not torch.cuda.is_available():
            raise SystemExit(f"{FULL_SIZE} needs a GPU; --tiny tries it out on a CPU.")
        for report in full_size(tiny, rounds, bits):
            yield {part: machine() | report}
        return
    torch.set_num_threads(1)  # other programs then change little
    vlm = load(model, device)
    if part == "times":
        yield {f"times, {model}": machine() | times_of(vlm, Settings.of(bits=bits), pages, side)}
        return
    if part == "many":
        yield {f"many, {model}": machine() | many(vlm, Settings.of(bits=bits), pages, SIZES)}
        return
    for suite in suites:
        label = suite if suite in EMBEDDED else Path(suite).resolve().parent.name
        for found in answers(vlm, suite, pages, bits, weigh):
            yield {f"answers, {model}, {label}": machine() | found}
