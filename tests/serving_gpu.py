"""What one GPU serves at once: `OUT=. python -m tests.serving_gpu`. About five minutes.

Qwen2.5-VL-7B's shapes with random weights, 2,880 visual tokens, 64 clients at random times with
answers of mixed lengths: tokens a second against answering in turns and against dense caches, the
time between a client's tokens, how many clients fit in the memory that dense ones take, and how
soon a vanished client's bytes are free. `--tiny` tries the script out on a CPU.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Final

import torch

from rotatek.engine import Engine
from rotatek.events import Token
from rotatek.inputs import Request
from rotatek.limits import Limits
from rotatek.models import VisionLanguageModel
from rotatek.settings import BASELINE, Settings
from tests.serving_speed import Run, requests, together, turns
from tests.tiny import tiny_qwen

SETTINGS: Final = {
    "dense": BASELINE,
    "k=d/4": Settings.of(keep_channels=0.25),
    "bits 0.75": Settings.of(bits=0.75),
}
BARS: Final = {"speed": 10.0, "p99": 3.0, "k=d/4": 1.5, "bits 0.75": 4.0}


def spread(run: Run) -> dict[str, float]:
    """Milliseconds between a client's tokens."""
    gaps = sorted(run.gaps) or [0.0]
    median, p99 = statistics.median(gaps), gaps[int(0.99 * (len(gaps) - 1))]
    worst = gaps[-1]
    return {"median_ms": 1e3 * median, "p99_ms": 1e3 * p99, "most_ms": 1e3 * worst} | {
        "ratio": p99 / (median or 1.0)
    }


def vanished(engine: Engine, work: list[Request], settings: Settings) -> dict[str, int]:
    """Bytes that a client's caches hold, and how many steps they outlive it."""
    stays, leaves = (engine.compare(one, {"x": settings}, trace=False) for one in work[:2])
    for events in (stays, leaves):
        while not isinstance(next(events), Token):
            pass
    held, step = engine.state().live_bytes, engine.state().steps
    leaves.close()  # type: ignore[attr-defined]
    freed = held - engine.state().live_bytes
    rest = engine.state().steps - step
    stays.close()  # type: ignore[attr-defined]
    return {"freed_bytes": freed, "steps_later": rest, "left_bytes": engine.state().live_bytes}


def measure(
    vlm: VisionLanguageModel, name: str, work: list[Request], args: argparse.Namespace
) -> dict[str, Any]:
    """One setting: everybody together, twice, so that the second run compiles nothing; in turns;
    and a client that vanishes."""
    cuda, settings = vlm.device.type == "cuda", SETTINGS[name]
    engine = Engine(vlm, limits=Limits(), graphs=cuda)
    together(engine, work, settings, args.over, args.limit)
    engine.pictures.clear()
    run = together(engine, work, settings, args.over, args.limit)
    alone = turns(vlm, work[: args.turns], settings, cuda)
    row: dict[str, Any] = {
        "tokens_s": run.tokens / run.seconds,
        "turns_tokens_s": alone.tokens / alone.seconds,
        "bytes_a_client": run.held_bytes / max(1, run.peak_rows),
        "room_bytes_a_row": run.bytes_a_row,
        "rows": run.peak_rows,
        "steps": run.steps,
        "failed": run.failed,
        "cpu_s": run.cpu_s,
        "seconds": run.seconds,
    }
    return row | spread(run) | vanished(engine, work, settings)


def verdicts(rows: dict[str, dict[str, Any]]) -> dict[str, list[Any]]:
    """Each bar: what was found, what is wanted, and whether it is held."""
    ours, dense = rows["k=d/4"], rows["dense"]
    found = {"speed": ours["tokens_s"] / ours["turns_tokens_s"], "p99": ours["ratio"]}
    for name in ("k=d/4", "bits 0.75"):
        found[name] = dense["bytes_a_client"] / rows[name]["bytes_a_client"]
    held = {name: value >= BARS[name] for name, value in found.items()}
    held["p99"] = found["p99"] <= BARS["p99"]
    return {name: [value, BARS[name], held[name]] for name, value in found.items()}


def parsed(words: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.serving_gpu", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="random tiny weights")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128, help="of an answer, on average")
    parser.add_argument("--turns", type=int, default=6, help="clients that are asked in turns")
    parser.add_argument("--over", type=float, default=2.0, help="seconds in which clients arrive")
    parser.add_argument("--limit", type=float, default=45.0, help="seconds of one run, at most")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> dict[str, Any]:
    """Print the table; with OUT set, write it as `serving_gpu.json` after every setting."""
    args, started = parsed(words), time.perf_counter()
    if args.tiny:
        vlm = tiny_qwen()
    else:
        from tests.full_size import qwen  # noqa: PLC0415

        vlm = qwen()
    VisionLanguageModel.stop_ids = property(lambda _: frozenset())  # type: ignore[assignment,method-assign]
    side = (224, 168) if args.tiny else (1680, 1344)
    work = requests(args.clients, side, args.tokens, args.clients)
    report: dict[str, Any] = {"torch": torch.__version__, "device": str(vlm.device), "rows": {}}
    for name in SETTINGS:
        row = report["rows"][name] = measure(vlm, name, work, args)
        report["seconds"] = time.perf_counter() - started
        said = ", ".join(f"{key} {value:.4g}" for key, value in row.items())
        print(f"{name}: {said}", flush=True)  # noqa: T201
        _write(report)
    report["bars"] = verdicts(report["rows"])
    for name, (found, wanted, held) in report["bars"].items():
        print(f"{name}: {found:.2f}, bar {wanted}: {'held' if held else 'missed'}")  # noqa: T201
    _write(report)
    return report


def _write(report: dict[str, Any]) -> None:
    out = os.environ.get("OUT")
    if out:
        Path(out, "serving_gpu.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
