"""Benchmarks F, G, H: prefill overhead, the whole decode step in a graph, equal KV memory."""

import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from kernels.bench.linear import CHOSEN, TILES, Tile
from kernels.bench.model import LLAMA, QWEN, Decoder, Sizes
from kernels.bench.timing import capture, interleaved, read_bandwidth
from kernels.moments import covariance, project
from kernels.solver import start_basis, subspace

Row = dict[str, Any]
Tiles = Mapping[tuple[int, int, int], Tile]
GIB = 1 << 30
M = 64


def cache_bytes(sizes: Sizes, B: int, N: int, k: int, text: int = M // 2) -> int:
    """Bytes of cache that one step reads: all layers, bf16."""
    row = 2 * (k + sizes.d)
    return sizes.layers * B * sizes.Hkv * (N * row + text * 4 * sizes.d)


def step(rounds: int = 7, transformers: bool = False) -> Row:
    """G: the step at k = 32 and dense, for both models, against the roofline of weights + cache.

    Beside them both with every kernel of ours alone (the attention's two overlap), and k = 32 with
    cuBLAS's products and with every product streamed.
    """
    bandwidth = read_bandwidth(5)
    rows = []
    for sizes, shapes in ((LLAMA, ((1, 2880), (8, 16384))), (QWEN, ((1, 2880), (8, 16384)))):
        decoder = Decoder(sizes)
        rows += [_step_row(decoder, B, N, bandwidth, rounds) for B, N in shapes]
        del decoder
        torch.cuda.empty_cache()
    if transformers:
        for row, B, N in ((rows[0], 1, 2880),):
            row["transformers_ms"] = _transformers_ms(LLAMA, B, N)
    return {"read_bytes_per_s": bandwidth, "rows": rows}


def _step_row(decoder: Decoder, B: int, N: int, bandwidth: float, rounds: int) -> Row:
    sizes = decoder.sizes
    token = torch.arange(B, device="cuda")
    graphs, roofline, same = {}, {}, {}
    for name, k in (("dense", sizes.d), ("k=32", 32)):
        caches = decoder.caches(B, N, M, k)
        eager = decoder.step(token, caches).argmax(-1)
        graphs[name], logits = captured_step(decoder, token, caches)
        graphs[name].replay()
        same[name] = bool((logits.argmax(-1) == eager).all())
        if name == "dense":
            pdl, decoder.pdl = decoder.pdl, False
            graphs["dense, alone"], _ = captured_step(decoder, token, caches)
            decoder.pdl = pdl
        total = sizes.weight_bytes + cache_bytes(sizes, B, N, k)
        roofline[name] = total / bandwidth * 1e3
    others, off = _variants(decoder, token, caches, logits)
    graphs |= others
    times = interleaved(graphs, 1, rounds, 30000)
    ms = {name: timing.us / 1e3 for name, timing in times.items()}
    return {
        "model": sizes.name, "B": B, "N": N, "ms": ms,
        "spread_us": {name: asdict(timing) for name, timing in times.items()},
        "roofline_ms": roofline, "tokens_equal_eager": same,
        "of_roofline": {name: roofline[name.split(",")[0]] / ms[name] for name in ms},
        "off": off,
        "gain": ms["dense"] / ms["k=32"], "roofline_gain": roofline["dense"] / roofline["k=32"],
    }  # fmt: skip


def _variants(
    decoder: Decoder, token: Tensor, caches: list, want: Tensor
) -> tuple[dict[str, Any], dict[str, float]]:
    """The k = 32 step in other ways: graphs, and how far their logits are from `want` [B, n]."""
    B = token.shape[0]
    every = {(B, *p): CHOSEN.get((B, *p), TILES[2]) for p in decoder.sizes.products}
    pdl, tiles = decoder.pdl, decoder.tiles
    ways: tuple[tuple[str, bool, Tiles], ...] = (
        ("alone", False, tiles), ("cuBLAS", pdl, {}), ("all streamed", pdl, every),
    )  # fmt: skip
    graphs: dict[str, Any] = {}
    off: dict[str, float] = {}
    for way, decoder.pdl, decoder.tiles in ways:
        graphs[f"k=32, {way}"], logits = captured_step(decoder, token, caches)
        graphs[f"k=32, {way}"].replay()
        off[way] = float((logits.float() - want.float()).norm() / want.float().norm())
    decoder.pdl, decoder.tiles = pdl, tiles
    return graphs, off


def captured_step(decoder: Decoder, token: Tensor, caches: list) -> tuple[Any, Tensor]:
    """The step as a graph, with the tensor its logits appear in."""
    held: list[Tensor] = []
    graph = capture([lambda: held.append(decoder.step(token, caches))])
    return graph, held[-1]


def capacity(rounds: int = 5, N: int = 16384, budget: int = 56 * GIB) -> Row:
    """H: tokens a second at equal KV memory, whole step, for the largest batch that fits it."""
    rows = []
    for sizes in (LLAMA, QWEN):
        decoder = Decoder(sizes)
        speeds, batches = {}, {}
        for name, k in (("dense", sizes.d), ("k=32", 32)):
            B = budget // cache_bytes(sizes, 1, N, k, M)
            caches = decoder.caches(B, N, M, k)
            graph, _ = captured_step(decoder, torch.zeros(B, dtype=torch.int64).cuda(), caches)
            us = interleaved({name: graph}, 1, rounds, 60000)[name].us
            speeds[name], batches[name] = B / us * 1e6, B
            del caches, graph
            torch.cuda.empty_cache()
        rows.append(
            {"model": sizes.name, "N": N, "kv_gib": budget / GIB, "batch": batches,
             "tokens_per_s": speeds, "gain": speeds["k=32"] / speeds["dense"]}
        )  # fmt: skip
        del decoder
        torch.cuda.empty_cache()
    return {"rows": rows}


def prefill(rounds: int = 9, N: int = 2880) -> Row:
    """F: covariance + solve + projection of all layers over the prefill, in several orders.

    "a layer at a time" solves inside every layer (8 or 4 matrices: latency); "all at once" joins
    the Keys of all layers and needs three launches at the end; "beside" is the layers' work on a
    stream of its own: its share is what the prefill slows down. "beside, 8 a solve" shares a launch
    of the solver among eight layers, whose full Keys it holds until then; "solved at the end" (what
    `rotatek` does with Keys of up to 8 MiB a layer) holds all layers' and leaves only the
    covariances beside. The Keys are noise: with the flattest spectrum the solver takes longest.
    """
    rows = []
    for sizes in (LLAMA, QWEN):
        decoder = Decoder(sizes)
        shape = (1, sizes.Hkv, N, sizes.d)
        keys = [torch.randn(shape, device="cuda").bfloat16() for _ in range(sizes.layers)]
        start = start_basis(sizes.d, 32, keys[0].device)
        run = decoder.prefill(N + M)
        graphs = {
            "prefill": capture([run]),
            "beside": capture([_beside(run, lambda keys=keys, start=start: _each(keys, start))]),
            "beside, 8 a solve": capture(
                [_beside(run, lambda keys=keys, start=start: _each(keys, start, 8))]
            ),
            "solved at the end": capture([_at_the_end(run, keys, start)]),
            "a layer at a time": capture([lambda keys=keys, start=start: _each(keys, start)]),
            "all at once": capture([lambda keys=keys, start=start: _batched(keys, start)]),
        }
        times = interleaved(graphs, 1, rounds, 20000)
        us = {name: timing.us for name, timing in times.items()}
        for name in ("beside", "beside, 8 a solve", "solved at the end"):
            us[name] -= us["prefill"]
        share = {name: us[name] / us["prefill"] for name in us if name != "prefill"}
        rows.append({"model": sizes.name, "N": N, "us": us, "share": share})
        del decoder, graphs
        torch.cuda.empty_cache()
    return {"rows": rows}


def _each(keys: list[Tensor], start: Tensor, group: int = 1) -> list[Tensor]:
    out = []
    for first in range(0, len(keys), group):
        part = keys[first : first + group]
        out += _solved(part, [covariance(layer) for layer in part], start)
    return out


def _solved(keys: list[Tensor], found: list[tuple[Tensor, Tensor]], start: Tensor) -> list[Tensor]:
    """K~ of layers whose (mean, C) are known: one launch of the solver."""
    matrices = torch.stack([cov for _, cov in found]) if len(found) > 1 else found[0][1][None]
    bases = subspace(matrices, 32, start=start)
    rows = zip(keys, found, bases, strict=True)
    return [project(layer, mean, basis) for layer, (mean, _), basis in rows]


def _at_the_end(
    prefill: Callable[[], Any], keys: list[Tensor], start: Tensor
) -> Callable[[], None]:
    """A prefill beside which the covariances are taken; the rest follows it."""

    def both() -> None:
        found: list[tuple[Tensor, Tensor]] = []
        _beside(prefill, lambda: found.extend(covariance(layer) for layer in keys))()
        _solved(keys, found, start)

    return both


def _batched(keys: list[Tensor], start: Tensor) -> Tensor:
    every = torch.cat(keys)
    mean, cov = covariance(every)
    return project(every, mean, subspace(cov, 32, start=start))


def _beside(prefill: Callable[[], Any], compress: Callable[[], Any]) -> Callable[[], None]:
    """A prefill during which another stream compresses, as the cache does layer by layer."""

    def both() -> None:
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            held = compress()
        prefill()
        main.wait_stream(side)
        del held

    return both


def _transformers_ms(sizes: Sizes, B: int, N: int) -> dict[str, float]:
    """transformers' own step at the same shapes: DynamicCache eager, StaticCache compiled."""
    library = importlib.import_module("transformers")
    config = library.LlamaConfig(
        hidden_size=sizes.hidden, intermediate_size=sizes.inner, vocab_size=sizes.vocabulary,
        num_hidden_layers=sizes.layers, num_attention_heads=sizes.Hq,
        num_key_value_heads=sizes.Hkv, head_dim=sizes.d, max_position_embeddings=131072,
    )  # fmt: skip
    with torch.device("cuda"), torch.no_grad():
        torch.set_default_dtype(torch.bfloat16)
        model = library.LlamaForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
        token = torch.zeros(B, 1, dtype=torch.int64)
        prompt = torch.zeros(B, N + M // 2, dtype=torch.int64)
        dynamic = library.DynamicCache(config=config)
        model(prompt, past_key_values=dynamic, logits_to_keep=1)
        found = {"DynamicCache eager": _host_ms(lambda: model(token, past_key_values=dynamic))}
        static = library.StaticCache(config=config, max_cache_len=N + 2 * M)
        model(prompt, past_key_values=static, logits_to_keep=1)
        compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        found["StaticCache compiled"] = _host_ms(lambda: compiled(token, past_key_values=static))
    return found


def _host_ms(call: Callable[[], object], repeats: int = 12) -> float:
    """Median wall time of one call, synchronised."""
    samples = []
    for _ in range(repeats + 5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) * 1e3)
    return sorted(samples[5:])[repeats // 2]
