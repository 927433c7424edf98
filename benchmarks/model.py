"""`model.generate` at Qwen2.5-VL-7B's shapes with random weights, plainly and with our cache.

Plain transformers comes first, before anything of ours touches the model. Tokens of replayed steps
must equal those of steps that are launched kernel by kernel, or the step's time is refused.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import torch
from transformers import StoppingCriteria, StoppingCriteriaList
from transformers.cache_utils import DynamicCache

from benchmarks.full_qwen import QUESTION, SETTINGS, SIDES, adapted, drawn, noise
from benchmarks.timing import seconds
from rotatek.bridge.scope import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from tests.tiny import tiny_qwen

PIXELS: Final = {1225: (980, 980), 2880: SIDES}  # that make so many visual tokens


class Clock(StoppingCriteria):
    """Notes when each token is there, and ends nothing."""

    def __init__(self) -> None:
        self.times = [time.perf_counter()]

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        self.times.append(time.perf_counter())
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def generated(model: Any, inputs: dict[str, Any], cache: Any, new: int) -> tuple[list, list[float]]:
    """New tokens of every row, and the milliseconds that each took: the first has the prefill."""
    clock = Clock()
    ids = model.generate(
        **inputs, **with_cache(model, cache), max_new_tokens=new, min_new_tokens=new,
        do_sample=False, stopping_criteria=StoppingCriteriaList([clock]),
    )  # fmt: skip
    return ids[:, inputs["input_ids"].shape[1] :].tolist(), (1e3 * np.diff(clock.times)).tolist()


def measure(
    model: Any, inputs: dict[str, Any], make: Callable[[], Any], new: int, rounds: int
) -> dict[str, Any]:
    """Medians: the first token through `generate`, a bare forward pass, and a step."""
    generated(model, inputs, make(), min(new, 8))  # compiles
    times = [generated(model, inputs, make(), new)[1] for _ in range(rounds)]

    def prefill(cache: Any) -> float:
        given = inputs | with_cache(model, cache)
        return 1e3 * seconds(lambda: model(**given, use_cache=True, logits_to_keep=1))

    with torch.inference_mode():
        passes = [prefill(make()) for _ in range(rounds)]
    return {
        "first_token_ms": statistics.median(each[0] for each in times),
        "prefill_ms": statistics.median(passes),
        "step_ms": statistics.median(statistics.median(each[new // 2 :]) for each in times),
    }


def ours(
    model: Any, inputs: dict[str, Any], setting: Settings, new: int, rounds: int
) -> dict[str, Any]:
    """The same with our cache, whose steps are replayed on a GPU."""

    def make(graph: bool = True) -> RotateKCache:
        cache = RotateKCache(model, inputs, setting)
        cache.graph = graph and inputs["input_ids"].is_cuda
        return cache

    cache = make()
    wanted, found = (generated(model, inputs, each, new)[0] for each in (make(False), cache))
    row = {"MB": cache.bytes().total / 1e6} | measure(model, inputs, make, new, rounds)
    if wanted != found:
        row |= {"step_ms": None, "refused": "replayed steps say something else"}
    return row


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--visual", type=int, nargs="+", choices=PIXELS, default=[2880])
    parser.add_argument("--new", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=3)


def run(options: argparse.Namespace) -> Iterator[dict]:
    """A row an arm, batch and picture."""
    if options.tiny:
        small = tiny_qwen()
        model, sides = small.model, {12: (120, 90)}
    else:
        model, small = drawn()
        sides = {tokens: PIXELS[tokens] for tokens in options.visual}
        small.images.size = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * max(sides)}
    given: dict[tuple[int, int], dict[str, torch.Tensor]] = {}
    for size in sides.values():
        prompt = small.prompt(make_request(noise(*size), QUESTION, 8))
        rows = {  # a processor's output, as the input of `generate`
            "input_ids": prompt.ids, "attention_mask": torch.ones_like(prompt.ids),
            "mm_token_type_ids": prompt.visual.int(), **prompt.pixels.tensors,
        }  # fmt: skip
        for batch in options.batch:
            inputs = {name: torch.cat([one] * batch).to(model.device) for name, one in rows.items()}
            given[prompt.visual_tokens, batch] = inputs
    for label in ("transformers", *SETTINGS):
        if label == next(iter(SETTINGS)) and not options.tiny:
            model = adapted(model, small).model
        for (visual, batch), inputs in given.items():
            known = {"arm": label, "B": batch, "N": visual}
            if label in SETTINGS:
                yield known | ours(model, inputs, SETTINGS[label], options.new, options.rounds)
            else:
                yield known | measure(model, inputs, DynamicCache, options.new, options.rounds)
