"""The whole decode step in a graph, and as many rows as fit in equal KV memory."""

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import capture, in_turn, interleaved, plain, read_bandwidth

from .arms import Row, Shape, rows_of
from .linear import CHOSEN, TILES, Tile
from .model import LLAMA, QWEN, Cache, Decoder, Sizes
from .planes import MIXES
from .planes import make as make_planes
from .rebuilt import SPARK, THINK, bytes_of, rebuilt_caches

Tiles = Mapping[tuple[int, int, int], Tile]
GIB = 1 << 30
M = 64
STEPS = ((1, 2880), (8, 16384))  # rows and visual tokens
DIGITS = "24 bytes"  # a token and head, as digits of 2 bits


def cache_bytes(sizes: Sizes, B: int, N: int, k: int, text: int = M // 2) -> int:
    """Bytes of cache that one step reads: all layers, bf16."""
    row = 2 * (k + sizes.d)
    return sizes.layers * B * sizes.Hkv * (N * row + text * 4 * sizes.d)


def step(rounds: int = 7, transformers: bool = False) -> Row:
    """The step at k = 32 and dense, for both models, against the roofline of weights + cache.

    Kernels overlap, or each runs alone (but for the attention's two), as `Sizes.overlap` says; both
    widths are timed the other way too, and k = 32 with cuBLAS's products and with every product
    streamed.
    """
    bandwidth = read_bandwidth(5)
    rows = []
    for sizes in (LLAMA, QWEN):
        decoder = Decoder(sizes)
        rows += [_step_row(decoder, B, N, bandwidth, rounds) for B, N in STEPS]
        del decoder
        torch.cuda.empty_cache()
    if transformers:
        rows[0]["transformers_ms"] = _transformers_ms(LLAMA, rows[0]["B"], rows[0]["N"])
    return {"read_bytes_per_s": bandwidth, "rows": rows}


def _step_row(decoder: Decoder, B: int, N: int, bandwidth: float, rounds: int) -> Row:
    sizes = decoder.sizes
    token = torch.arange(B, device="cuda")
    roofline, same = {}, {}
    overlap = decoder.overlaps(B)
    graphs: dict[str, Any] = {}
    off: dict[str, float] = {}
    for name, k in (("dense", sizes.d), ("k=32", 32)):
        caches = decoder.caches(B, N, M, k)
        eager = decoder.step(token, caches).argmax(-1)
        graphs[name], logits = captured_step(decoder, token, caches)
        graphs[name].replay()
        same[name] = bool((logits.argmax(-1) == eager).all())
        for way, found in _variants(decoder, token, caches, overlap, name == "k=32").items():
            graphs[f"{name}, {way}"], got = found
            graphs[f"{name}, {way}"].replay()
            off[f"{name}, {way}"] = float((got - logits).float().norm() / logits.float().norm())
        total = sizes.weight_bytes + cache_bytes(sizes, B, N, k)
        roofline[name] = total / bandwidth * 1e3
    times = interleaved(graphs, 1, rounds, 30000)
    ms = {name: timing.us / 1e3 for name, timing in times.items()}
    return {
        "model": sizes.name, "B": B, "N": N, "overlap": overlap, "ms": ms,
        "spread_us": plain(times),
        "roofline_ms": roofline, "tokens_equal_eager": same,
        "of_roofline": {name: roofline[name.split(",")[0]] / ms[name] for name in ms},
        "off": off,
        "gain": ms["dense"] / ms["k=32"], "roofline_gain": roofline["dense"] / roofline["k=32"],
    }  # fmt: skip


def _variants(
    decoder: Decoder, token: Tensor, caches: list, overlap: bool, products: bool
) -> dict[str, tuple[Any, Tensor]]:
    """Graphs of the same step in other ways, with the tensors their logits [B, n] appear in.

    Without the overlap that the step has, or with it; where asked for, with other products.
    """
    B, tiles = token.shape[0], decoder.tiles
    every = {(B, *p): CHOSEN.get((B, *p), TILES[2]) for p in decoder.sizes.products}
    ways: dict[str, tuple[bool, Tiles]] = {
        "alone" if overlap else "overlapped": (not overlap, tiles)
    }
    if products:
        ways |= {"cuBLAS": (overlap, {}), "all streamed": (overlap, every)}
    found = {}
    for way, (decoder.pdl, decoder.tiles) in ways.items():
        found[way] = captured_step(decoder, token, caches)
    decoder.pdl, decoder.tiles = None, tiles
    return found


def captured_step(decoder: Decoder, token: Tensor, caches: Sequence[Cache]) -> tuple[Any, Tensor]:
    """The step as a graph, with the tensor its logits appear in."""
    held: list[Tensor] = []
    graph = capture([lambda: held.append(decoder.step(token, caches))])
    return graph, held[-1]


def capacity(
    rounds: int = 5,
    N: int = 16384,
    budget: int = 56 * GIB,
    models: Sequence[Sizes] = (LLAMA, QWEN),
    device: str = "cuda",
) -> Row:
    """Tokens a second at equal KV memory, whole step, for the largest batch that fits it.

    Dense, k = 32, ThinK and SparK with rebuilt Keys, and 24 bytes a token and head as digits. Every
    byte that a row of the last holds counts: bases, steps, means and tables too; of the others
    Keys, Values, masks and text.
    """

    def row(sizes: Sizes) -> Row:
        decoder = Decoder(sizes, device=device)
        speeds, batches, spread = {}, {}, {}
        for name, (one, make) in _arms(decoder, N).items():
            B = budget // one
            caches = make(B)
            token = torch.zeros(B, dtype=torch.int64, device=device)
            graph, _ = captured_step(decoder, token, caches)
            found = interleaved({name: graph}, 1, rounds, 60000)[name]
            speeds[name], batches[name], spread[name] = B / found.us * 1e6, B, found
            del caches, graph
            torch.cuda.empty_cache()
        return {
            "model": sizes.name, "N": N, "kv_gib": budget / GIB, "batch": batches,
            "tokens_per_s": speeds, "gain": speeds["k=32"] / speeds["dense"],
            "gain_digits": speeds[DIGITS] / speeds["dense"], "spread_us": plain(spread),
        }  # fmt: skip

    return rows_of(models, row)


Arm = tuple[int, Callable[[int], Sequence[Cache]]]  # bytes of a row, and caches of so many


def _arms(decoder: Decoder, N: int) -> dict[str, Arm]:
    """The methods that `capacity` compares."""
    sizes, device = decoder.sizes, decoder.device
    arms: dict[str, Arm] = {
        name: (cache_bytes(sizes, 1, N, k, M), partial(decoder.caches, N=N, M=M, k=k))
        for name, k in (("dense", sizes.d), ("k=32", 32))
    }
    for name in (THINK, SPARK):
        one = bytes_of(sizes, name, N, M)
        arms[name] = one, lambda B, name=name: rebuilt_caches(decoder, name, B, N, M)
    one = held(digit_caches(sizes, 1, N, device))
    return arms | {DIGITS: (one, lambda B: digit_caches(sizes, B, N, device))}


def digit_caches(sizes: Sizes, B: int, N: int, device: str) -> list[Cache]:
    """Caches of every layer with 24 bytes a token and head; half of the M text slots are in use."""
    shape = Shape(sizes.Hq, sizes.Hkv, B=B, N=N, M=M, d=sizes.d)
    lengths = torch.full((B,), M // 2, dtype=torch.int32, device=device)
    caches = []
    for layer in range(sizes.layers):
        _, visual, text = make_planes(shape, MIXES["24"], layer, device)
        caches.append(Cache(visual, text._replace(lengths=lengths)))
    return caches


def held(caches: Sequence[Cache]) -> int:
    """Bytes of every tensor of some caches, but for the lengths that they share."""
    total = 0
    for cache in caches:
        parts = [
            *cache.visual,
            *(cache.visual.key_planes or ()),
            *(cache.visual.value_planes or ()),
        ]
        tensors = [part for part in (*parts, *cache.text[:2]) if isinstance(part, Tensor)]
        total += sum(tensor.nbytes for tensor in tensors) + cache.mask_bytes
    return total


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
        takes = inspect.signature(library.LlamaForCausalLM.forward).parameters
        name = "cache" if "cache" in takes else "past_key_values"  # from 5.24 on, and before
        model(prompt, logits_to_keep=1, **{name: dynamic})
        found = {"DynamicCache eager": _host_ms(lambda: model(token, **{name: dynamic}))}
        static = library.StaticCache(config=config, max_cache_len=N + 2 * M)
        model(prompt, logits_to_keep=1, **{name: static})
        compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        found["StaticCache compiled"] = _host_ms(lambda: compiled(token, **{name: static}))
    return found


def _host_ms(call: Callable[[], object]) -> float:
    """Median wall time of one call, synchronised."""
    return in_turn({"": call}, 13, warm=5)[""]
