"""Kernels read the running batch's pools as they lie: a room a row, at addresses that stay."""

import numpy as np
import torch
from PIL import Image
from transformers.cache_utils import DynamicCache

from kernels.attention_launch import attend_triton
from kernels.packed_attention_launch import attend_packed
from kernels.reference import Packed, attend_reference
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.batch import RunningBatch
from rotatek.engine.decode import prefill
from rotatek.engine.sequences import Sequence
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from tests.kernels.cases import misaligned
from tests.tiny import tiny_qwen

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def filled(vlm: VisionLanguageModel, number: int) -> RotateKCache:
    """Of a picture and a question: neighbours differ in size, in text and in spectra."""
    noise = np.random.default_rng(number).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((140 + 28 * (number % 3), 168))
    asked = make_request(image, f"question {number} " * (1 + number % 3), 64)
    embedded = vlm.embed(vlm.prompt(asked))
    cache = RotateKCache(vlm.model, embedded.inputs(), Settings.of(smaller=3))
    prefill(vlm, embedded, cache)
    return cache


@torch.inference_mode()
def test_kernels_read_pools_in_place() -> None:
    """Aligned as they rely on, and the same attention as over caches of their own; a row that
    joined where another had left, and rows that are not in use, among them."""
    vlm = tiny_qwen()
    vlm.model.to(DEVICE)
    batch = RunningBatch(DynamicCache(config=vlm.model.config))
    batch.static = True
    alone = [filled(vlm, n) for n in (4, 10, 7)]
    rows = [Sequence(filled(vlm, n), None, 0, 0) for n in (4, 1, 7, 10)]
    batch.join(rows[:3])
    batch.leave(rows[1:2])
    batch.join(rows[3:])
    for layer in (0, 3):
        (slots,) = batch.layers[layer].groups
        visual, text = slots.visual(), slots._text()
        assert visual is not None and not misaligned(visual) and slots.width > len(alone)
        query = torch.randn(slots.width, 14, 1, 32, device=DEVICE)
        want = attend_reference(query, visual, text, 0.2)
        for row, cache in enumerate(alone):
            held = cache.layers[layer]
            own = attend_reference(query[row][None], held.store.read(), held.text.read(), 0.2)
            torch.testing.assert_close(want[row][None], own, atol=1e-4, rtol=1e-4)
        if isinstance(visual, Packed):  # which are not read under float32
            text = text._replace(keys=text.keys.half(), values=text.values.half())
            got = attend_packed(query.half(), visual, text, 0.2).float()
        else:
            got = attend_triton(query, visual, text, 0.2)
        torch.testing.assert_close(got[:3], want[:3], atol=2e-2, rtol=2e-2)
