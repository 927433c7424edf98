"""The cost of a prefill's layers: Qwen2.5-VL-7B's shapes, a picture of 2,880 visual tokens.

Milliseconds of the vision tower and of the language model's prompt: with their element-wise work in
one pass each and in plain PyTorch; and with cuDNN's attention and with flash attention, each as it
is when the same has just run, and in a thread that is new, as a visitor's may be.
"""

import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

from benchmarks.full_families import qwen
from benchmarks.serving import SIDES, requests
from benchmarks.timing import seconds
from kernels.dispatch import Dispatcher
from rotatek.models import VisionLanguageModel
from tests.tiny import tiny_qwen

REPEATS = 8
PROMPTS = 2950, 2963  # tokens: one that has run before, and one that has not


def works(vlm: VisionLanguageModel, side: tuple[int, int]) -> dict[str, Callable[[], Any]]:
    """The timed works."""
    pixels = vlm.look(requests(1, side, 1)[0])
    decoder, device = vlm.model.model.language_model, vlm.device
    width, dtype = vlm.text_config.hidden_size, vlm.model.dtype

    def prompt(tokens: int) -> Callable[[], Any]:
        states = torch.randn(1, tokens, width, device=device, dtype=dtype)
        places = torch.arange(tokens, device=device).expand(3, 1, -1)
        return lambda: decoder(inputs_embeds=states, position_ids=places, use_cache=True)

    known, new = map(prompt, PROMPTS)
    return {"tower": lambda: vlm.features(pixels), "prompt": known, "new prompt": new}


@torch.inference_mode()
def took(work: Callable[[], Any], repeats: int = 1) -> float:
    """Milliseconds, the host's part included."""
    return 1000 * seconds(work, repeats)


def warm(work: Callable[[], Any]) -> float:
    """Milliseconds of what has just run."""
    took(work)
    return took(work, REPEATS)


def in_new_thread(work: Callable[[], Any]) -> float:
    """Milliseconds in a thread that has done nothing yet."""
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(took(work)))
    thread.start()
    thread.join()
    return found[0]


def layers(tiny: bool = False) -> dict[str, Any]:
    """Both comparisons."""
    vlm, side = (tiny_qwen(), (224, 168)) if tiny else (qwen(2880), SIDES)
    every = works(vlm, side)
    report: dict[str, Any] = {"passes": {}, "attention": {}}
    for name in ("tower", "prompt"):
        one_pass = warm(every[name])
        with mock.patch.object(Dispatcher, "elementwise", lambda *_: None):
            report["passes"][name] = {"one pass": one_pass, "plain": warm(every[name])}
    for kind in ("cudnn", "flash"):
        torch.backends.cuda.enable_cudnn_sdp(kind == "cudnn")
        row = {name: warm(every[name]) for name in ("tower", "prompt")}
        row["new tower"] = in_new_thread(every["tower"])
        row["new prompt"] = in_new_thread(every["new prompt"])
        report["attention"][kind] = row
    return report
