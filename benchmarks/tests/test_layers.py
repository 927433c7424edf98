"""The script that times layers on a GPU, whose figures a document holds."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen
from torch.nn.functional import scaled_dot_product_attention

from benchmarks import layers_gpu
from rotatek.bridge.packed_sequences import Segments


def test_layers_are_timed_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers_gpu, "PROMPTS", (12, 13))
    report = layers_gpu.layers(tiny=True)
    committed = json.loads(Path("assets/results/layers.json").read_text())
    assert report.keys() == {"passes", "attention"} <= committed.keys()
    for part in ("passes", "attention"):
        assert report[part].keys() == committed[part].keys()
        for name, row in report[part].items():
            assert row.keys() == committed[part][name].keys()
            assert all(ms > 0 for ms in row.values())


def test_one_call_attends_as_samples_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arm's arguments, by an attention that needs no GPU."""

    def attend(q: Tensor, k: Tensor, v: Tensor, ends: Tensor, _: Tensor, *longest: int) -> Tensor:
        assert longest == (4, 4)
        parts = (each.transpose(0, 1).split(ends.diff().tolist(), 1) for each in (q, k, v))
        rows = [scaled_dot_product_attention(*part) for part in zip(*parts, strict=True)]
        return torch.cat(rows, 1).transpose(0, 1)

    def full(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v).transpose(1, 2)

    monkeypatch.setattr(varlen, "varlen_attn", attend)
    segments = Segments(torch.tensor([0, 4, 6, 10]))
    q, k, v = torch.randn(3, 1, 2, 10, 8, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        found = layers_gpu.varlen(segments, q, k, v, full)
        torch.testing.assert_close(found, segments.attend(q, k, v, full))
