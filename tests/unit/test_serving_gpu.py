"""The measurement for a GPU runs from end to end, on tiny models."""

import json
from pathlib import Path

import pytest

from rotatek.models import VisionLanguageModel
from tests import serving_gpu


def test_it_measures_every_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", VisionLanguageModel.stop_ids)
    words = "--tiny --clients 3 --turns 2 --tokens 6 --over 0.1".split()
    report = serving_gpu.main(words)
    assert json.loads((tmp_path / "serving_gpu.json").read_text())["bars"] == report["bars"]
    assert set(report["bars"]) == set(serving_gpu.BARS)
    for row in report["rows"].values():
        assert row["failed"] == row["left_bytes"] == row["steps_later"] == 0
        assert row["freed_bytes"] > 0 and row["tokens_s"] > 0 and row["rows"] > 0
