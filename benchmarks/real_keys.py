"""Compressed Keys of a pretrained language model: KL, nats and first choices beside live bytes.

A text's first tokens take the part of the picture. 4 tokens of each segment stay text, like a chat
template before a picture; `context` tokens are compressed; 48 more are the question. One prefill
fills the caches of all settings, and the next 192 tokens are scored by teacher forcing against the
plain cache: the divergence of a token's distribution (KL), additional nats a token, and how often
the most likely token is the same. `live` is the compressed part's bytes over what the plain cache
holds of the same tokens. Asked "later", another question was behind the context when it was
compressed. A row of a setting has the means over segments.
"""

import argparse
import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import mean
from typing import Any, Final

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache

from rotatek.bridge.attention import prepare
from rotatek.bridge.layers import attention_layers, key_layers
from rotatek.bridge.scope import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.token_plan import TokenPlan, layout_of
from rotatek.engine.passes import SharedPrefill, by_pruning
from rotatek.methods.settings import Settings

BEFORE, QUESTION, SCORED = 4, 48, 192  # tokens before the context, behind it, and scored
SOURCES: Final = ("statistics", "argparse", "difflib", "heapq", "doctest", "textwrap", "typing")
ARMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "every number": {"channels": "full"},
    **{f"RotateK {t} times smaller": {"smaller": t} for t in (3, 4, 5, 6, 7, 8, 12, 16)},
    **{f"RotateK {s} of the channels": {"keep_channels": s} for s in (0.5, 0.25)},
    **{
        f"ThinK {s} of the channels": {"channels": "think", "keep_channels": s} for s in (0.5, 0.25)
    },
    "SparK 0.5 of the channels": {"channels": "spark", "keep_channels": 0.5},
    **{f"KIVI {b} bits": {"channels": "kivi", "number_bits": b} for b in ("4", "3", "2")},
    **{
        f"TurboQuant {b} bits": {"channels": "turboquant", "number_bits": b}
        for b in ("4", "3", "2", "1")
    },
    "OScaR 2 bits": {"channels": "omniscale", "number_bits": "2"},
    "OScaR 2 bits, 128 whole": {"channels": "omniscale", "number_bits": "2", "residual": "128"},
    "OSCAR 2 bits": {"channels": "oscar", "number_bits": "2"},
    "OSCAR 2 bits, 320 whole": {"channels": "oscar", "number_bits": "2", "whole": "64+256"},
    "SnapKV 0.25": {"tokens": "snapkv", "keep_tokens": 0.25, "channels": "full"},
}


def load(name: str, device: str | None, dtype: str) -> tuple[PreTrainedModel, Any]:
    """A causal language model and its tokenizer; name: a hub id, a folder, or a GGUF file.

    Raises:
        SystemExit: for a GGUF file without the package that reads it.
    """
    place, given = name, {}
    if name.endswith(".gguf"):
        if importlib.util.find_spec("gguf") is None:
            raise SystemExit("Reading a GGUF file needs the package gguf. Run pip install gguf.")
        place, given = str(Path(name).parent), {"gguf_file": Path(name).name}
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    model = AutoModelForCausalLM.from_pretrained(place, dtype=getattr(torch, dtype), **given)
    return model.to(device).eval(), AutoTokenizer.from_pretrained(place, **given)


def texts_of(paths: Sequence[Path]) -> list[str]:
    """The texts of files; without any, the sources of modules of Python's standard library."""
    found = (importlib.util.find_spec(name) for name in SOURCES)
    own = [Path(one.origin) for one in found if one is not None and one.origin is not None]
    return [path.read_text(encoding="utf-8", errors="replace") for path in paths or own]


def compressed_bytes(plain: Cache) -> int:
    """Bytes that a plain cache, filled with a segment's first part, holds of the context."""
    length, total = plain.get_seq_length(), 0
    for layer in key_layers(plain):
        held = layer.keys.shape[2]  # a sliding window's is shorter
        kept = held - min(held, QUESTION) - (BEFORE if held == length else 0)
        total += (layer.keys.nbytes + layer.values.nbytes) * kept // held
    return total


