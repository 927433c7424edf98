"""What one GPU serves at once: `OUT=. python -m benchmarks.serving_gpu`. About six minutes.

Qwen2.5-VL-7B's shapes with random weights, 2,880 visual tokens, 64 clients at random times with
answers of mixed lengths: tokens a second against answering in turns and against dense caches, the
time between a client's tokens, how many clients fit in the memory that dense ones take, how often a
step is captured, and how soon a vanished client's bytes are free. One way of answering after the
other; what fails is told, and the others go on. `--tiny` tries the script out on a CPU, `--only`
takes some settings.
"""

import argparse
import json
import os
import statistics
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.serving_speed import Run, requests, together, turns
from rotatek.cache.device_timing import synchronise
from rotatek.engine.device_turns import DeviceTurns
from rotatek.engine.engine import Engine
from rotatek.engine.events import Token
from rotatek.inputs.limits import Limits
from rotatek.inputs.request import Request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from tests.tiny import tiny_qwen

SETTINGS: Final = {
    "dense": BASELINE,
    "k=d/4": Settings.of(keep_channels=0.25),
    "bits 0.75": Settings.of(bits=0.75),
    "adaptive 1/8": Settings.of(
        keep_channels=0.125, widths="adaptive", values="rotate", keep_values=0.125
    ),
}
MIXED: Final = "mixed"  # clients take the settings in turn
SIDES: Final = (1680, 1344)  # pixels: 2,880 visual tokens
BARS: Final = {
    "k=d/4, over turns": 10.0,
    "bits 0.75, over turns": 10.0,
    "k=d/4, p99 over median": 3.0,
    "bits 0.75, p99 over median": 3.0,
    "k=d/4, clients": 1.5,
    "bits 0.75, clients": 4.0,
}
COMPILING_MS: Final = 1000.0  # a turn at the device as long as this one compiled a kernel
TABLE: Final = (
    "tokens_s", "turns_tokens_s", "median_ms", "p99_ms", "ratio", "pixels_ms", "tower_ms",
    "first_token_ms", "mb_client", "rows", "steps",
    "captures", "cpu_s", "seconds", "failed", "left_bytes",
)  # fmt: skip


class Held(DeviceTurns):
    """Turns at the device that remember how long each was: what a step may have waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._began = 0.0
        self._who = ""
        self._seconds = defaultdict[str, list[float]](list)

    def __enter__(self) -> None:
        super().__enter__()
        self._who = sys._getframe(1).f_code.co_name
        self._began = time.perf_counter()

    def __exit__(self, *raised: Any) -> None:
        self._seconds[self._who].append(time.perf_counter() - self._began)
        super().__exit__(*raised)

    def told(self) -> dict[str, list[float]]:
        """By who had it (`checkpoint` is a prefill that goes on): turns, and milliseconds in the
        median, at the 99th percentile and at most."""
        found: dict[str, list[float]] = {}
        for who, held in self._seconds.items():
            ms = [1e3 * seconds for seconds in sorted(held)]
            found[who] = [len(ms), *(ms[int(q * (len(ms) - 1))] for q in (0.5, 0.99, 1))]
        return found


def spread(run: Run) -> dict[str, float]:
    """Milliseconds between a client's tokens."""
    gaps = sorted(run.gaps) or [0.0]
    median, p99 = statistics.median(gaps), gaps[int(0.99 * (len(gaps) - 1))]
    worst = gaps[-1]
    return {"median_ms": 1e3 * median, "p99_ms": 1e3 * p99, "most_ms": 1e3 * worst} | {
        "ratio": p99 / (median or 1.0)
    }


def vanished(engine: Engine, work: list[Request], settings: Settings) -> dict[str, float]:
    """Bytes that others may take once a client has gone, and how many steps later."""
    stays, leaves = (engine.compare(one, {"x": settings}, trace=False) for one in work[:2])
    for events in (stays, leaves):
        while not isinstance(next(events), Token):
            pass
    held, step = engine.admission.leased, engine.state().steps
    leaves.close()  # type: ignore[attr-defined]
    freed = held - engine.admission.leased
    rest = engine.state().steps - step
    stays.close()  # type: ignore[attr-defined]
    return {"freed_bytes": freed, "steps_later": rest, "left_bytes": engine.state().live_bytes}


def crowd(
    engine: Engine, work: list[Request], settings: Settings | list[Settings], args: Any
) -> dict[str, Any]:
    """Everybody together. A client's bytes are those of a place in the batch: what is really held,
    padding included."""
    engine.pictures.clear()
    before = engine.scheduler.captures
    engine.scheduler._turns = device = Held()
    run = together(engine, work, settings, args.over, args.limit)
    return {
        "tokens_s": run.tokens / run.seconds,
        "bytes_a_client": run.bytes_a_place,
        "mb_client": run.bytes_a_place / 1e6,
        "rows": run.peak_rows,
        "steps": run.steps,
        "captures": engine.scheduler.captures - before,
        "failed": run.failed,
        "cpu_s": run.cpu_s,
        "seconds": run.seconds,
        "held_ms": device.told(),
    } | spread(run)


def stages(engine: Engine, request: Request, settings: Settings) -> dict[str, float]:
    """Milliseconds until one client alone has his first token, and of what comes before the
    language model: pixels and tower, each waited for; medians of three."""
    vlm, times = engine.vlm, list[tuple[float, float, float]]()
    for _ in range(4):  # the first one compiles
        engine.pictures.clear()
        began = time.perf_counter()
        with torch.inference_mode():
            pixels = vlm.look(request)
            synchronise(vlm.device)
            looked = time.perf_counter()
            vlm.features(pixels)
            synchronise(vlm.device)
        seen = time.perf_counter()
        answer = engine.compare(request, {"x": settings}, trace=False)
        while not isinstance(next(answer), Token):
            pass
        times.append((looked - began, seen - looked, time.perf_counter() - seen))
        answer.close()  # type: ignore[attr-defined]
    names = ("pixels_ms", "tower_ms", "first_token_ms")
    columns = zip(*times[1:], strict=True)
    return {n: 1e3 * statistics.median(column) for n, column in zip(names, columns, strict=True)}


