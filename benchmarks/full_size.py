"""The full-size classes with random weights: memory, time, and compression at the real widths."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from unittest import mock

import torch
from transformers.cache_utils import DynamicCache

from benchmarks.full_families import built, noise
from benchmarks.harness import chosen, say
from benchmarks.timing import with_memory
from kernels.dispatch import backend
from rotatek.bridge.state_layers import key_layers
from rotatek.cache.rotatek_cache import RotateKCache, cache_bytes
from rotatek.engine.decode import decode, prefill
from rotatek.inputs.request import make_request
from rotatek.methods.channels import rotatek
from rotatek.methods.settings import Settings
from rotatek.models import Embedded, VisionLanguageModel, collate

Row = dict[str, Any]
NEW_TOKENS = 24
FAMILIES: Final = {  # pixels of the square picture of each model
    "qwen2.5-vl-7b": 1512, "llava-next-8b": 672, "qwen3-vl-8b": 1024, "qwen3.5-4b": 1024,
    "internvl3-8b": 1344, "smolvlm-500m": 1024, "gemma-3-4b": 896, "gemma-3-12b": 896,
    "gemma-4-e4b": 896,
}  # fmt: skip
PAPER: Final = ("qwen2.5-vl-7b", "llava-next-8b")  # measured under every setting
SETTINGS = {
    "uncompressed": None,
    "full width, our cache": Settings.of(channels="full", keep_channels=1.0),
    "RotateK k=32": Settings.of(keep_channels=0.25),
    "RotateK k=32 eigh": Settings.of(keep_channels=0.25, solver="eigh"),
    "RotateK k=32 r=32": Settings.of(keep_channels=0.25, values="rotate", keep_values=0.25),
    "RotateK k=32 fp8": Settings.of(keep_channels=0.25, cache_dtype="fp8"),
    "RotateK k=32 int8": Settings.of(keep_channels=0.25, cache_dtype="int8"),
    "RotateK 16/16 adaptive": Settings.of(
        keep_channels=0.125, values="rotate", keep_values=0.125, widths="adaptive"
    ),
    "RotateK 2 bits": Settings.of(bits=2.0),
    "RotateK .75 bits": Settings.of(bits=0.75),
    "FastV .4 + RotateK .75 bits": Settings.of(tokens="fastv", keep_tokens=0.4, bits=0.75),
    "ThinK k=32": Settings.of(channels="think", keep_channels=0.25),
    "SparK k=32": Settings.of(channels="spark", keep_channels=0.25),
    "FastV .3, full width": Settings.of(
        tokens="fastv", keep_tokens=0.3, channels="full", keep_channels=1.0
    ),
    "FastV .3 + RotateK k=32": Settings.of(tokens="fastv", keep_tokens=0.3, keep_channels=0.25),
    "VisionZip .35 + RotateK k=32": Settings.of(
        tokens="visionzip", keep_tokens=0.35, keep_channels=0.25
    ),
}


def _run(vlm: VisionLanguageModel, embedded: Embedded, settings: Settings | None) -> Row:
    """Prefill and decode one prompt under one setting."""

    def fill() -> Any:
        cache: Any = DynamicCache(config=vlm.model.config)
        if settings is not None:
            cache = RotateKCache(vlm.model, embedded.inputs(), settings)
        return cache, prefill(vlm, embedded, cache)[0]

    prefill_ms, prefill_mib, (cache, logits) = with_memory(fill)
    if settings is not None:
        cache.graph = False
        cache.reserve_ahead(NEW_TOKENS + 1)  # the graph's room: the same splits, the same rounding
    steps = list(decode(vlm, embedded, cache, logits, NEW_TOKENS))
    row = {
        "prefill_ms": round(prefill_ms, 2),
        "prefill_extra_mib": round(prefill_mib, 1),
        "decode_ms": round(statistics.median(step.ms for step in steps[2:]), 3),
        "generate_extra_mib": round(_whole(vlm, embedded, settings), 1),
        "graph_ms": None,
        "graph_equals_eager": None,
    }
    if settings is not None and vlm.device.type == "cuda":
        again, logits = fill()
        again.reserve_ahead(NEW_TOKENS + 1)
        graphed = list(decode(vlm, embedded, again, logits, NEW_TOKENS))
        row["graph_ms"] = round(statistics.median(step.ms for step in graphed[2:]), 3)
        row["graph_equals_eager"] = [s.tokens for s in graphed] == [s.tokens for s in steps]
    held, tokens = cache_bytes(cache), [step.tokens[0] for step in steps]
    sizes = {"kv_mib": held.total, "state_mib": held.parts["state"]}
    return row | {name: round(n / 2**20, 2) for name, n in sizes.items()} | {"tokens": tokens}


def _whole(vlm: VisionLanguageModel, embedded: Embedded, settings: Settings | None) -> float:
    """Peak MiB beside weights and prompt over prefill and answer, as `generate` has it."""

    def answered() -> int:
        cache: Any = DynamicCache(config=vlm.model.config)
        if settings is not None:
            cache = RotateKCache(vlm.model, embedded.inputs(), settings)
            cache.reserve_ahead(NEW_TOKENS + 1)
        logits, _ = prefill(vlm, embedded, cache)
        return len(list(decode(vlm, embedded, cache, logits, NEW_TOKENS)))

    return with_memory(answered, 1)[1]


def measure(
    vlm: VisionLanguageModel,
    side: int,
    settings_by_name: Mapping[str, Any],
    question: str = "What is the total on this receipt?",
) -> Row:
    """Everything for one family: a square picture of `side` pixels under each of the settings."""
    image = noise(side, side)
    prompt = vlm.prompt(make_request(image, question, NEW_TOKENS))
    report: Row = {"model": vlm.name, "visual_tokens": prompt.visual_tokens, "rows": {}}
    say(f"\n{vlm.name}: {prompt.visual_tokens} visual tokens")
    plain: list[int] = []
    with torch.no_grad():  # not inference mode: a program around the library need not be in it
        for name, settings in settings_by_name.items():
            pruner = None if settings is None else settings.tokens
            ms, mib, embedded = with_memory(partial(vlm.embed, prompt, pruner), 3)
            row = _run(vlm, embedded, settings)
            row |= {"encode_ms": round(ms, 2), "encode_extra_mib": round(mib, 1)}
            tokens = row.pop("tokens")
            plain = plain or tokens  # the uncompressed row is the first
            same = sum(a == b for a, b in zip(tokens, plain, strict=False))
            row |= {
                "agreement": round(same / len(plain), 3),
                "first_token_same": tokens[0] == plain[0],
            }
            report["rows"][name] = row
            say(f"  {name}", row)
        report["together_off"] = _together(vlm, vlm.embed(prompt))
        small = vlm.embed(vlm.prompt(make_request(image.resize((336, 448)), "?", NEW_TOKENS)))
        report["batch_equals_single"] = _batch(vlm, [small, vlm.embed(prompt)])
    return report


def _together(vlm: VisionLanguageModel, embedded: Embedded) -> float:
    """Largest relative difference over layers between what Keys and Values come back as, rotated
    together and a layer at a time. Bf16 alone gives about .004; a head whose filter took another
    degree differs by more, where its spectrum is flat."""
    settings = Settings.of(keep_channels=0.25, values="rotate", keep_values=0.25)

    def rebuilt() -> list[torch.Tensor]:
        cache = RotateKCache(vlm.model, embedded.inputs(), settings)
        prefill(vlm, embedded, cache)
        read = [layer.store.read() for layer in key_layers(cache)]
        keys = [visual.keys.float() @ visual.basis.float().mT for visual in read]
        return keys + [visual.values.float() @ visual.value_basis.float() for visual in read]

    together = rebuilt()
    with mock.patch.object(rotatek, "PENDING_BYTES", 0):
        pairs = list(zip(together, rebuilt(), strict=True))
    return round(max(float((a - b).norm() / b.norm()) for a, b in pairs), 5)


def _batch(vlm: VisionLanguageModel, prompts: list[Embedded]) -> float:
    """Share of tokens of a padded batch equal to the single runs' (bf16 rounds differently)."""
    settings = Settings.of(keep_channels=0.25)
    said = []
    for group in [[p] for p in prompts] + [prompts]:
        batch = collate(group)
        cache = RotateKCache(vlm.model, batch.inputs(), settings)
        logits, _ = prefill(vlm, batch, cache)
        steps = [s.tokens for s in decode(vlm, batch, cache, logits, 8)]
        said += [list(t) for t in zip(*steps, strict=True)]
    n = len(prompts)
    pairs = [(a, b) for i in range(n) for a, b in zip(said[i], said[n + i], strict=False)]
    return round(sum(a == b for a, b in pairs) / len(pairs), 3)


