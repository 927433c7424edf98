"""The measurements of serving run from end to end, on tiny models."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import serving
from benchmarks.__main__ import main

WORDS = "--tiny --clients 4 --turns 2 --tokens 6 --over 0.1".split()


def report(name: str, folder: Path, *words: str) -> dict[str, Any]:
    """A command's output."""
    path = folder / "report.json"
    assert main([name, *WORDS, *words, "--json", str(path)]) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_every_bar_is_measured(tmp_path: Path) -> None:
    found = report("serving", tmp_path)
    assert set(found["bars"]) == set(serving.BARS)
    assert all(measured is not None for measured, *_ in found["bars"].values())
    assert "errors" not in str(found["rows"]) and set(found["rows"]["mixed"]) > {"tokens_s"}
    for name, row in found["rows"].items():
        assert row["failed"] == 0 < row["rows"] and row["tokens_s"] > 0
        if name != serving.MIXED:
            assert row["left_bytes"] == row["steps_later"] == 0 < row["freed_bytes"]
    committed = json.loads(Path("assets/results/serving.json").read_text())
    assert committed.keys() - {"tokens"} <= found.keys()
    assert committed["rows"]["k=d/4"].keys() <= found["rows"]["k=d/4"].keys()


def test_a_part_that_fails_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> dict[str, float]:
        raise RuntimeError("no room")

    monkeypatch.setattr(serving, "one_by_one", fails)
    found = report("serving", tmp_path, "--settings", "k=d/4")
    row = found["rows"]["k=d/4"]
    assert "no room" in row["errors"]["turns"] and row["tokens_s"] > 0 == row["steps_later"]
    assert found["bars"]["k=d/4, over turns"] == [None, 10.0, False]
    assert found["bars"]["k=d/4, p99 over median"][0] > 0


def test_rates_of_a_machine_are_added_to_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report("serving-cores", tmp_path, "--settings", "dense")
    found = report("serving-cores", tmp_path, "--settings", "dense", "--endless")
    committed = json.loads(Path("assets/results/serving-cores.json").read_text())
    assert found.keys() == committed.keys()
    for part in found.values():
        assert part["dense"].keys() == {"together", "turns", "times"} and part["clients"] == 4
    assert capsys.readouterr().out.count("as alone 2 of 2") >= 2
