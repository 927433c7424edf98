"""A check of a few minutes on a GPU: kernels, Gemma's windows, and `model.generate`.

The kernels at every head width against float64, with heads of many widths side by side; Gemma-3-4B
with random weights (d = 256, windows), its graph and its eager steps token for token; and a token
through `model.generate` for Qwen2.5-VL-7B, its capture counted. `tiny` runs the same lines on the
CPU: the kernels in Triton's interpreter, tiny models, recorded steps in place of graphs.
"""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any
from unittest import mock

import torch

from benchmarks import full_size
from benchmarks.full_families import built
from benchmarks.generate_speed import generate
from benchmarks.kernels import check
from benchmarks.kernels.cases import widths
from kernels import dispatch
from tests import families

BAR_MS = 8.5  # of a token through `model.generate`, on an H200
TINY_CASES = {("flat", 80), ("flat fp8", 96), ("rotated", 256)}


def kernels(tiny: bool) -> dict[str, Any]:
    """Cases that pass, and the error over plain PyTorch's."""
    cases = widths()
    if not tiny:
        return check.run_parallel("cuda", cases)
    few = [case for case in cases if (case.pack, case.d) in TINY_CASES and case.N < 300]
    apart = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    with mock.patch.dict(os.environ, TRITON_INTERPRET="1"), apart as pool:
        return pool.submit(check.shard, "cpu", list(enumerate(few))).result()


def gemma(tiny: bool) -> dict[str, Any]:
    """Gemma-3-4B under the settings that `benchmarks.full_size` has for it; then at a question so
    long that the answer outgrows the window (a token a letter)."""
    if tiny:
        vlm, side = families.EVERY["gemma3"](), 56
    else:
        vlm, side = built("gemma-3-4b"), full_size.FAMILIES["gemma-3-4b"]
    settings = full_size.settings_for("gemma-3-4b", vlm)
    config = vlm.model.config
    rest = config.text_config.sliding_window - config.mm_tokens_per_image
    with torch.no_grad():
        report = full_size.measure(vlm, side, settings)
        report["window"] = full_size.measure(vlm, side, settings, "total " * ((rest - 28) // 6))
    return report


def gpu_check(tiny: bool = False) -> Iterator[dict[str, Any]]:
    """The three parts; the report grows by one at a time."""
    report: dict[str, Any] = {"bar_ms": BAR_MS, "seconds": {}}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "kernels": lambda: kernels(tiny),
        "gemma": lambda: gemma(tiny),
        # greedy answers of 64 tokens, and of more than the first room
        "generate": lambda: generate(tiny, short=True, tokens=8 if tiny else 64),
    }
    for name, part in parts.items():
        begun = time.perf_counter()
        report[name] = part()
        report["seconds"][name] = round(time.perf_counter() - begun, 1)
        yield report


def faults(report: dict[str, Any]) -> list[str]:
    """The faults, a sentence each."""
    wrong = check.faults(report["kernels"] | {"solver": {"failed": 0}})
    for part, found in (("", report["gemma"]), (", long", report["gemma"]["window"])):
        for name, row in found["rows"].items():
            if row["graph_equals_eager"] is False:
                wrong.append(f"Gemma{part}, {name}: the graph's tokens are not those of steps")
    if torch.cuda.is_available():
        reason = dispatch.status("cuda").reason
        wrong += [] if reason.startswith("GPU kernels are in use") else [reason]
    if (same := report["gemma"]["batch_equals_single"]) < 0.9:
        wrong.append(f"Gemma's batch has {same} of the tokens of single runs")
    for name, row in report["generate"]["rows"].items():
        if isinstance(row, dict) and not row["equal"]:
            wrong.append(f"generate, {name}: the graph's tokens are not those of steps")
    return wrong
