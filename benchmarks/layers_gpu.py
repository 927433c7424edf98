"""The cost of a prefill's layers: Qwen2.5-VL-7B's shapes, a picture of 2,880 visual tokens.

Milliseconds of the vision tower and of the language model's prompt: with their element-wise work in
one pass each and in plain PyTorch; and with cuDNN's attention and with flash attention, each as it
is when the same has just run, and in a thread that is new, as a visitor's may be. On a GPU also
with liger-kernel's passes, if that is installed, and with the tower's windows in one call of
`torch.nn.attention.varlen`; `off` is the largest relative difference that varlen makes.
"""

import threading
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor

from benchmarks.full_families import qwen
from benchmarks.serving import SIDES, requests
from benchmarks.timing import seconds
from kernels.dispatch import Dispatcher
from rotatek.bridge.packed_sequences import Segments
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


def liger(owner: Dispatcher, work: str, *given: Any) -> Tensor | None:
    """`Dispatcher.elementwise` by liger-kernel; None for what it has no pass for."""
    if work == "rotate":
        return None
    ops = import_module("liger_kernel.ops." + {"norm": "rms_norm", "gate": "swiglu"}[work])
    function = ops.LigerRMSNormFunction if work == "norm" else ops.LigerSiLUMulFunction
    made: Tensor = function.apply(*given)
    return made


def varlen(owner: Segments, query: Tensor, key: Tensor, value: Tensor, full: Any) -> Tensor:
    """`Segments.attend` in one call."""
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415

    ends = vars(owner).get("ends")
    if ends is None:
        ends = torch.tensor([0, *accumulate(owner.lengths)], dtype=torch.int32, device=query.device)
        vars(owner)["ends"] = ends
    q, k, v = (states[0].transpose(0, 1).contiguous() for states in (query, key, value))
    made: Any = varlen_attn(q, k, v, ends, ends, max(owner.lengths), max(owner.lengths))
    return cast("Tensor", made)[None]


@torch.inference_mode()
def varlen_arm(tower: Callable[[], Tensor]) -> dict[str, float]:
    """The tower with windows as samples, and in one varlen call."""
    found = {"samples": warm(tower)}
    want = tower()
    with mock.patch.object(Segments, "attend", varlen):
        found["varlen"] = warm(tower)
        off = (tower() - want).abs().max() / want.abs().max()
    return found | {"off": float(off)}


def layers(tiny: bool = False) -> dict[str, Any]:
    """Both comparisons."""
    vlm, side = (tiny_qwen(), (224, 168)) if tiny else (qwen(2880), SIDES)
    every = works(vlm, side)
    report: dict[str, Any] = {"passes": {}, "attention": {}}
    for name in ("tower", "prompt"):
        one_pass = warm(every[name])
        with mock.patch.object(Dispatcher, "elementwise", lambda *_: None):
            report["passes"][name] = {"one pass": one_pass, "plain": warm(every[name])}
        if vlm.device.type == "cuda" and find_spec("liger_kernel"):
            with mock.patch.object(Dispatcher, "elementwise", liger):
                report["passes"][name]["liger"] = warm(every[name])
    if vlm.device.type == "cuda":
        report["windows"] = {"tower": varlen_arm(every["tower"])}
    for kind in ("cudnn", "flash"):
        torch.backends.cuda.enable_cudnn_sdp(kind == "cudnn")
        row = {name: warm(every[name]) for name in ("tower", "prompt")}
        row["new tower"] = in_new_thread(every["tower"])
        row["new prompt"] = in_new_thread(every["new prompt"])
        report["attention"][kind] = row
    return report
