"""How fast many clients are answered: `python -m benchmarks.serving_speed`. In turns, and together.

By default the embedded model on this machine, 16 clients with pictures of their own. With `--full`
Qwen2.5-VL-7B's shapes with random weights on a GPU, 64 clients who arrive at random; with `--tiny`
the same on random tiny models, which tries the script out.
"""

import argparse
import json
import random
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import decode
from rotatek.engine.engine import Engine
from rotatek.engine.events import Failed, Token
from rotatek.engine.prefill import SharedPrompt, empty_cache, fill
from rotatek.inputs.limits import Limits
from rotatek.inputs.request import Request, make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel

SETTINGS = {
    "dense": BASELINE,
    "RotateK k=d/4": Settings.of(keep_channels=0.25),
    "RotateK k=r=d/4": Settings.of(keep_channels=0.25, values="rotate", keep_values=0.25),
}
WORDS = "What is written on the document in the middle of the picture and who has signed it "


@dataclass
class Run:
    """What one way of answering took."""

    seconds: float = 0.0
    cpu_s: float = 0.0  # of this process: what a busy machine cannot blur
    answers: int = 0
    tokens: int = 0
    gaps: list[float] = field(default_factory=list)  # seconds between two tokens of one client
    first: list[float] = field(default_factory=list)  # seconds from a client's arrival to a token
    said: dict[int, list[int]] = field(default_factory=dict)
    peak_rows: int = 0
    bytes_a_row: float = 0.0
    bytes_a_place: float = 0.0  # of those that the batch has (4, 16, 32 or 64), in use or not
    steps: int = 0
    failed: int = 0

    def row(self, name: str) -> str:
        """One line of the table."""
        gaps = sorted(self.gaps) or [0.0]
        median, p99 = statistics.median(gaps), gaps[int(0.99 * (len(gaps) - 1))]
        first = statistics.median(self.first) if self.first else 0.0
        return (
            f"{name:34} {self.tokens / self.seconds:9.1f} {self.answers / self.seconds:8.3f} "
            f"{self.seconds:7.1f} {1000 * median:8.1f} {1000 * p99:8.1f} "
            f"{p99 / (median or 1):6.2f} {1000 * max(gaps):8.1f} {first:7.2f} "
            f"{self.peak_rows:5} {self.bytes_a_row / 1e6:9.2f} {self.cpu_s:7.1f} "
            f"{self.steps:6} {self.failed:6}"
        )


HEAD = (
    f"{'':34} {'tokens/s':>9} {'answ./s':>8} {'s':>7} {'gap ms':>8} {'p99':>8} {'ratio':>6} "
    f"{'max':>8} {'first s':>7} {'rows':>5} {'MB/row':>9} {'CPU s':>7} {'steps':>6} {'failed':>6}"
)


def requests(count: int, side: tuple[int, int], tokens: int, pictures: int) -> list[Request]:
    """Questions of mixed lengths with answers of mixed limits, about so many pictures."""
    made, chance = [], random.Random(0)
    for number in range(count):
        noise = np.random.default_rng(number % pictures)
        grain = noise.integers(0, 256, (side[1] // 28, side[0] // 28, 3), dtype=np.uint8)
        image = Image.fromarray(grain).resize(side, Image.Resampling.BICUBIC)
        words = (WORDS * 4).split()[: chance.randint(4, 40)]
        limit = max(1, round(tokens * chance.uniform(0.75, 1.25)))
        made.append(make_request(image, " ".join(words) + "?", limit))
    return made


def turns(vlm: VisionLanguageModel, work: list[Request], settings: Settings, graph: bool) -> Run:
    """One after the other, every step for one client: what taking turns costs in all."""
    run = Run(answers=len(work))
    started, cpu = time.perf_counter(), time.process_time()
    for number, request in enumerate(work):
        with torch.inference_mode():
            shared = SharedPrompt(vlm, vlm.prompt(request))
            shared.see(settings.pruning)
            embedded, plan, _ = shared.under(settings.pruning)
            cache = empty_cache(vlm, embedded, settings, plan)
            logits, _ = fill(vlm, embedded, plan, [cache])
            if isinstance(cache, RotateKCache):
                cache.graph = graph
            steps = decode(vlm, embedded, cache, logits, request.max_new_tokens)
            said = [step.tokens[0] for step in steps]
        run.said[number] = [token for token in said if token not in vlm.stop_ids]
        run.tokens += len(said)
    run.seconds, run.cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return run


def together(
    engine: Engine,
    work: list[Request],
    settings: Settings | Sequence[Settings],
    over_s: float,
    limit_s: float | None = None,
) -> Run:
    """Everybody by the scheduler, with settings that clients take in turn; clients arrive at random
    within `over_s` seconds, and what they have after `limit_s` counts."""
    each = [settings] if isinstance(settings, Settings) else settings
    run, guard, failed = Run(answers=len(work)), threading.Lock(), []
    chance = random.Random(1)
    arrivals = [chance.uniform(0, over_s) for _ in work]
    before, stop = engine.state().steps, threading.Event()
    started, cpu = time.perf_counter(), time.process_time()

    def client(number: int) -> None:
        time.sleep(arrivals[number])
        arrived = time.perf_counter()
        said, gaps, last, first = [], [], None, 0.0
        for event in engine.compare(
            work[number], {"x": each[number % len(each)]}, stop, trace=False
        ):
            now = time.perf_counter()
            if isinstance(event, Failed):
                failed.append(event.message)
            if isinstance(event, Token):
                said.append(event.token_id)
                if last is not None:
                    gaps.append(now - last)
                last, first = now, first or now - arrived
        with guard:
            run.said[number], run.tokens = said, run.tokens + len(said)
            run.gaps += gaps
            run.first.append(first)

    threads = [threading.Thread(target=client, args=(n,), daemon=True) for n in range(len(work))]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if limit_s is not None and time.perf_counter() - started > limit_s:
            stop.set()
        rows = engine.scheduler.running
        if rows > run.peak_rows:
            held, places = engine.scheduler.bytes, engine.scheduler.places
            run.peak_rows, run.bytes_a_row = rows, held / rows
            run.bytes_a_place = held / max(rows, places)
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    run.cpu_s = time.process_time() - cpu
    run.failed = len(failed)
    run.seconds, run.steps = time.perf_counter() - started, engine.state().steps - before
    return run


def model(args: argparse.Namespace) -> VisionLanguageModel:
    """The model that is asked for."""
    if args.full:
        from benchmarks.full_size import qwen  # noqa: PLC0415

        return qwen()
    if args.tiny:
        from tests.tiny import tiny_qwen  # noqa: PLC0415

        return tiny_qwen()
    return Engine("pocket").vlm


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="7B shapes, random weights, a GPU")
    parser.add_argument("--tiny", action="store_true", help="tiny random weights")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--turns", type=int, default=0, help="clients asked in turns; 0 is all")
    parser.add_argument("--tokens", type=int, default=64, help="of an answer, on average at most")
    parser.add_argument(
        "--pictures", type=int, default=0, help="different ones; 0 is a client's own"
    )
    parser.add_argument("--over", type=float, default=0.0, help="seconds in which clients arrive")
    parser.add_argument("--limit", type=float, help="seconds that a way of answering may take")
    parser.add_argument("--endless", action="store_true", help="answers as long as they may be")
    parser.add_argument("--rounds", type=int, default=1, help="turns and together, alternating")
    parser.add_argument("--json", type=Path, help="keep the medians here, beside others'")
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS)[:2])
    return parser.parse_args()


