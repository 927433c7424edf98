"""The full-size classes with random weights on a GPU: `python -m benchmarks.full_size --json FILE`.

No 16 GB checkpoint is needed to show that the adapters carry the real shapes, what they cost in
memory and time, and that compression works at the real widths. Answers mean nothing here. Every row
is printed when it is measured, and the file written after each family.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import torch
from PIL import Image
from transformers import (
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)
from transformers.cache_utils import DynamicCache
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from benchmarks.full_families import built
from kernels.dispatch import backend
from rotatek.bridge.attention import prepare
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import decode, prefill
from rotatek.inputs.request import make_request
from rotatek.methods.channels import rotatek
from rotatek.methods.settings import Settings
from rotatek.models import Embedded, VisionLanguageModel, collate
from rotatek.models.llava_next import LlavaNext
from rotatek.models.qwen2_5_vl import Qwen25VL
from tests.tiny import QWEN_TEMPLATE, byte_tokenizer

NEW_TOKENS = 24
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


def _build(kind: type, config: Any, eos: int) -> Any:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model = kind(config)
    finally:
        torch.set_default_dtype(torch.float32)
    model.generation_config = GenerationConfig(eos_token_id=eos)
    return prepare(model.eval())


def qwen() -> VisionLanguageModel:
    """Qwen2.5-VL-7B-Instruct's configuration."""
    special = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    tokenizer = byte_tokenizer([*special, "<|image_pad|>", "<|video_pad|>"], "<|im_end|>")
    tokenizer.chat_template = QWEN_TEMPLATE
    number = tokenizer.convert_tokens_to_ids
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
            "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
            "max_position_embeddings": 128000,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]
            },
        },
        vision_config={
            "depth": 32, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420,
            "out_hidden_size": 3584, "patch_size": 14, "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
        },
        image_token_id=number("<|image_pad|>"), video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"),
        vision_end_token_id=number("<|vision_end|>"),
    )  # fmt: skip
    model = _build(Qwen2_5_VLForConditionalGeneration, config, number("<|im_end|>"))
    vlm = Qwen25VL(model, tokenizer, Qwen2VLImageProcessorPil(), "qwen2.5-vl-7b (random)")
    vlm.optimise_for_gpu()  # as `load` does
    return vlm


def llava() -> VisionLanguageModel:
    """llama3-llava-next-8b-hf's configuration."""
    special = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<image>"]
    tokenizer = byte_tokenizer(special, "<|eot_id|>")
    pinpoints = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
    config = LlavaNextConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=1024, intermediate_size=4096, num_hidden_layers=24,
            num_attention_heads=16, image_size=336, patch_size=14, projection_dim=768,
        ),
        text_config=LlamaConfig(
            vocab_size=128320, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
            num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=8192,
        ),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=pinpoints,
    )  # fmt: skip
    eos = tokenizer.convert_tokens_to_ids("<|eot_id|>")
    model = _build(LlavaNextForConditionalGeneration, config, eos)
    images = LlavaNextImageProcessorPil(
        size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336},
        image_grid_pinpoints=pinpoints,
    )  # fmt: skip
    vlm = LlavaNext(model, tokenizer, images, "llava-next-8b (random)")
    vlm.optimise_for_gpu()
    return vlm


def _timed(work: Callable[[], Any], repeats: int = 5) -> tuple[float, float, Any]:
    """Median milliseconds, peak extra MiB, and the last result; without a GPU, no MiB."""
    times, result = [], None
    if not torch.cuda.is_available():
        for _ in range(repeats):
            begun = time.perf_counter()
            result = work()
            times.append(1000 * (time.perf_counter() - begun))
        return statistics.median(times), 0.0, result
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


def _run(vlm: VisionLanguageModel, embedded: Embedded, settings: Settings | None) -> dict:
    """LayerStates and decode one prompt under one setting."""

    def make() -> Any:
        if settings is None:
            return DynamicCache()
        return RotateKCache(vlm.model, embedded.inputs(), settings, metrics=vlm.metrics)

    def fill() -> Any:
        cache = make()
        return cache, prefill(vlm, embedded, cache)[0]

    prefill_ms, prefill_mib, (cache, logits) = _timed(fill)
    if settings is not None:
        cache.graph = False
        cache.reserve_ahead(NEW_TOKENS + 1)  # the graph's room: the same splits, the same rounding
    steps = list(decode(vlm, embedded, cache, logits, NEW_TOKENS))
    graphed = []
    if settings is not None and vlm.device.type == "cuda":
        again, logits = fill()
        again.reserve_ahead(NEW_TOKENS + 1)
        graphed = list(decode(vlm, embedded, again, logits, NEW_TOKENS))
    held = (
        sum(t.nbytes for layer in cache.layers for t in (layer.keys, layer.values))
        if settings is None
        else cache.bytes().total
    )
    return {
        "prefill_ms": round(prefill_ms, 2),
        "prefill_extra_mib": round(prefill_mib, 1),
        "decode_ms": round(statistics.median(step.ms for step in steps[2:]), 3),
        "graph_ms": round(statistics.median(step.ms for step in graphed[2:]), 3)
        if graphed
        else None,
        "graph_equals_eager": [s.tokens for s in graphed] == [s.tokens for s in steps]
        if graphed
        else None,
        "kv_mib": round(held / 2**20, 2),
        "tokens": [step.tokens[0] for step in steps],
    }