def settings_for(name: str, vlm: VisionLanguageModel) -> dict[str, Settings | None]:
    """Every setting for the paper's families; for the others those that tell how they fare, with
    as many Key channels, which is another share where heads are wider or narrower."""
    if name in PAPER:
        return SETTINGS
    config = vlm.text_config
    width = config.to_dict().get("head_dim") or config.hidden_size // config.num_attention_heads
    keep = 32 / width
    return {
        "uncompressed": None,
        "full width, our cache": SETTINGS["full width, our cache"],
        **{name: SETTINGS[name] for name in ("RotateK 2 bits", "RotateK .75 bits")},
        "RotateK k=32": Settings.of(keep_channels=keep),
        "RotateK k=32 r=32": Settings.of(keep_channels=keep, values="rotate", keep_values=keep),
        "FastV .4 + RotateK k=32": Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=keep),
        "VisionZip .4 + RotateK k=32": Settings.of(
            tokens="visionzip", keep_tokens=0.4, keep_channels=keep
        ),
    }


def full_size(family: Sequence[str] = PAPER) -> Iterator[Row]:
    """Every family; the report grows by one at a time."""
    report: Row = {"attention": backend("cuda"), "families": []}
    for name in chosen(family, FAMILIES):
        vlm = built(name)
        report["families"].append(measure(vlm, FAMILIES[name], settings_for(name, vlm)))
        del vlm
        torch.cuda.empty_cache()
        yield report
