"""What `model.generate` takes a token: `python -m benchmarks.generate_speed --json FILE`, on a GPU.

Qwen2.5-VL-7B's shapes with random weights. Tokens of replayed steps must equal those of steps that
are launched kernel by kernel, or no time is printed. `--tiny` runs the same on
the CPU with a tiny model and recorded steps, to try the command.
"""

import argparse
import cProfile
import io
import json
import pstats
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image
from transformers import StoppingCriteria, StoppingCriteriaList, TextStreamer
from transformers.cache_utils import DynamicCache
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from benchmarks import full_size
from rotatek.bridge.cache_argument import with_cache
from rotatek.cache import step_graph
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import decode, prefill
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import Prompt, VisionLanguageModel
from tests.recorded import RecordedGraph
from tests.tiny import tiny_qwen

SIDES = {1225: (980, 980), 2880: (1680, 1344)}  # pixels that make so many visual tokens
SETTINGS = Settings.of(keep_channels=0.25)
SAMPLED = {"do_sample": True, "temperature": 0.8, "top_p": 0.9, "top_k": 50}


class Clock(StoppingCriteria):
    """Notes when each token is there, and ends nothing."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        self.times.append(time.perf_counter())
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    def ms(self) -> tuple[float, float]:
        """Milliseconds a token: median of the later half, and mean from the second token on."""
        steps = 1000 * np.diff(self.times)
        return statistics.median(steps[len(steps) // 2 :]), float(np.mean(steps))


class Silent(TextStreamer):
    """Decodes the stream and shows nothing."""

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        pass


def prompt_of(vlm: VisionLanguageModel, size: tuple[int, int]) -> Prompt:
    """A picture of noise and a question."""
    noise = np.random.default_rng(0).integers(0, 255, (size[1] // 8, size[0] // 8, 3), np.uint8)
    picture = Image.fromarray(noise).resize(size)
    return vlm.prompt(make_request(picture, "What is the total on this receipt?", 8))


def inputs_of(prompt: Prompt, batch: int) -> dict[str, torch.Tensor]:
    """What a processor hands to `generate`."""
    rows = {
        "input_ids": prompt.ids, "attention_mask": torch.ones_like(prompt.ids),
        "mm_token_type_ids": prompt.visual.int(), **prompt.pixels.tensors,
    }  # fmt: skip
    return {name: torch.cat([one] * batch) for name, one in rows.items()}


def generated(
    vlm: VisionLanguageModel, inputs: dict[str, Any], cache: Any, new: int, **options: Any
) -> tuple[list, tuple[float, float]]:
    """New tokens of every row, and milliseconds a token."""
    clock = Clock()
    torch.manual_seed(5)
    ids = vlm.model.generate(
        **inputs, **with_cache(vlm.model, cache), max_new_tokens=new, min_new_tokens=new,
        **({"do_sample": False} | options), stopping_criteria=StoppingCriteriaList([clock]),
    )  # fmt: skip
    return ids[:, inputs["input_ids"].shape[1] :].tolist(), clock.ms()


def row(vlm: VisionLanguageModel, inputs: dict[str, Any], new: int, **options: Any) -> dict:
    """One way to generate, with and without the graph."""

    def run(graph: bool) -> tuple[list, tuple[float, float]]:
        cache = RotateKCache(vlm.model, inputs, SETTINGS)
        cache.graph = graph
        return generated(vlm, inputs, cache, new, **options)

    run(True)  # kernels compile
    wanted, without = run(False)
    found, replayed = run(True)
    report = {
        "equal": found == wanted,
        "without_ms": round(without[0], 3),
        "graph_ms": round(replayed[0], 3) if found == wanted else None,
        "graph_mean_ms": round(replayed[1], 3) if found == wanted else None,
    }
    if not options and new < step_graph.ROOM:
        dynamic = generated(vlm, inputs, DynamicCache(), min(new, 32), **options)[1]
        report["dynamic_cache_ms"] = round(dynamic[0], 3)
    return report


def own_step(vlm: VisionLanguageModel, prompt: Prompt, new: int) -> float | None:
    """Milliseconds of a captured step without `generate` around it."""
    if vlm.device.type != "cuda":
        return None
    embedded = vlm.embed(prompt)
    cache = RotateKCache(vlm.model, embedded.inputs(), SETTINGS)
    logits, _ = prefill(vlm, embedded, cache)
    steps = list(decode(vlm, embedded, cache, logits, new))
    return round(statistics.median(step.ms for step in steps[2:]), 3)


def threads(vlm: VisionLanguageModel, inputs: dict[str, Any], new: int) -> dict:
    """Two threads at once, one of which samples: whether the other says the same, and faults."""
    wanted = generated(vlm, inputs, RotateKCache(vlm.model, inputs, SETTINGS), new)[0]
    faults, equal = [], []

    def run(**options: Any) -> None:
        try:
            for _ in range(3):
                cache = RotateKCache(vlm.model, inputs, SETTINGS)
                said = generated(vlm, inputs, cache, new, **options)[0]
                if not options:
                    equal.append(said == wanted)
        except Exception as error:
            faults.append(repr(error))

    both = [threading.Thread(target=run), threading.Thread(target=run, kwargs=SAMPLED)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    return {"equal": equal, "faults": faults}


def profile(vlm: VisionLanguageModel, inputs: dict[str, Any], new: int) -> str:
    """Where the host's time goes."""
    cache = RotateKCache(vlm.model, inputs, SETTINGS)
    watch = cProfile.Profile()
    watch.enable()
    generated(vlm, inputs, cache, new)
    watch.disable()
    text = io.StringIO()
    pstats.Stats(watch, stream=text).sort_stats("tottime").print_stats(25)
    return text.getvalue()