def measure(
    vlm: VisionLanguageModel,
    side: int,
    settings_by_name: Mapping[str, Any],
    question: str = "What is the total on this receipt?",
) -> dict:
    """Everything for one family: a square picture of `side` pixels under each of the settings."""
    noise = np.random.default_rng(0).integers(0, 255, (side // 8, side // 8, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((side, side))
    prompt = vlm.prompt(make_request(image, question, NEW_TOKENS))
    report: dict[str, Any] = {"model": vlm.name, "visual_tokens": prompt.visual_tokens, "rows": {}}
    _say(f"\n{vlm.name}: {prompt.visual_tokens} visual tokens")
    plain: list[int] = []
    with torch.no_grad():  # not inference mode: a program around the library need not be in it
        for name, settings in settings_by_name.items():
            pruner = None if settings is None else settings.tokens
            ms, mib, embedded = _timed(partial(vlm.embed, prompt, pruner), 3)
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
            _say(f"  {name:<30} " + "  ".join(f"{k} {v}" for k, v in row.items()))
        report["together_off"] = _together(vlm, vlm.embed(prompt))
        small = vlm.embed(vlm.prompt(make_request(image.resize((336, 448)), "?", NEW_TOKENS)))
        report["batch_equals_single"] = _batch(vlm, [small, vlm.embed(prompt)])
    _say("  " + "  ".join(f"{k} {report[k]}" for k in ("together_off", "batch_equals_single")))
    return report


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()  # a run that is cut off has said all it knew


def _together(vlm: VisionLanguageModel, embedded: Embedded) -> float:
    """Largest relative difference over layers between what Keys and Values come back as, rotated
    together and a layer at a time. Bf16 alone gives about .004; a head whose filter took another
    degree differs by more, where its spectrum is flat."""
    settings = Settings.of(keep_channels=0.25, values="rotate", keep_values=0.25)

    def rebuilt() -> list[torch.Tensor]:
        cache = RotateKCache(vlm.model, embedded.inputs(), settings, metrics=vlm.metrics)
        prefill(vlm, embedded, cache)
        read = [layer.store.read() for layer in cache.layers]
        keys = [visual.keys.float() @ visual.basis.float().mT for visual in read]
        return keys + [visual.values.float() @ visual.value_basis.float() for visual in read]

    together = rebuilt()
    with mock.patch.object(rotatek, "HELD_BYTES", 0):
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


FAMILIES: dict[str, tuple[Callable[[], VisionLanguageModel], int]] = {
    "qwen": (qwen, 1512), "llava": (llava, 672),
    "qwen3-vl-8b": (partial(built, "qwen3-vl-8b", "cuda"), 1024),
    "internvl3-8b": (partial(built, "internvl3-8b", "cuda"), 1344),
    "smolvlm-500m": (partial(built, "smolvlm-500m", "cuda"), 1024),
    "gemma-3-4b": (partial(built, "gemma-3-4b", "cuda"), 896),
    "gemma-3-12b": (partial(built, "gemma-3-12b", "cuda"), 896),
}  # fmt: skip
PAPER: Final = ("qwen", "llava")  # the paper's families, measured under every setting


def settings_for(name: str, vlm: VisionLanguageModel) -> dict[str, Settings | None]:
    """Every setting for the paper's families; for the others those that tell how they fare, with
    as many Key channels, which is another share where heads are wider or narrower."""
    if name in PAPER:
        return SETTINGS
    config = vlm.text_config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    keep = 32 / width
    return {
        "uncompressed": None,
        "full width, our cache": SETTINGS["full width, our cache"],
        "RotateK k=32": Settings.of(keep_channels=keep),
        "RotateK k=32 r=32": Settings.of(keep_channels=keep, values="rotate", keep_values=keep),
        "FastV .4 + RotateK k=32": Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=keep),
        "VisionZip .4 + RotateK k=32": Settings.of(
            tokens="visionzip", keep_tokens=0.4, keep_channels=keep
        ),
    }


def main() -> int:
    """Measure families and print a short table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(PAPER))
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("This command needs a GPU with 40 GB of memory.\n")
        return 2
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "attention": backend("cuda"), "families": [],
    }  # fmt: skip
    for name in args.family:
        make, side = FAMILIES[name]
        vlm = make()
        report["families"].append(measure(vlm, side, settings_for(name, vlm)))
        del vlm
        torch.cuda.empty_cache()
        if args.json:
            args.json.write_text(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
