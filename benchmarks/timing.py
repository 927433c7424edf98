"""Timing: CUDA graphs over many layers, arms interleaved, medians with their spread.

Without a GPU the same calls run one after the other by the clock, so that tests reach every line.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.plan import device_facts

COLD_BYTES = 200 << 20  # one pass over all layers reads several times the L2
ROUND_US = 1500  # of an arm's replays in a round
Call = Callable[[], object]


def layers_for(layer_bytes: int) -> int:
    """Layers with buffers of their own, so that a replay finds nothing in the L2."""
    return max(2, min(256, -(-COLD_BYTES // max(layer_bytes, 1))))


def capture(calls: Sequence[Call], device: str) -> Call:
    """A replay of all calls in order: one graph, warmed up and compiled on a side stream first."""

    def run() -> None:
        for call in calls:
            call()

    if device == "cpu":
        return run
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls[:2]:
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()

    def replay(held: Any = calls) -> None:  # the closures hold the buffers that the graph reads
        graph.replay()

    return replay


def interleaved(
    replays: Mapping[str, Call], layers: int, rounds: int, device: str
) -> dict[str, tuple[float, float, float]]:
    """Replay every arm in turn, `rounds` times: microseconds a layer, as the median and the lower
    and upper quartile."""
    repeats = dict.fromkeys(replays, 1)
    if device != "cpu":
        for name, replay in replays.items():
            once = _replay_us(replay, 1, device)
            repeats[name] = max(1, min(50, round(ROUND_US / max(once, 1.0))))
    samples: dict[str, list[float]] = {name: [] for name in replays}
    for _ in range(rounds):
        for name, replay in replays.items():
            samples[name].append(_replay_us(replay, repeats[name], device) / layers)
    found = {}
    for name, values in samples.items():
        ordered, quarter = sorted(values), len(values) // 4
        found[name] = (ordered[len(values) // 2], ordered[quarter], ordered[-1 - quarter])
    return found


def _replay_us(replay: Call, repeats: int, device: str) -> float:
    if device == "cpu":
        return 1e6 * seconds(replay)
    replay()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / repeats


def seconds(call: Call) -> float:
    """Of a call by the clock; a GPU is waited for before and after it."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    started = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - started


def in_turn(arms: Mapping[str, Call], rounds: int) -> dict[str, float]:
    """Milliseconds of every arm by the clock: the median of runs that take turns, after one."""
    found: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(1 + rounds):
        for name, run in arms.items():
            found[name].append(1e3 * seconds(run))
    return {name: statistics.median(each[1:]) for name, each in found.items()}


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


def read_only(buffer: Tensor, programs_each: int = 4) -> Call:
    """A launch that reads every byte of an int32 buffer once: the practical floor."""
    count, block = buffer.numel(), 4096
    programs = min(device_facts(buffer.device)[1] * programs_each, -(-count // block))
    per_program = -(-count // programs // block) * block
    out = torch.empty(programs, dtype=torch.int32, device=buffer.device)
    return lambda: _read_kernel[programs,](
        buffer, out, count, per_program, BLOCK=block, num_warps=8
    )


def read_bandwidth(device: str, rounds: int = 9) -> float:
    """Bytes a second of a read-only launch over 2 GiB (a few KB on a processor)."""
    buffer = torch.ones(1 << (29 if device != "cpu" else 12), dtype=torch.int32, device=device)
    replays = {str(n): capture([read_only(buffer, n)], device) for n in (2, 4, 8)}
    best = min(us for us, *_ in interleaved(replays, 1, rounds, device).values())
    return buffer.numel() * 4 / best * 1e6
