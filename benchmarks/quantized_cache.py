"""Transformers' own caches beside ours in `model.generate`.

Time and live bytes of one answer on an embedded model: DynamicCache, QuantizedCache with its fp8
and quanto backends, and RotateKCache under several settings. On a GPU also the most memory that was
allocated on top of the model. A backend whose package is missing is left out with a sentence.
"""

import importlib.util
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, QuantizedCache

from benchmarks.generate_speed import generated, inputs_of
from benchmarks.harness import say
from rotatek import load
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.rotatek_cache import RotateKCache, release
from rotatek.inputs.request import make_request, open_image
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel

OURS: Final[dict[str, dict[str, Any]]] = {
    "RotateK, the paper's quarter": {"keep_channels": 0.25},
    "RotateK, 2 bits": {"bits": 2.0},
    "RotateK, .75 bits": {"bits": 0.75},
    "KIVI, 4 bits": {"channels": "kivi"},
    "KIVI, 2 bits": {"channels": "kivi", "number_bits": "2"},
    "TurboQuant, 3 bits": {"channels": "turboquant", "number_bits": "3"},
    "Dense fp8": {"channels": "full", "cache_dtype": "fp8"},
}


def tensors_in(thing: Any) -> Iterator[Tensor]:
    """Every plain tensor that a cache, its layers or a quantised tensor hold."""
    if isinstance(thing, Tensor) and hasattr(thing, "__tensor_flatten__"):
        for name in thing.__tensor_flatten__()[0]:
            yield from tensors_in(getattr(thing, name))
    elif isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, list | tuple):
        for one in thing:
            yield from tensors_in(one)


def held(cache: Cache) -> int:
    """Live bytes of any cache."""
    if isinstance(cache, RotateKCache):
        return cache.bytes().total
    found = [tensors_in(list(vars(layer).values())) for layer in cache.layers]
    return storage_bytes(tensor for each in found for tensor in each)


def arms(vlm: VisionLanguageModel, inputs: dict[str, Any]) -> dict[str, partial[Cache]]:
    """Makers of an empty cache, by name."""
    made: dict[str, partial[Cache]] = {"DynamicCache": partial(DynamicCache)}
    made["QuantizedCache, fp8"] = partial(QuantizedCache, "fp8", vlm.model.config)
    if not _has_quanto():
        say("optimum-quanto is not installed: its QuantizedCache is left out.")
    else:
        for bits in (4, 2):
            made[f"QuantizedCache, quanto {bits} bits"] = partial(
                QuantizedCache, "quanto", vlm.model.config, nbits=bits
            )
    for name, options in OURS.items():
        made[name] = partial(RotateKCache, vlm.model, inputs, Settings.of(**options))
    return made


def _has_quanto() -> bool:
    """Whether optimum-quanto is installed."""
    parent = importlib.util.find_spec("optimum")  # of a package that is not there none is found
    return parent is not None and importlib.util.find_spec("optimum.quanto") is not None


def measure(vlm: VisionLanguageModel, inputs: dict[str, Any], make: Any, new: int) -> dict:
    """One arm: seconds, milliseconds a token, live bytes, peak memory, and what it said."""
    on_gpu = vlm.device.type == "cuda"
    generated(vlm, inputs, make(), 2)  # kernels compile
    base = torch.cuda.memory_allocated() if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    cache, started = make(), time.perf_counter()
    said, (median, _) = generated(vlm, inputs, cache, new)
    row = {
        "seconds": round(time.perf_counter() - started, 2),
        "ms_per_token": round(median, 2),
        "bytes": held(cache),
        "peak_bytes": torch.cuda.max_memory_allocated() - base if on_gpu else None,
        "tokens": said[0],
    }
    release(cache)
    return row


def quantized_cache(
    model: str = "pocket",
    device: str | None = None,
    dtype: str = "bfloat16",
    image: Path = Path("assets/examples/page.png"),
    question: str = "Read the whole page.",
    tokens: int = 32,
) -> dict[str, Any]:
    """Every arm, compared with the first; dtype: of the model, which live bytes follow."""
    vlm = load(model, device)
    vlm.model.to(getattr(torch, dtype))
    prompt = vlm.prompt(make_request(open_image(image), question, tokens))
    inputs = inputs_of(prompt, 1)
    rows: dict[str, dict[str, Any]] = {}
    for name, make in arms(vlm, inputs).items():
        rows[name] = row = measure(vlm, inputs, make, tokens)
        first = next(iter(rows.values()))
        same = [a == b for a, b in zip(row["tokens"], first["tokens"], strict=False)]
        row["same"] = round(statistics.fmean(same), 3)
        row["of_dense"] = round(row["bytes"] / first["bytes"], 4)
    return {"visual": prompt.visual_tokens, "tokens": prompt.ids.shape[1], "rows": rows}
