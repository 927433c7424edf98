"""What four minutes of a GPU tell: `python -m benchmarks.gpu_check --json FILE`.

The kernels at every head width against float64, with heads of many widths side by side; Gemma-3-4B
with random weights (d = 256, windows), its graph and its eager steps token for token; and a token
through `model.generate` for Qwen2.5-VL-7B, its capture counted. `--tiny` runs the same lines on the
CPU: the kernels in Triton's interpreter, tiny models, recorded steps in place of graphs.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks import full_size, generate_speed
from benchmarks.kernels.cases import widths
from benchmarks.kernels.check import _shard, run_parallel
from tests import families

BAR_MS = 8.5  # of a token through `model.generate`, on an H200
TINY_CASES = {("flat", 80), ("flat fp8", 96), ("rotated", 256)}


def kernels(tiny: bool) -> dict[str, Any]:
    """Cases that pass, and the error over plain PyTorch's."""
    cases = widths()
    if not tiny:
        return run_parallel("cuda", cases, max(1, (os.cpu_count() or 2) - 2))
    few = [case for case in cases if (case.pack, case.d) in TINY_CASES and case.N < 300]
    apart = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    with mock.patch.dict(os.environ, TRITON_INTERPRET="1"), apart as pool:
        return pool.submit(_shard, "cpu", list(enumerate(few))).result()


def gemma(tiny: bool) -> dict[str, Any]:
    """Gemma-3-4B under the settings that `benchmarks.full_size` has for it; then at a question so
    long that the answer outgrows the window (a token a letter)."""
    if tiny:
        vlm, side = families.EVERY["gemma3"](), 56
    else:
        make, side = full_size.FAMILIES["gemma-3-4b"]
        vlm = make()
    settings = full_size.settings_for("gemma-3-4b", vlm)
    config = vlm.model.config
    rest = config.text_config.sliding_window - config.mm_tokens_per_image
    with torch.no_grad():
        report = full_size.measure(vlm, side, settings)
        report["window"] = full_size.measure(vlm, side, settings, "total " * ((rest - 28) // 6))
    return report


def generate(tiny: bool) -> dict[str, Any]:
    """Greedy answers of 64 tokens, and of more than the first room."""
    if tiny:
        return generate_speed.tried(8, short=True)
    return generate_speed.measure(generate_speed.large(), generate_speed.SIDES, 64, short=True)


def told(report: dict[str, Any]) -> list[tuple[str, str, bool | None]]:
    """What is said of each part: a name, its figures, and whether it is as it should be."""
    found = report["kernels"]
    passed = found["cases"] - found["failed"]
    over = max(row["over_plain"] for row in found["worst"].values())
    lines: list[tuple[str, str, bool | None]] = [
        ("head widths", f"{passed} of {found['cases']}, {over:.2f}x plain", not found["failed"]),
    ]
    for part, rows in (("", report["gemma"]), (", long", report["gemma"]["window"])):
        for name, row in rows["rows"].items():
            say = f"step {row['decode_ms']} ms, graph {row['graph_ms']} ms, {row['kv_mib']} MiB"
            lines.append((f"Gemma{part}: {name}", say, row["graph_equals_eager"]))
    same = report["gemma"]["batch_equals_single"]
    lines.append(("Gemma: batch", f"{same} of the tokens of singles", same >= 0.9))
    for name, row in report["generate"]["rows"].items():
        if not isinstance(row, dict):
            lines.append((f"generate: {name}", f"{row} ms", None))
            continue
        say = f"{row['graph_ms']} ms, {row['graph_mean_ms']} with the capture"
        lines.append((f"generate: {name}", f"{say}, {row['without_ms']} apart", row["equal"]))
    return lines


def main() -> int:
    """Check, print, write; 1 where something is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--tiny", action="store_true", help="on the CPU, to try the command")
    args = parser.parse_args()
    if not args.tiny and not torch.cuda.is_available():
        sys.stderr.write("This command needs a GPU with 40 GB of memory, or --tiny.\n")
        return 2
    report: dict[str, Any] = {
        "device": "CPU" if args.tiny else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "bar_ms": BAR_MS,
        "seconds": {},
    }
    parts: dict[str, Callable[[bool], dict]] = {
        "kernels": kernels, "gemma": gemma, "generate": generate,
    }  # fmt: skip
    for name, part in parts.items():
        begun = time.perf_counter()
        report[name] = part(args.tiny)
        report["seconds"][name] = round(time.perf_counter() - begun, 1)
        if args.json:  # a run that is cut off keeps what it had
            args.json.write_text(json.dumps(report, indent=1))
    lines = told(report)
    words = {True: "as it should be", False: "WRONG", None: ""}
    sys.stdout.write("\n")
    for title, say, right in lines:
        sys.stdout.write(f"{title:<38}{say:<56}{words[right]}\n")
    sys.stdout.write(f"seconds: {report['seconds']}\n")
    return 1 if any(right is False for _, _, right in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
