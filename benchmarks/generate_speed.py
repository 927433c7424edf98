"""The time of a token of `model.generate`, with Qwen2.5-VL-7B's shapes and random weights.

Tokens of replayed steps must equal those of steps that are launched kernel by kernel, or no time is
given. `tiny` runs the same on the CPU with a tiny model and recorded steps.
"""

import statistics
import threading
import time
from typing import Any
from unittest import mock

import numpy as np
import torch
from transformers import StoppingCriteria, StoppingCriteriaList, TextStreamer
from transformers.cache_utils import DynamicCache

from benchmarks.full_families import noise, qwen
from benchmarks.harness import say
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


def inputs_of(prompt: Prompt, batch: int) -> dict[str, torch.Tensor]:
    """A processor's output, as the input of `generate`."""
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


def row(
    vlm: VisionLanguageModel, inputs: dict[str, Any], new: int, **options: Any
) -> dict[str, Any]:
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


def threads(vlm: VisionLanguageModel, inputs: dict[str, Any], new: int) -> dict[str, Any]:
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


def measure(
    vlm: VisionLanguageModel, sides: dict[int, tuple[int, int]], new: int, short: bool = False
) -> dict[str, Any]:
    """Every row; each is printed when it is there. short: greedy, at the smallest picture."""
    report: dict[str, Any] = {"rows": {}}
    for tokens, size in list(sides.items())[: 1 if short else None]:
        request = make_request(noise(*size), "What is the total on this receipt?", 8)
        prompt = vlm.prompt(request)
        one, four = inputs_of(prompt, 1), inputs_of(prompt, 4)
        ways: dict[str, tuple[dict[str, Any], int, dict[str, Any]]] = {
            "greedy": (one, new, {}),
            "longer than the room": (one, 2 * step_graph.ROOM, {}),
            "sampling": (one, new, SAMPLED),
            "streamed": (one, new, {"streamer": Silent(vlm.tokenizer, skip_prompt=True)}),
            "batch of 4": (four, new, {}),
        }
        say(f"{prompt.visual_tokens} visual tokens (of {tokens} wanted)")
        for name, (inputs, count, options) in list(ways.items())[: 2 if short else None]:
            if tokens != min(sides) and name.startswith(("streamed", "longer")):
                continue
            report["rows"][f"{tokens} {name}"] = found = row(vlm, inputs, count, **options)
            say(f"  {name}", found)
        report["rows"][f"{tokens} own step"] = own_step(vlm, prompt, new)
        if tokens == min(sides) and not short:
            report["threads"] = threads(vlm, one, new)
    return report


def generate(tiny: bool = False, short: bool = False, tokens: int = 64) -> dict[str, Any]:
    """Every row; tiny: with a tiny model on the CPU, and recorded steps in place of graphs."""
    if not tiny:
        return measure(qwen(4096), SIDES, tokens, short)
    recorded: dict[str, Any] = {"capture": RecordedGraph, "capturable": lambda device: True}
    with mock.patch.multiple(step_graph, **recorded):
        return measure(tiny_qwen(), {12: (120, 90)}, tokens, short)
