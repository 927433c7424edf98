"""Kernels read the running batch's pools as they lie: a room a row, at addresses that stay."""

import pytest
import torch
from transformers.cache_utils import DynamicCache

from kernels.attention_launch import attend_triton
from kernels.packed_attention_launch import attend_packed
from kernels.reference import Packed, attend_reference
from rotatek.engine.batch import RunningBatch
from tests.kernels.cases import misaligned
from tests.ragged import KINDS, filled
from tests.tiny import tiny_qwen

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_kernels_read_pools_in_place(kind: str) -> None:
    """Aligned as they rely on, and the same attention as over caches of their own; a row that
    joined where another had left, and rows that are not in use, among them."""
    vlm = tiny_qwen()
    vlm.model.to(DEVICE)
    batch = RunningBatch(DynamicCache(config=vlm.model.config))
    batch.static = True
    alone = [filled(vlm, KINDS[kind], n).cache for n in (4, 10, 7)]
    joined = batch.join([filled(vlm, KINDS[kind], n).cache for n in (4, 1, 7)], 0)
    batch.leave(joined[1])
    batch.join([filled(vlm, KINDS[kind], 10).cache], 0)
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
