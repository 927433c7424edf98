"""Hundreds of mixed requests to one engine: `python -m tests.soak`. Memory and pace must hold.

Bars: at most 0.05 MB a request after the first 50, and a 95th percentile of the last 50 good
requests at most 1.1 times that of the first 50 behind the warm-up. Requests under different
settings take different times, so each counts in medians of its own settings.
"""

import argparse
import gc
import itertools
import os
import random
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Failed, Finished, Restarted, Token
from rotatek.errors import UserError
from rotatek.inputs.request import Request, make_request
from rotatek.methods.settings import BASELINE, Settings
from tests.tiny import tiny_qwen

WARM_UP = 50
MEGABYTES_A_REQUEST = 0.05
PACE = 1.1
COLUMNS = (
    {"baseline": BASELINE, "RotateK": Settings.of(keep_channels=0.25)},
    {"ThinK": Settings.of(channels="think", tokens="fastv", keep_tokens=0.4)},
    {"SparK": Settings.of(channels="spark"), "VisionZip": Settings.of(tokens="visionzip")},
)


@dataclass
class Report:
    """(settings' number, seconds) of each good request, resident MB after each request, and what
    went wrong."""

    seconds: list[tuple[int, float]] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """MB a request behind the warm-up: the slope of a straight line."""
        held = self.megabytes[WARM_UP:]
        return float(np.polyfit(np.arange(len(held)), held, 1)[0])

    @property
    def slowdown(self) -> float:
        """95th percentile of the last 50 good requests over that of the first 50."""
        kinds, seconds = (np.array(part) for part in zip(*self.seconds, strict=True))
        usual = {kind: np.median(seconds[kinds == kind]) for kind in set(kinds)}
        warm = np.array([s / usual[k] for k, s in self.seconds])[WARM_UP // 2 :]
        return float(np.percentile(warm[-50:], 95) / np.percentile(warm[:50], 95))


def resident_megabytes(process: int | str = "self") -> float:
    """Memory of a process, by default this one, as the kernel counts it."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


KINDS = ("good", "good", "good", "good", "refused", "abandoned", "stopped", "followed")


def run(requests: int, seed: int = 0) -> Report:
    """Good questions, refused, abandoned, stopped and followed ones, in a fixed mixture."""
    engine, rng, report = Engine(tiny_qwen()), random.Random(seed), Report()
    pixels = np.random.default_rng(seed).integers(0, 256, (4, 30, 40, 3), dtype=np.uint8)
    pictures = [Image.fromarray(p).resize((160, 120)) for p in pixels]
    kinds = itertools.cycle(KINDS)
    for number, kind in tqdm(zip(range(requests), kinds, strict=False), total=requests):
        which = number % len(COLUMNS)
        question = "" if kind == "refused" else f"What is number {rng.randrange(1000)}?"
        started = time.perf_counter()
        try:
            request = make_request(pictures[number % 4], question, 6)
        except UserError:
            wrong = "" if kind == "refused" else "refused"
        else:
            wrong = one(engine, request, COLUMNS[which], kind)
        if kind == "good":
            report.seconds.append((which, time.perf_counter() - started))
        if wrong:
            report.wrong.append(f"request {number}, {kind}: {wrong}")
        if number % 10 == 9:
            gc.collect()
        report.megabytes.append(resident_megabytes())
    return report


def one(engine: Engine, request: Request, columns: dict[str, Settings], kind: str) -> str:
    """Ask in one of the `KINDS` of ways; what went wrong, or nothing."""
    stop, talk = threading.Event(), Conversation()
    events = engine.compare(
        request, columns, stop, conversation=talk if kind == "followed" else None
    )
    if kind == "abandoned":
        next(event for event in events if isinstance(event, Token))
        events.close()  # type: ignore[attr-defined]
        return ""
    got = []
    for event in events:
        got.append(event)
        if kind == "stopped" and isinstance(event, Token):
            stop.set()
    if kind == "followed":
        got = list(engine.follow(talk, "And then?", 4))
        talk.close()
    finished = sum(isinstance(event, Finished) for event in got)
    failed = any(isinstance(event, Failed | Restarted) for event in got)
    return str(got[-1]) if failed or finished != len(columns) else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    report = run(max(options.requests, 6 * WARM_UP), options.seed)
    print(f"{report.growth:+.4f} MB a request, pace {report.slowdown:.2f}, ", end="")
    print(f"{len(report.wrong)} wrong, {report.megabytes[-1]:.0f} MB held")
    for line in report.wrong:
        print(line)
    held = report.growth <= MEGABYTES_A_REQUEST and report.slowdown <= PACE
    return 0 if held and not report.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
