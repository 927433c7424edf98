"""The measurement for a GPU runs from end to end, on tiny models."""

import json
from pathlib import Path

import pytest

from benchmarks import serving_gpu
from rotatek.models import VisionLanguageModel

WORDS = "--tiny --clients 4 --turns 2 --tokens 6 --over 0.1".split()


@pytest.fixture(autouse=True)
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", VisionLanguageModel.stop_ids)
    return tmp_path / "serving_gpu.json"


def test_it_measures_every_bar(written: Path) -> None:
    report = serving_gpu.main(WORDS)
    assert json.loads(written.read_text())["bars"] == report["bars"]
    assert set(report["bars"]) == set(serving_gpu.BARS)
    assert all(found is not None for found, *_ in report["bars"].values())
    assert "errors" not in str(report["rows"]) and set(report["rows"]["mixed"]) > {"tokens_s"}
    for name, row in report["rows"].items():
        assert row["failed"] == 0 < row["rows"] and row["tokens_s"] > 0
        if name != serving_gpu.MIXED:
            assert row["left_bytes"] == row["steps_later"] == 0 < row["freed_bytes"]


def test_a_part_that_fails_costs_no_other(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> dict[str, float]:
        raise RuntimeError("no room")

    monkeypatch.setattr(serving_gpu, "one_by_one", fails)
    serving_gpu.main([*WORDS, "--only", "k=d/4"])
    report = json.loads(written.read_text())
    row = report["rows"]["k=d/4"]
    assert "no room" in row["errors"]["turns"] and row["tokens_s"] > 0 == row["steps_later"]
    assert report["bars"]["k=d/4, over turns"] == [None, 10.0, False]
    assert report["bars"]["k=d/4, p99 over median"][0] > 0
