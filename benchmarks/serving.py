"""Clients that the engine answers at once, beside the same ones in turns, at a 7B model's shapes.

Each client asks about a picture of his own, of 2,880 visual tokens, and comes at a random time;
answers have mixed lengths and no end before them. All clients run once to compile, then once more.
"""

import argparse
import random
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final
from unittest import mock

from benchmarks.full_qwen import SETTINGS, model_and_sides, noise
from benchmarks.timing import seconds
from rotatek.engine.engine import Engine
from rotatek.engine.events import Failed, Token
from rotatek.inputs.request import Limits, Request, make_request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel

MIXED: Final = "mixed"  # clients take the settings in turn
WORDS: Final = "What is written on the document in the middle of the picture and who has signed it "


def requests(count: int, side: tuple[int, int], tokens: int) -> list[Request]:
    """Questions of mixed lengths with answers of mixed limits, each about its own picture."""
    made, chance = [], random.Random(0)
    for number in range(count):
        words = (WORDS * 4).split()[: chance.randint(4, 40)]
        limit = max(1, round(tokens * chance.uniform(0.75, 1.25)))
        made.append(make_request(noise(*side, 28, number), " ".join(words) + "?", limit))
    return made


class Crowd:
    """What one run of clients cost."""

    def __init__(self, engine: Engine, work: Sequence[Request], settings: Sequence[Settings]):
        self.engine, self.work, self.settings = engine, work, settings
        self.gaps: list[float] = []  # seconds between two tokens of one client
        self.first: list[float] = []  # seconds from a client's arrival to a token
        self.tokens = self.failed = 0
        self.seconds = self.client_bytes = 0.0
        self.guard, self.stop = threading.Lock(), threading.Event()

    def client(self, number: int, after: float = 0.0) -> None:
        """Ask one question, and note when each token came."""
        time.sleep(after)
        last = arrived = time.perf_counter()
        gaps, count = [], 0
        column = {"x": self.settings[number % len(self.settings)]}
        first = None
        for event in self.engine.compare(self.work[number], column, self.stop, trace=False):
            now = time.perf_counter()
            if isinstance(event, Failed):
                self.failed += 1
            if isinstance(event, Token):
                gaps.append(now - last)
                last, count, first = now, count + 1, first or now - arrived
        with self.guard:
            self.tokens += count
            self.gaps += gaps[1:]
            self.first += [first] if first else []

    def together(self, over: float, limit: float) -> None:
        """All at once, arriving within `over` seconds; those of `limit` seconds count."""
        chance, started = random.Random(1), time.perf_counter()
        threads = [
            threading.Thread(target=self.client, args=(n, chance.uniform(0, over)), daemon=True)
            for n in range(len(self.work))
        ]
        for thread in threads:
            thread.start()
        most = 0
        while any(thread.is_alive() for thread in threads):
            if time.perf_counter() - started > limit:
                self.stop.set()
            rows = self.engine.scheduler.running
            if rows > most:
                most = rows
                self.client_bytes = self.engine.scheduler.batch_bytes / rows
            time.sleep(0.02)
        self.seconds = time.perf_counter() - started


def figures(vlm: VisionLanguageModel, name: str, work: list[Request], few: int, over: float,
            limit: float) -> dict[str, Any]:  # fmt: skip
    """One setting's row."""
    settings = list(SETTINGS.values()) if name == MIXED else [SETTINGS[name]]
    engine = Engine(vlm, limits=Limits(), graphs=vlm.device.type == "cuda")
    for _ in range(2):  # the first one compiles
        engine.pictures.clear()
        crowd = Crowd(engine, work, settings)
        crowd.together(over, limit)
    engine.pictures.clear()
    alone = Crowd(engine, work[:few], settings)
    alone.seconds = seconds(lambda: [*map(alone.client, range(len(alone.work)))])  # in turns
    gaps, rate = sorted(crowd.gaps) or [0.0], crowd.tokens / crowd.seconds
    return {
        "setting": name, "clients": len(work), "tokens_s": rate,
        "over_turns": rate / (alone.tokens / alone.seconds),
        "first_s": statistics.median(crowd.first or [0.0]),
        "median_ms": 1e3 * statistics.median(gaps), "p99_ms": 1e3 * gaps[int(0.99 * len(gaps))],
        "client_MB": crowd.client_bytes / 1e6,
    } | ({"refused": f"{crowd.failed} clients failed"} if crowd.failed else {})  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--new", type=int, default=128, help="tokens of an answer, on average")
    parser.add_argument("--turns", type=int, default=6, help="clients that are asked in turns")
    parser.add_argument("--over", type=float, default=2.0, help="seconds in which clients arrive")
    parser.add_argument("--limit", type=float, default=45.0, help="seconds of a run")
    parser.add_argument("--settings", nargs="+", choices=(*SETTINGS, MIXED), default=[*SETTINGS])


def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    vlm, side = model_and_sides(options.tiny)
    work = requests(options.clients, side, options.new)
    none = property(lambda _: frozenset())
    with mock.patch.object(VisionLanguageModel, "stop_ids", none):  # as long as they may be
        for name in options.settings:
            yield figures(vlm, name, work, options.turns, options.over, options.limit)