def scored(model: PreTrainedModel, cache: Cache, tail: Tensor) -> Tensor:
    """Log-probabilities [1, SCORED, vocabulary] of a tail's last tokens, behind a filled cache."""
    out = model(input_ids=tail[:, :-1], **with_cache(model, cache), use_cache=True)
    return out.logits[:, -SCORED:].float().log_softmax(-1)


@torch.inference_mode()
def segment(
    model: PreTrainedModel, read: Tensor, tail: Tensor, context: int, arms: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, float]]]:
    """Each arm's figures; read: [1, BEFORE + context + QUESTION] ids; tail: those behind."""
    visual = torch.zeros_like(read, dtype=torch.bool)
    visual[:, BEFORE : BEFORE + context] = True
    plain = DynamicCache(config=model.config)
    model(input_ids=read, **with_cache(model, plain), use_cache=True, logits_to_keep=1)
    full = compressed_bytes(plain)
    sure, said = scored(model, plain, tail), tail[:, -SCORED:, None]
    settings = {label: Settings.of(**arm) for label, arm in arms.items()}
    for alike in by_pruning(settings.values()):
        named = {label: one for label, one in settings.items() if one in alike}
        layout, layers = layout_of(model, {"visual": visual}), len(attention_layers(model))
        plan = TokenPlan(layout, alike[0].pruning, layers)
        caches = [RotateKCache(model, {"visual": visual}, s, plan=plan) for s in named.values()]
        shared = SharedPrefill(plan, caches, timed=False)
        model(input_ids=read, **with_cache(model, shared), use_cache=True, logits_to_keep=1)
        for label, cache in zip(named, caches, strict=True):
            count = cache.bytes()
            got = scored(model, cache, tail)
            yield (
                label,
                {
                    "live": (count.total - count.parts["text"] - count.parts["state"]) / full,
                    "kl": float((sure.exp() * (sure - got)).sum(-1).mean()),
                    "nats": float((sure - got).gather(-1, said).mean()),
                    "same_first": float((sure.argmax(-1) == got.argmax(-1)).float().mean()),
                },
            )
            cache.close()


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a hub id, a folder, or a GGUF file")
    parser.add_argument("texts", nargs="*", type=Path, help="files; else Python's own sources")
    parser.add_argument("--context", type=int, default=1024, help="compressed tokens")
    parser.add_argument("--asked", nargs="+", choices=("first", "later"), default=["first"])
    parser.add_argument("--segments", type=int, default=4)
    parser.add_argument("--device")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--arms", type=json.loads, default=ARMS, help="JSON: {label: options}")


def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    model, tokenizer = load(options.model, options.device, options.dtype)
    prepare(model)
    whole = [tokenizer(t, return_tensors="pt")["input_ids"] for t in texts_of(options.texts)]
    first = BEFORE + options.context
    length = first + QUESTION + 1 + SCORED
    turns = zip_longest(*(ids.split(length, 1) for ids in whole))  # every text's first, then second
    cut = [one for turn in turns for one in turn if one is not None and one.shape[1] == length]
    if not cut:
        raise SystemExit(f"No text has {length:,} tokens. Give a longer one, or a smaller context.")
    for asked in options.asked:
        found: dict[str, list[dict[str, float]]] = {label: [] for label in options.arms}
        for number, ids in enumerate(one.to(model.device) for one in cut[: options.segments]):
            read, tail = ids[:, : first + QUESTION], ids[:, first + QUESTION :]
            if asked == "later":
                other = whole[(number + 1) % len(whole)][:, :QUESTION].to(model.device)
                read, tail = torch.cat([ids[:, :first], other], 1), ids[:, first:]
            for label, row in segment(model, read, tail, options.context, options.arms):
                found[label].append(row)
        for label, rows in found.items():
            means = {name: mean(row[name] for row in rows) for name in rows[0]}
            yield {"arm": label, "asked": asked, "segments": len(rows)} | means
