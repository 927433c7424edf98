"""What settings cost on a processor, beside the uncompressed cache.

A model answers one question about a picture at several sizes, under every setting in turns. The
first token counts from a request whose vision features are kept, a step is the median of the later
tokens. A ratio is the median over the rounds, but for the first, of a setting's time to the
uncompressed cache's in the same round: once by the clock and once in processor time of all threads,
which other programs disturb less. `OMP_NUM_THREADS` in the environment says how many there are.
"""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from operator import truediv
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from PIL import Image

from benchmarks.harness import chosen
from rotatek.engine.engine import Engine
from rotatek.engine.events import Prefilled, Token
from rotatek.inputs.request import Request, make_request, open_image
from rotatek.methods.settings import BASELINE, Settings

WHOLE: Final = "uncompressed"
ARMS: Final[Mapping[str, Settings]] = {
    WHOLE: BASELINE,
    "k = 32": Settings.of(keep_channels=0.25),
    "2 bits": Settings.of(bits=2.0),
    ".75 bits": Settings.of(bits=0.75),
}
SIDES: Final = (480, 1250)  # pixels
Row = dict[str, Any]


class Times(NamedTuple):
    """Milliseconds: the first token and a step by the clock, then both in processor time."""

    first_ms: float
    step_ms: float
    first_cpu_ms: float
    step_cpu_ms: float


def timed(engine: Engine, request: Request, settings: Settings) -> tuple[int, Times]:
    """The picture's visual tokens, and one answer's times.

    Raises:
        SystemExit: where the answer has fewer than three tokens.
    """
    clocks = [(time.perf_counter(), time.process_time())]
    visual, event = 0, None
    for event in engine.compare(request, {"answer": settings}, trace=False):
        if isinstance(event, Prefilled):
            visual = event.visual_tokens
        elif isinstance(event, Token):
            clocks.append((time.perf_counter(), time.process_time()))
    if len(clocks) < 4:
        raise SystemExit(f"Ask a question with a longer answer; this one ended with {event}.")
    clock, cpu = ([1000 * (b - a) for a, b in zip(own, own[1:], strict=False)]
                  for own in zip(*clocks, strict=True))  # fmt: skip
    step, step_cpu = (statistics.median(own[2:]) for own in (clock, cpu))
    return visual, Times(clock[0], step, cpu[0], step_cpu)


def measured(
    engine: Engine, request: Request, names: Sequence[str], rounds: int
) -> tuple[int, dict[str, Row]]:
    """The picture's visual tokens, and a row for each setting: medians, and what they are of the
    uncompressed cache's."""
    visual, found = 0, {name: list[Times]() for name in names}
    for lap in range(1 + rounds):
        for name in names[:: 1 if lap % 2 else -1]:
            visual, times = timed(engine, request, ARMS[name])
            found[name].append(times)
    columns = {name: dict(zip(Times._fields, zip(*own[1:], strict=True), strict=True))
               for name, own in found.items()}  # fmt: skip
    rows: dict[str, Row] = {}
    for name, own in columns.items():
        rows[name] = row = {}
        for field, values in own.items():
            ratios = map(truediv, values, columns[WHOLE][field])
            row[field] = round(statistics.median(values), 2)
            row[field.replace("_ms", "_of_whole")] = round(statistics.median(ratios), 3)
    return visual, rows


def processor(
    model: str = "pocket",
    image: Path = Path("assets/examples/receipt.png"),
    question: str = "What is the name of the shop and the total?",
    sides: Sequence[int] = SIDES,
    settings: Sequence[str] | None = None,
    tokens: int = 10,
    rounds: int = 9,
) -> Iterator[Row]:
    """Every setting at every size; sides: pixels of the longer edge."""
    names = [WHOLE, *(name for name in chosen(settings, ARMS) if name != WHOLE)]
    engine, picture = Engine(model, device="cpu"), open_image(image)
    report: Row = {"model": model, "threads": torch.get_num_threads(), "rounds": rounds}
    for side in sides:
        scale = side / max(picture.size)
        size = (round(picture.width * scale), round(picture.height * scale))
        resized = picture.resize(size, Image.Resampling.BICUBIC)
        visual, rows = measured(engine, make_request(resized, question, tokens), names, rounds)
        report[f"{visual} visual tokens"] = rows
        yield report
