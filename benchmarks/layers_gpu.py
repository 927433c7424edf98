"""What a prefill's layers cost on a GPU: `python -m benchmarks.layers_gpu --json FILE`. A minute.

Qwen2.5-VL-7B's shapes with random weights, a picture of 2,880 visual tokens. Milliseconds of the
vision tower and of the language model's prompt: with their element-wise work in one pass each and
in plain PyTorch; and with cuDNN's attention and with flash attention, each as it is when the same
has just run, and in a thread that is new, as a visitor's may be. `--tiny` tries the script out.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks.serving_gpu import model
from benchmarks.serving_speed import requests
from kernels.fused_dispatch import Passes
from rotatek.cache.device_timing import synchronise
from rotatek.models import VisionLanguageModel

REPEATS = 8
PROMPTS = 2950, 2963  # tokens: one that has run before, and one that has not


def works(vlm: VisionLanguageModel, side: tuple[int, int]) -> dict[str, Callable[[], Any]]:
    """What is timed."""
    pixels = vlm.look(requests(1, side, 1, 1)[0])
    decoder, device = vlm.model.model.language_model, vlm.device
    width, dtype = vlm.text_config.hidden_size, vlm.model.dtype

    def prompt(tokens: int) -> Callable[[], Any]:
        states = torch.randn(1, tokens, width, device=device, dtype=dtype)
        places = torch.arange(tokens, device=device).expand(3, 1, -1)
        return lambda: decoder(inputs_embeds=states, position_ids=places, use_cache=True)

    known, new = map(prompt, PROMPTS)
    return {"tower": lambda: vlm.features(pixels), "prompt": known, "new prompt": new}


@torch.inference_mode()
def took(device: torch.device, work: Callable[[], Any], repeats: int = 1) -> float:
    """Milliseconds, the host's part included."""
    synchronise(device)
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    synchronise(device)
    return 1000 * (time.perf_counter() - began) / repeats


def warm(device: torch.device, work: Callable[[], Any]) -> float:
    """Milliseconds of what has just run."""
    took(device, work)
    return took(device, work, REPEATS)


def in_new_thread(device: torch.device, work: Callable[[], Any]) -> float:
    """Milliseconds in a thread that has done nothing yet."""
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(took(device, work)))
    thread.start()
    thread.join()
    return found[0]


def measured(vlm: VisionLanguageModel, side: tuple[int, int]) -> dict[str, Any]:
    """Both comparisons."""
    device, every = vlm.device, works(vlm, side)
    report: dict[str, Any] = {"passes": {}, "attention": {}}
    for name in ("tower", "prompt"):
        one_pass = warm(device, every[name])
        with mock.patch.object(Passes, "run", lambda *_: None):
            report["passes"][name] = {"one pass": one_pass, "plain": warm(device, every[name])}
    for kind in ("cudnn", "flash"):
        torch.backends.cuda.enable_cudnn_sdp(kind == "cudnn")
        row = {name: warm(device, every[name]) for name in ("tower", "prompt")}
        row["new tower"] = in_new_thread(device, every["tower"])
        row["new prompt"] = in_new_thread(device, every["new prompt"])
        report["attention"][kind] = row
    return report


def main(words: list[str] | None = None) -> None:
    """Print the report, and write it where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layers_gpu", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="random tiny weights")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args(words)
    vlm, side = model(args.tiny)
    where = torch.cuda.get_device_name() if vlm.device.type == "cuda" else "cpu"
    report = {"device": where, "torch": torch.__version__}
    report |= measured(vlm, side)
    said = json.dumps(report, indent=1)
    print(said)  # noqa: T201
    if args.json:
        args.json.write_text(said + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
