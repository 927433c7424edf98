"""Number and speed of clients that are answered at once: together by the scheduler, and in turns.

`serving`: Qwen2.5-VL-7B's shapes with random weights on a GPU, 2,880 visual tokens, 64 clients at
random times with answers of mixed lengths. Tokens a second against answering in turns and against
dense caches, the time between a client's tokens, how many clients fit in the memory that dense ones
take, how often a step is captured, and how soon a vanished client's bytes are free. What fails is
said, and the rest goes on. `serving-cores`: the embedded model on this machine, 16 clients with
pictures of their own.
"""

import random
import statistics
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from unittest import mock

import torch

from benchmarks.full_families import noise, qwen
from benchmarks.harness import chosen, say
from rotatek.cache.device_timing import synchronise
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import decode
from rotatek.engine.device_turns import DeviceTurns
from rotatek.engine.engine import Engine
from rotatek.engine.events import Failed, Token
from rotatek.engine.prefill import SharedPrompt, empty_cache, fill
from rotatek.inputs.limits import Limits
from rotatek.inputs.request import Request, make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from tests.tiny import tiny_qwen

Row = dict[str, Any]
MIXED: Final = "mixed"  # clients take the settings in turn
SETTINGS: Final = {
    "dense": BASELINE,
    "k=d/4": Settings.of(keep_channels=0.25),
    "bits 0.75": Settings.of(bits=0.75),
    "adaptive 1/8": Settings.of(
        keep_channels=0.125, widths="adaptive", values="rotate", keep_values=0.125
    ),
}
ON_CORES: Final = {
    "dense": BASELINE,
    "RotateK k=d/4": Settings.of(keep_channels=0.25),
    "RotateK k=r=d/4": Settings.of(keep_channels=0.25, values="rotate", keep_values=0.25),
}
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
WORDS: Final = "What is written on the document in the middle of the picture and who has signed it "


@dataclass
class Run:
    """The costs of one way of answering."""

    answers: int
    seconds: float = 0.0
    cpu_s: float = 0.0  # of this process: what a busy machine cannot blur
    tokens: int = 0
    gaps: list[float] = field(default_factory=list)  # seconds between two tokens of one client
    first: list[float] = field(default_factory=list)  # seconds from a client's arrival to a token
    said: dict[int, list[int]] = field(default_factory=dict)
    peak_rows: int = 0
    bytes_a_client: float = 0.0  # of the batch's rows (4, 16, 32 or 64), in use or not
    steps: int = 0
    failed: int = 0

    def figures(self) -> Row:
        """A row of the report; milliseconds are those between a client's tokens."""
        gaps = sorted(self.gaps) or [0.0]
        median, p99 = statistics.median(gaps), gaps[int(0.99 * (len(gaps) - 1))]
        return {
            "tokens_s": self.tokens / self.seconds, "answers_s": self.answers / self.seconds,
            "seconds": self.seconds, "cpu_s": self.cpu_s, "median_ms": 1e3 * median,
            "p99_ms": 1e3 * p99, "most_ms": 1e3 * gaps[-1], "ratio": p99 / (median or 1.0),
            "first_s": statistics.median(self.first or [0.0]), "rows": self.peak_rows,
            "bytes_a_client": self.bytes_a_client, "mb_client": self.bytes_a_client / 1e6,
            "steps": self.steps, "failed": self.failed,
        }  # fmt: skip


def requests(count: int, side: tuple[int, int], tokens: int) -> list[Request]:
    """Questions of mixed lengths with answers of mixed limits, each about its own picture."""
    made, chance = [], random.Random(0)
    for number in range(count):
        words = (WORDS * 4).split()[: chance.randint(4, 40)]
        limit = max(1, round(tokens * chance.uniform(0.75, 1.25)))
        made.append(make_request(noise(*side, 28, number), " ".join(words) + "?", limit))
    return made


def in_turns(vlm: VisionLanguageModel, work: list[Request], settings: Settings) -> Run:
    """One after the other, every step for one client: what taking turns costs in all."""
    run = Run(answers=len(work))
    started, cpu = time.perf_counter(), time.process_time()
    for number, request in enumerate(work):
        with torch.inference_mode():
            shared = SharedPrompt(vlm, vlm.prompt(request))
            shared.see(settings)
            embedded, plan, _ = shared.under(settings)
            cache = empty_cache(vlm, embedded, settings, plan)
            logits, _ = fill(vlm, embedded, plan, [cache])
            graph = vlm.device.type == "cuda"
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
    """All clients by the scheduler, with settings in turn; they arrive at random within `over_s`
    seconds, and the tokens of `limit_s` seconds count."""
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
            run.peak_rows = rows
            run.bytes_a_client = engine.scheduler.bytes / max(rows, engine.scheduler.places)
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    run.cpu_s = time.process_time() - cpu
    run.failed = len(failed)
    run.seconds, run.steps = time.perf_counter() - started, engine.state().steps - before
    return run