def one_by_one(
    vlm: VisionLanguageModel, work: list[Request], settings: Settings, cuda: bool
) -> dict[str, float]:
    """The same in turns; the first one compiles what only rows by themselves need."""
    turns(vlm, work[:1], settings, cuda)
    alone = turns(vlm, work, settings, cuda)
    return {"turns_tokens_s": alone.tokens / alone.seconds, "turns_cpu_s": alone.cpu_s}


def measurements(
    vlm: VisionLanguageModel, name: str, work: list[Request], args: argparse.Namespace
) -> Mapping[str, Callable[[], dict[str, float]]]:
    """What is measured of one setting, part by part. Everybody comes until no kernel is left to be
    compiled, three times at most, and once more: the first time is kept under another name."""
    cuda = vlm.device.type == "cuda"
    engine = Engine(vlm, limits=Limits(), graphs=cuda)
    settings = list(SETTINGS.values()) if name == MIXED else SETTINGS[name]

    def first() -> dict[str, float]:
        found = again = crowd(engine, work, settings, args)
        for _ in range(2):
            if max(held[-1] for held in again["held_ms"].values()) < COMPILING_MS:
                break
            again = crowd(engine, work, settings, args)
        return {f"first_{key}": found[key] for key in ("tokens_s", "captures", "seconds", "cpu_s")}

    parts: dict[str, Callable[[], dict[str, float]]] = {}
    parts |= {"first": first, "together": partial(crowd, engine, work, settings, args)}
    if isinstance(settings, Settings):
        parts["turns"] = partial(one_by_one, vlm, work[: args.turns], settings, cuda)
        parts["stages"] = partial(stages, engine, work[0], settings)
        parts["vanished"] = partial(vanished, engine, work, settings)
    return parts


def verdicts(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Each bar: what was found (None where that failed), what is wanted, and whether it is held."""
    verdict: dict[str, list[Any]] = {}
    for bar, wanted in BARS.items():
        name, what = bar.split(", ")
        row, dense = rows.get(name, {}), rows.get("dense", {})
        over, under = {
            "over turns": (row.get("tokens_s"), row.get("turns_tokens_s")),
            "p99 over median": (row.get("p99_ms"), row.get("median_ms")),
            "clients": (dense.get("bytes_a_client"), row.get("bytes_a_client")),
        }[what]
        found = over / under if over is not None and under else None
        less = what == "p99 over median"
        held = found is not None and (found <= wanted if less else found >= wanted)
        verdict[bar] = [found, wanted, held]
    return verdict


def model(tiny: bool) -> tuple[VisionLanguageModel, tuple[int, int]]:
    """Random weights of Qwen2.5-VL-7B's shapes, or tiny ones, and the sides of its pictures."""
    if tiny:
        return tiny_qwen(), (224, 168)
    from benchmarks.full_size import qwen  # noqa: PLC0415

    vlm = qwen()
    vlm.images.size = {"shortest_edge": 56 * 56, "longest_edge": SIDES[0] * SIDES[1]}
    return vlm, SIDES


def parsed(words: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_gpu", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="random tiny weights")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128, help="of an answer, on average")
    parser.add_argument("--turns", type=int, default=6, help="clients that are asked in turns")
    parser.add_argument("--over", type=float, default=2.0, help="seconds in which clients arrive")
    parser.add_argument("--limit", type=float, default=45.0, help="seconds of one run, at most")
    every = [*SETTINGS, MIXED]
    parser.add_argument("--only", nargs="*", choices=every, default=every, metavar="SETTING")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> dict[str, Any]:
    """Print a table and the bars; with OUT set, write `serving_gpu.json` after every part."""
    args, started = parsed(words), time.perf_counter()
    vlm, side = model(args.tiny)
    VisionLanguageModel.stop_ids = property(lambda _: frozenset())  # type: ignore[assignment,method-assign]
    work = requests(args.clients, side, args.tokens, args.clients)
    report: dict[str, Any] = {"torch": torch.__version__, "device": str(vlm.device)}
    report |= {"clients": args.clients, "rows": {}}
    for name in args.only:
        row: dict[str, Any] = report["rows"].setdefault(name, {})
        for part, measure in measurements(vlm, name, work, args).items():
            try:
                row |= measure()
            except Exception:
                row.setdefault("errors", {})[part] = traceback.format_exc(limit=-4)
                print(f"{name}, {part}: {row['errors'][part]}", flush=True)  # noqa: T201
            report["seconds"] = time.perf_counter() - started
            report["bars"] = verdicts(report["rows"])
            _write(report)
        said = ", ".join(f"{key} {row[key]:.4g}" for key in TABLE if key in row)
        print(f"{name}: {said}; {row.get('held_ms')}", flush=True)  # noqa: T201
    for name, (found, wanted, held) in report["bars"].items():
        what = "not measured" if found is None else f"{found:.2f}"
        print(f"{name}: {what}, bar {wanted}: {'held' if held else 'missed'}")  # noqa: T201
    return report


def _write(report: dict[str, Any]) -> None:
    out = os.environ.get("OUT")
    if out:
        Path(out, "serving_gpu.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
