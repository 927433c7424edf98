"""The efficiency figure: prefill, decode, memory and throughput over length and batch, one GPU.

The shapes of both models with random weights. Rows have the columns of `COLUMNS`; a decode step is
one CUDA graph, a prefill runs eagerly. Times are medians. ThinK and SparK rebuild their Keys, as
the paper times them: recovery and concatenation are timed by themselves, too.
"""

from collections.abc import Callable, Sequence
from typing import Final

import torch

from benchmarks.timing import Captured, capture, event_ms, interleaved, plain
from kernels.covariance import covariance, project
from kernels.solver import start_basis, subspace

from .arms import Row, Shape, narrow
from .cases import FP8
from .model import LLAMA, QWEN, Cache, Decoder, Sizes
from .rebuilt import SPARK, THINK, Rebuilt, compressors, rebuilt_caches
from .step import captured_step, held

M: Final = 64
WINDOW: Final = 32  # queries that weigh channels
OURS: Final = "RotateK k=32"
METHODS: Final = ("dense", OURS, f"{OURS} fp8", THINK, SPARK)
GRID: Final = (  # over length at batch 1, over batch at 2,880 visual tokens, and both
    *((1, N) for N in (1024, 2880, 8192, 16384, 32768)),
    *((B, 2880) for B in (4, 8, 16, 32)),
    (8, 16384),
)
PREFILLS: Final = ((1, 1024), (1, 2880), (1, 8192), (1, 16384), (4, 2880), (8, 2880))
COLUMNS: Final = (
    "model", "method", "batch", "visual_tokens", "decode_ms", "attention_ms", "recovery_ms",
    "join_ms", "other_ms", "tokens_per_s", "kv_mib", "peak_mib", "prefill_ms", "compress_ms",
)  # fmt: skip


def efficiency(rounds: int = 5, models: Sequence[Sizes] = (LLAMA, QWEN)) -> Row:
    """Rows over length at batch 1 and over batch at 2,880 visual tokens, for each model."""
    rows, spreads = [], []
    for sizes in models:
        decoder = Decoder(sizes)
        prefills = {shape: _prefill(decoder, *shape) for shape in PREFILLS}
        for B, N in GRID:
            for method in METHODS:
                row = _decode(decoder, method, B, N, rounds)
                took = prefills.get((B, N), {})
                row |= {"prefill_ms": took.get("prefill"), "compress_ms": took.get(method)}
                rows.append({name: row[name] for name in COLUMNS})
                shape = {name: row[name] for name in COLUMNS[:4]}
                spreads.append({"shape": shape, "times": row["times"]})
                torch.cuda.empty_cache()
        del decoder
        torch.cuda.empty_cache()
    return {"columns": list(COLUMNS), "text_tokens": M // 2, "rows": rows, "spreads": spreads}


def _caches(decoder: Decoder, method: str, B: int, N: int) -> Sequence[Cache]:
    if method in (THINK, SPARK):
        return rebuilt_caches(decoder, method, B, N, M)
    caches = decoder.caches(B, N, M, decoder.sizes.d if method == "dense" else 32)
    if method.endswith("fp8"):
        stored = Shape(keys=FP8, values=FP8)
        caches = [Cache(narrow(cache.visual, stored), cache.text) for cache in caches]
    return caches


def _decode(decoder: Decoder, method: str, B: int, N: int, rounds: int) -> Row:
    """One row: the whole step, its attention alone and the parts of that, and what is held."""
    sizes, caches = decoder.sizes, _caches(decoder, method, B, N)
    torch.cuda.reset_peak_memory_stats()
    step, _ = captured_step(decoder, torch.zeros(B, dtype=torch.int64, device="cuda"), caches)
    peak = torch.cuda.max_memory_allocated() / 2**20
    q = torch.randn(B, sizes.Hq, 1, sizes.d, device="cuda").bfloat16()
    graphs = {"step": step} | _parts(caches, lambda c: c.attend(q, sizes.d**-0.5))
    times = interleaved(graphs, 1, rounds, 10000)
    ms = {name: timing.us / 1e3 for name, timing in times.items()}
    return {
        "model": sizes.name, "method": method, "batch": B, "visual_tokens": N,
        "decode_ms": ms["step"], "attention_ms": ms["attention"],
        "recovery_ms": ms.get("recovery", 0.0), "join_ms": ms.get("join", 0.0),
        "other_ms": ms["step"] - ms["attention"], "tokens_per_s": 1e3 * B / ms["step"],
        "kv_mib": held(caches) / 2**20, "peak_mib": peak,
        "times": plain(times),
    }  # fmt: skip


def _parts(caches: Sequence[Cache], attend: Callable[[Cache], object]) -> dict[str, Captured]:
    """Attention over every layer, and what rebuilding takes of it."""
    graphs = {"attention": capture([lambda c=c: attend(c) for c in caches])}
    rebuilding = [cache for cache in caches if isinstance(cache, Rebuilt)]
    if rebuilding:
        dense = rebuilding[0].recover()
        graphs["recovery"] = capture([cache.recover for cache in rebuilding])
        graphs["join"] = capture([lambda c=c: c.join(dense) for c in rebuilding])
    return graphs


def _prefill(decoder: Decoder, B: int, N: int) -> dict[str, float]:
    """Milliseconds of the forward pass, and the most that each method adds: layer by layer, noise.

    `benchmarks.kernels.prefill` times what `rotatek` does, all layers together.
    """
    sizes = decoder.sizes
    shape = (B, sizes.Hkv, N, sizes.d)
    keys = torch.randn(shape, device="cuda").bfloat16()
    queries = torch.randn(B, sizes.Hkv, WINDOW, sizes.d, device="cuda").bfloat16()
    start = start_basis(sizes.d, 32, keys.device)

    def rotate() -> None:
        mean, found = covariance(keys)
        project(keys, mean, subspace(found, 32, start=start))

    adds: dict[str, Callable[[], object]] = {OURS: rotate, f"{OURS} fp8": rotate}
    took = {"prefill": event_ms(decoder.prefill(N + M // 2, B), 3), "dense": 0.0}
    for method, layer in (adds | compressors(keys, queries)).items():
        took[method] = event_ms(lambda layer=layer: [layer() for _ in range(sizes.layers)], 3)
    return took
