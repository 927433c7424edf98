"""Timing: CUDA graphs over many layers, arms interleaved, medians with their spread.

And calls outside a graph: by events on the device, or by the clock with the device waited for.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

COLD_BYTES = 200 << 20  # one pass over all layers reads several times the L2


@dataclass(frozen=True)
class Timing:
    """Microseconds a layer: median, and the lower and upper quartile over the rounds."""

    us: float
    low_us: float
    high_us: float


def layers_for(layer_bytes: int, smallest: int = 4, largest: int = 256) -> int:
    """Layers with buffers of their own, so that a replay finds nothing in the L2."""
    return max(smallest, min(largest, -(-COLD_BYTES // max(layer_bytes, 1))))


@dataclass(frozen=True)
class Captured:
    """A graph with the calls it was captured from: their closures hold the buffers it reads."""

    graph: torch.cuda.CUDAGraph
    calls: tuple[Callable[[], object], ...]

    def replay(self) -> None:
        self.graph.replay()


def capture(calls: Sequence[Callable[[], object]]) -> Captured:
    """One graph of all calls in order, warmed up (and compiled) on a side stream first."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls[:2]:
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return Captured(graph, tuple(calls))


def interleaved(
    graphs: dict[str, Captured], layers: int, rounds: int = 15, round_us: float = 1500
) -> dict[str, Timing]:
    """Replay every arm in turn, `rounds` times; times are per layer."""
    repeats = {}
    for name, graph in graphs.items():
        once = _replay_us(graph, 1)
        repeats[name] = max(1, min(50, round(round_us / max(once, 1.0))))
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(rounds):
        for name, graph in graphs.items():
            samples[name].append(_replay_us(graph, repeats[name]) / layers)
    return {name: _summary(values) for name, values in samples.items()}


def _replay_us(graph: Captured, repeats: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    graph.replay()
    start.record()
    for _ in range(repeats):
        graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / repeats


def _summary(values: list[float]) -> Timing:
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return Timing(ordered[len(ordered) // 2], ordered[quarter], ordered[-1 - quarter])


def plain(times: Mapping[str, Timing]) -> dict[str, dict[str, float]]:
    """Times as JSON holds them."""
    return {name: asdict(timing) for name, timing in times.items()}


def event_ms(call: Callable[[], object], repeats: int, warm: int = 1) -> float:
    """Median milliseconds on the device, between two events."""
    samples = []
    for _ in range(warm + repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end))
    return statistics.median(samples[warm:])


def seconds(call: Callable[[], object], repeats: int = 1) -> float:
    """Of one call by the clock; a GPU is waited for before and after all of them."""
    wait()
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    wait()
    return (time.perf_counter() - started) / repeats


def wait() -> None:
    """For the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def in_turn(
    arms: Mapping[str, Callable[[], object]], rounds: int, warm: int = 2
) -> dict[str, float]:
    """Milliseconds of every arm by the clock: the median of runs that take turns."""
    found: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(warm + rounds):
        for name, run in arms.items():
            found[name].append(1e3 * seconds(run))
    return {name: statistics.median(each[warm:]) for name, each in found.items()}


def with_memory(work: Callable[[], Any], repeats: int = 5) -> tuple[float, float, Any]:
    """Median milliseconds, peak extra MiB, and the last result; without a GPU, no MiB."""
    if not torch.cuda.is_available():
        found: list[Any] = []
        ms = in_turn({"": lambda: found.append(work())}, repeats, 0)[""]
        return ms, 0.0, found[-1]
    times, result = [], None
    for _ in range(repeats):
        result = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        result = work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    extra = (torch.cuda.max_memory_allocated() - before) / 2**20
    return statistics.median(times), extra, result


@triton.jit
def _read_kernel(p_in, p_out, count, per_program, BLOCK: tl.constexpr):
    """Sum a contiguous range; the store only keeps the reads alive."""
    lo = tl.program_id(0).to(tl.int64) * per_program
    hi = tl.minimum(lo + per_program, count)
    b_sum = tl.zeros([BLOCK], tl.int32)
    for start in tl.range(lo, hi, BLOCK, num_stages=4):
        o = start + tl.arange(0, BLOCK)
        b_sum += tl.load(p_in + o, mask=o < hi, other=0, eviction_policy="evict_first")
    tl.store(p_out + tl.program_id(0), tl.sum(b_sum, 0))


def read_only(buffer: Tensor, programs_each: int = 4) -> Callable[[], object]:
    """A launch that reads every byte of an int32 buffer once: the practical floor."""
    sms = torch.cuda.get_device_properties(buffer.device).multi_processor_count
    count = buffer.numel()
    block = 4096
    programs = min(sms * programs_each, -(-count // block))
    per_program = -(-count // programs // block) * block
    out = torch.empty(programs, dtype=torch.int32, device=buffer.device)
    return lambda: _read_kernel[programs,](
        buffer, out, count, per_program, BLOCK=block, num_warps=8
    )


def read_bandwidth(rounds: int = 9) -> float:
    """Bytes a second of a read-only launch over 2 GiB."""
    buffer = torch.randint(0, 1 << 20, (1 << 29,), dtype=torch.int32, device="cuda")
    times = [
        interleaved({str(n): capture([read_only(buffer, n)])}, 1, rounds)[str(n)].us
        for n in (2, 4, 8)
    ]
    return buffer.numel() * 4 / min(times) * 1e6