def ways(args: argparse.Namespace, vlm: VisionLanguageModel) -> Iterator[tuple[str, Run]]:
    """Every way of answering, measured."""
    side = (1680, 1344) if args.full else (448, 336)
    work = requests(args.clients, side, args.tokens, args.pictures or args.clients)
    few = work[: args.turns or len(work)]
    cuda = vlm.device.type == "cuda"
    for name in args.settings:
        settings = SETTINGS[name]
        engine = Engine(vlm, limits=Limits(), graphs=cuda)
        how = f"{name}, graphs" if cuda else name
        if cuda:  # compile the kernels of every size
            first = requests(args.clients, side, 16, 2)
            yield f"{how}: compiling", together(engine, first, settings, 0.0, args.limit)
            engine.pictures.clear()
        for _ in range(args.rounds):
            yield f"{how}: together", together(engine, work, settings, args.over, args.limit)
            engine.pictures.clear()
            yield f"{how}: turns", turns(vlm, few, settings, cuda)


def summary(found: Sequence[tuple[str, Run]]) -> dict[str, Any]:
    """Of every setting the medians over the rounds: answers a second both ways, their ratio."""
    rows: dict[str, dict[str, list[float]]] = {}
    for name, run in found:
        setting, way = name.split(": ")
        if way in ("together", "turns"):
            each = rows.setdefault(setting, {}).setdefault(way, [])
            each.append(run.answers / run.seconds)
    told: dict[str, Any] = {"clients": found[0][1].answers, "cores": torch.get_num_threads()}
    for setting, ways_of in rows.items():
        median = {way: statistics.median(rates) for way, rates in ways_of.items()}
        told[setting] = median | {"times": median["together"] / median["turns"]}
    return told


def main() -> None:
    """Print the table, and how often an answer differs from the one given alone."""
    args, started = parsed(), time.perf_counter()
    vlm = model(args)
    print(f"model made in {time.perf_counter() - started:.0f} s", flush=True)  # noqa: T201
    if args.full or args.tiny or args.endless:
        type(vlm).stop_ids = property(lambda _: frozenset())  # type: ignore[assignment,method-assign]
    print(HEAD, flush=True)  # noqa: T201
    found: list[tuple[str, Run]] = []
    for name, run in ways(args, vlm):
        found.append((name, run))
        print(run.row(name), flush=True)  # noqa: T201
    said: dict[str, dict[int, list[int]]] = {}
    for name, run in found:
        if name.endswith("turns"):
            said.setdefault(name.split(":")[0], run.said)
    for name, run in found:
        alone = said.get(name.split(":")[0], {})
        both = [number for number in run.said if number in alone]
        same = sum(run.said[number] == alone[number] for number in both)
        if not name.endswith("compiling"):
            print(f"{name}: {same} of {len(both)} answers as in turns")  # noqa: T201
    if args.json:
        kept = json.loads(args.json.read_text()) if args.json.exists() else {}
        kept["64 tokens" if args.endless else "as they end"] = summary(found)
        args.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
