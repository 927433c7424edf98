"""The script that times layers on a GPU, whose figures a document holds."""

import json
from pathlib import Path

import pytest

from benchmarks import layers_gpu


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
