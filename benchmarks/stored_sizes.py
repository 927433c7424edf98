"""Sizes of caches in files.

The embedded models read pictures of `assets/examples` and `assets/handmade`; each prefill fills
caches of every setting, which are saved, weighed and loaded again. Everything counts from the
uncompressed cache of the same prompt, text and all, as it lies in memory in bfloat16. With new
weights it has to run again.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from rotatek import load
from rotatek.cache import cache_file
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import prefill
from rotatek.engine.prefill import fill, plan_for
from rotatek.evaluation.journal import weights_id
from rotatek.inputs.request import make_request, open_image
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel

MODELS: Final = ("pocket", "pocket-smol")
PICTURES: Final = (
    "examples/receipt.png", "examples/bars.png", "examples/page.png",
    "suite/handmade-menu.webp", "suite/handmade-news.webp", "suite/handmade-card.webp",
)  # fmt: skip
EIGHT: Final = {"text_dtype": "int8"}
ARMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "every number": {"channels": "full"},
    "k = 32": {"keep_channels": 0.25},
    "2 bits": {"bits": 2.0},
    "2 bits, 8-bit text": {"bits": 2.0, **EIGHT},
    "1 bit": {"bits": 1.0},
    "1 bit, 8-bit text": {"bits": 1.0, **EIGHT},
    ".75 bits": {"bits": 0.75},
    ".75 bits, 8-bit text": {"bits": 0.75, **EIGHT},
    ".5 bits": {"bits": 0.5},
    ".5 bits, 8-bit text": {"bits": 0.5, **EIGHT},
}
QUESTION: Final = "What is written in the largest letters?"
Row = dict[str, Any]


def tensors_of(thing: Any) -> Iterator[Tensor]:
    """Every tensor of a tree of mappings."""
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, Mapping):
        for each in thing.values():
            yield from tensors_of(each)


def measure(vlm: VisionLanguageModel, path: Path, file: Path) -> Row:
    """Bytes of every setting's cache of one picture, seconds of the prefill and of each load."""
    prompt = vlm.prompt(make_request(open_image(path), QUESTION, 4))
    embedded = vlm.embed(prompt)
    plan = plan_for(vlm, embedded, BASELINE.pruning)
    dense = DynamicCache(config=vlm.model.config)
    _, ms = prefill(vlm, embedded, dense)
    width = 2 / vlm.model.dtype.itemsize  # of bfloat16
    plain = sum(layer.keys.nbytes + layer.values.nbytes for layer in dense.layers) * width
    caches = {
        name: RotateKCache(vlm.model, embedded.inputs(), Settings.of(**options), plan=plan)
        for name, options in ARMS.items()
    }
    fill(vlm, embedded, plan, list(caches.values()), timed=False)
    rows = {name: weighed(vlm, cache, file) for name, cache in caches.items()}
    tokens, length = int(prompt.visual.sum()), dense.layers[0].keys.shape[2]
    return {
        "tokens": tokens,
        "plain": int(plain),
        "plain_visual": int(plain * tokens / length),
        "prefill_s": round(ms / 1e3, 3),
        "rows": rows,
    }


def weighed(vlm: VisionLanguageModel, cache: RotateKCache, file: Path) -> Row:
    """One cache: live bytes, its file's, those of the text in both, and the seconds of a load."""
    size = cache.save(file)
    started = time.perf_counter()
    RotateKCache.load(file, vlm.model)
    took = time.perf_counter() - started
    text = [each for layer in cache.layers for each in tensors_of(layer.state()["text"])]
    live = cache.bytes()
    return {
        "live": live.total,
        "live_text": live.parts["text"],
        "file": size,
        "file_text": len(
            cache_file.packed(dict(zip(map(str, range(len(text))), text, strict=True)), "{}")
        ),
        "load_s": round(took, 3),
    }


def stored_sizes(
    models: Sequence[str] = MODELS, pictures: Sequence[str] = PICTURES, device: str = "cpu"
) -> Row:
    """Every model and picture."""
    report: Row = {"dtype": "bfloat16", "device": device, "models": {}}
    for name in models:
        vlm = load(name, device)
        digest = weights_id(vlm)
        vlm.model.to(torch.bfloat16)
        with TemporaryDirectory() as folder, torch.inference_mode():
            found = {
                each: measure(vlm, Path("assets") / each, Path(folder) / "cache")
                for each in pictures
            }
        report["models"][name] = {"weights": digest, "pictures": found}
    return report