def without_stops() -> Any:
    """While this lasts, answers are as long as they may be."""
    return mock.patch.object(VisionLanguageModel, "stop_ids", property(lambda _: frozenset()))


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


def vanished(engine: Engine, work: list[Request], settings: Settings) -> Row:
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


def stages(engine: Engine, request: Request, settings: Settings) -> Row:
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


def one_by_one(vlm: VisionLanguageModel, work: list[Request], settings: Settings) -> Row:
    """The same in turns; the first one compiles what only rows by themselves need."""
    in_turns(vlm, work[:1], settings)
    alone = in_turns(vlm, work, settings)
    return {"turns_tokens_s": alone.tokens / alone.seconds, "turns_cpu_s": alone.cpu_s}


def parts(
    vlm: VisionLanguageModel, name: str, work: list[Request], few: int, over: float, limit: float
) -> Mapping[str, Callable[[], Row]]:
    """The measurements of one setting, one by one. All clients run until no kernel is left to be
    compiled, three times at most, and once more: the first time is kept under another name."""
    engine = Engine(vlm, limits=Limits(), graphs=vlm.device.type == "cuda")
    settings = list(SETTINGS.values()) if name == MIXED else SETTINGS[name]

    def crowd() -> Row:
        engine.pictures.clear()
        before = engine.scheduler.captures
        engine.scheduler._turns = device = Held()
        found = together(engine, work, settings, over, limit).figures()
        captures = engine.scheduler.captures - before
        return found | {"captures": captures, "held_ms": device.told()}

    def first() -> Row:
        found = again = crowd()
        for _ in range(2):
            if max(held[-1] for held in again["held_ms"].values()) < COMPILING_MS:
                break
            again = crowd()
        return {f"first_{key}": found[key] for key in ("tokens_s", "captures", "seconds", "cpu_s")}

    measured: dict[str, Callable[[], Row]] = {"first": first, "together": crowd}
    if isinstance(settings, Settings):
        measured["turns"] = lambda: one_by_one(vlm, work[:few], settings)
        measured["stages"] = partial(stages, engine, work[0], settings)
        measured["vanished"] = partial(vanished, engine, work, settings)
    return measured


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


def serving(
    tiny: bool = False,
    clients: int = 64,
    tokens: int = 128,
    turns: int = 6,
    over: float = 2.0,
    limit: float = 45.0,
    settings: Sequence[str] | None = None,
) -> Iterator[Row]:
    """Everything on a GPU; the report grows part by part."""
    started = time.perf_counter()
    vlm, side = (tiny_qwen(), (224, 168)) if tiny else (qwen(2880), SIDES)
    work = requests(clients, side, tokens)
    report: Row = {"clients": clients, "rows": {}}
    for name in chosen(settings, [*SETTINGS, MIXED]):
        row: Row = report["rows"].setdefault(name, {})
        for part, measure in parts(vlm, name, work, turns, over, limit).items():
            try:
                with without_stops():
                    row |= measure()
            except Exception:
                row.setdefault("errors", {})[part] = traceback.format_exc(limit=-4)
                say(f"{name}, {part}: {row['errors'][part]}")
            report["seconds"] = time.perf_counter() - started
            report["bars"] = verdicts(report["rows"])
            yield report
        say(name, row)


def serving_cores(
    tiny: bool = False,
    clients: int = 16,
    tokens: int = 64,
    turns: int = 0,
    over: float = 0.0,
    limit: float | None = None,
    settings: Sequence[str] | None = None,
    endless: bool = False,
    rounds: int = 1,
) -> Row:
    """Of every setting the medians over the rounds: answers a second both ways, their ratio.

    turns: so many clients are asked in turns; 0 is all. endless: answers are as long as they may
    be. Also says how often an answer differs from the one that is given in turns.
    """
    vlm = tiny_qwen() if tiny else Engine("pocket").vlm
    work = requests(clients, (448, 336), tokens)
    report: Row = {"clients": clients, "cores": torch.get_num_threads()}
    with without_stops() if endless or tiny else nullcontext():
        for name in chosen(settings, ON_CORES):
            one = ON_CORES[name]
            engine = Engine(vlm, limits=Limits(), graphs=vlm.device.type == "cuda")
            rates: dict[str, list[float]] = {"together": [], "turns": []}
            alone: dict[int, list[int]] = {}
            for _ in range(rounds):
                both = together(engine, work, one, over, limit)
                engine.pictures.clear()
                apart = in_turns(vlm, work[: turns or len(work)], one)
                alone = alone or apart.said
                for way, run in (("together", both), ("turns", apart)):
                    same = sum(run.said[number] == said for number, said in alone.items())
                    row = run.figures() | {"as alone": f"{same} of {len(alone)}"}
                    say(f"{name}: {way}", row)
                    rates[way].append(row["answers_s"])
            median = {way: statistics.median(each) for way, each in rates.items()}
            report[name] = median | {"times": median["together"] / median["turns"]}
    return {"64 tokens" if endless else "as they end": report}