def measure(
    vlm: VisionLanguageModel, sides: dict[int, tuple[int, int]], new: int, short: bool = False
) -> dict:
    """Every row; each is printed when it is there. short: greedy, at the smallest picture."""
    report: dict[str, Any] = {"rows": {}, "profile": ""}
    for tokens, size in list(sides.items())[: 1 if short else None]:
        prompt = prompt_of(vlm, size)
        one, four = inputs_of(prompt, 1), inputs_of(prompt, 4)
        ways: dict[str, tuple[dict, int, dict]] = {
            "greedy": (one, new, {}),
            "sampling": (one, new, SAMPLED),
            "streamed": (one, new, {"streamer": Silent(vlm.tokenizer, skip_prompt=True)}),
            "batch of 4": (four, new, {}),
            "longer than the room": (one, 2 * step_graph.ROOM, {}),
        }
        say(f"{prompt.visual_tokens} visual tokens (of {tokens} wanted)")
        for name, (inputs, count, options) in ways.items():
            if tokens != min(sides) and name.startswith(("streamed", "longer")):
                continue
            if short and name not in ("greedy", "longer than the room"):
                continue
            found = row(vlm, inputs, count, **options)
            report["rows"][f"{tokens} {name}"] = found
            say(f"  {name:<22}" + "  ".join(f"{k} {v}" for k, v in found.items()))
        report["rows"][f"{tokens} own step"] = own = own_step(vlm, prompt, new)
        say(f"  our own step          {own} ms")
        if tokens == min(sides) and not short:
            report["threads"] = threads(vlm, one, new)
            say(f"  two threads           {report['threads']}")
            report["profile"] = profile(vlm, one, new)
    return report


def large() -> VisionLanguageModel:
    """Qwen2.5-VL-7B's shapes, and pictures of up to 4,096 visual tokens."""
    vlm = full_size.qwen()
    most = {"shortest_edge": 3136, "longest_edge": 28 * 28 * 4096}
    vlm.images = Qwen2VLImageProcessorPil(size=most)
    return vlm


def tried(new: int, short: bool = False) -> dict:
    """Every row with a tiny model on the CPU, with recorded steps in place of graphs."""
    without: dict[str, Any] = {"capture": RecordedGraph, "capturable": lambda device: True}
    with mock.patch.multiple(step_graph, **without):
        return measure(tiny_qwen(), {12: (120, 90)}, new, short)


def say(line: str) -> None:
    """A line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the CPU")
    parser.add_argument("--short", action="store_true", help="greedy, at the smaller picture")
    parser.add_argument("--new", type=int, default=64, help="tokens of an answer")
    args = parser.parse_args()
    if args.tiny:
        report = tried(args.new)
    elif torch.cuda.is_available():
        report = {"device": torch.cuda.get_device_name()} | measure(
            large(), SIDES, args.new, args.short
        )
    else:
        sys.stderr.write("This command needs a GPU with 40 GB of memory, or --tiny.\n")
        return 2
    say(report.pop("profile"))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
