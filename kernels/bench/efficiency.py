"""The efficiency figure: prefill, decode, memory and throughput over length and batch, one GPU.

Llama3-8B's shapes with random weights. Rows have the columns of `COLUMNS`; a decode step is one
CUDA graph, a prefill runs eagerly. Times are medians.
"""

from dataclasses import asdict
from typing import Any, Final

import torch
from torch import Tensor

from ..cases import FP8
from ..launch import attend_triton
from ..moments import covariance, project
from ..solver import start_basis, subspace
from .arms import Shape, narrow
from .model import LLAMA, Cache, Decoder
from .step import captured_step
from .timing import capture, interleaved

Row = dict[str, Any]
M: Final = 64
METHODS: Final = {
    "dense": (128, False),
    "RotateK k=32": (32, False),
    "RotateK k=32 fp8": (32, True),
}
LENGTHS: Final = tuple((1, N) for N in (1024, 2880, 8192, 16384, 32768))
BATCHES: Final = tuple((B, 2880) for B in (4, 8, 16, 32))
PREFILLS: Final = ((1, 1024), (1, 2880), (1, 8192), (1, 16384), (4, 2880), (8, 2880))
COLUMNS: Final = (
    "model", "method", "batch", "visual_tokens", "decode_ms", "attention_ms", "other_ms",
    "tokens_per_s", "kv_mib", "peak_mib", "prefill_ms", "compress_ms",
)  # fmt: skip


def efficiency(rounds: int = 5) -> Row:
    """Rows over length at batch 1 and over batch at 2,880 visual tokens."""
    decoder = Decoder(LLAMA)
    prefills = {shape: _prefill(decoder, *shape) for shape in PREFILLS}
    rows, spreads = [], []
    for B, N in (*LENGTHS, *BATCHES, (8, 16384)):
        for method in METHODS:
            row = _decode(decoder, method, B, N, rounds)
            prefill, compress = prefills.get((B, N), (None, None))
            row["prefill_ms"] = prefill
            row["compress_ms"] = 0.0 if method == "dense" and prefill else compress
            rows.append({name: row[name] for name in COLUMNS})
            shape = {name: row[name] for name in COLUMNS[:4]}
            spreads.append({"shape": shape, "times": row["times"]})
            torch.cuda.empty_cache()
    return {"columns": list(COLUMNS), "text_tokens": M // 2, "rows": rows, "spreads": spreads}


def _caches(decoder: Decoder, method: str, B: int, N: int) -> list[Cache]:
    k, eight_bits = METHODS[method]
    caches = decoder.caches(B, N, M, k)
    if eight_bits:
        stored = Shape(keys=FP8, values=FP8)
        caches = [Cache(narrow(cache.visual, stored), cache.text) for cache in caches]
    return caches


def _decode(decoder: Decoder, method: str, B: int, N: int, rounds: int) -> Row:
    """One row: the whole step, its attention alone, and what is held."""
    caches = _caches(decoder, method, B, N)
    torch.cuda.reset_peak_memory_stats()
    step, _ = captured_step(decoder, torch.zeros(B, dtype=torch.int64, device="cuda"), caches)
    q = torch.randn(B, LLAMA.Hq, 1, LLAMA.d, device="cuda").bfloat16()
    attention = capture(
        [lambda c=c: attend_triton(q, c.visual, c.text, LLAMA.d**-0.5) for c in caches]
    )
    times = interleaved({"step": step, "attention": attention}, 1, rounds, 10000)
    ms = {name: timing.us / 1e3 for name, timing in times.items()}
    held = sum(t.nbytes for c in caches for t in (*c.visual, *c.text) if isinstance(t, Tensor))
    return {
        "model": LLAMA.name, "method": method, "batch": B, "visual_tokens": N,
        "decode_ms": ms["step"], "attention_ms": ms["attention"],
        "other_ms": ms["step"] - ms["attention"], "tokens_per_s": 1e3 * B / ms["step"],
        "kv_mib": held / 2**20, "peak_mib": torch.cuda.max_memory_allocated() / 2**20,
        "times": {name: asdict(timing) for name, timing in times.items()},
    }  # fmt: skip


def _prefill(decoder: Decoder, B: int, N: int) -> tuple[float, float]:
    """Milliseconds of the forward pass, and the most that compressing adds: layer by layer, noise.

    `kernels.bench.prefill` times what `rotatek` does, all layers together.
    """
    shape = (B, LLAMA.Hkv, N, LLAMA.d)
    keys = torch.randn(shape, device="cuda").bfloat16()
    start = start_basis(LLAMA.d, 32, keys.device)

    def compress() -> None:
        for _ in range(LLAMA.layers):
            mean, found = covariance(keys)
            project(keys, mean, subspace(found, 32, start=start))

    return _median_ms(decoder.prefill(N + M // 2, B)), _median_ms(compress)


def _median_ms(call: Any, repeats: int = 3) -> float:
    times = []
    for _ in range(repeats + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times[1:])[repeats // 2]
