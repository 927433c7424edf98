"""Scripts whose figures the documents hold: layers on a GPU, and a second run of an evaluation."""

import json
from pathlib import Path

import pytest

from benchmarks import layers_gpu
from docs.again import alike
from rotatek.evaluation.answer_archive import AnswerArchive
from rotatek.evaluation.journal import Answer
from rotatek.evaluation.suite import Item


def test_layers_are_timed_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers_gpu, "PROMPTS", (12, 13))
    layers_gpu.main(["--tiny", "--json", str(tmp_path / "layers.json")])
    report = json.loads((tmp_path / "layers.json").read_text())
    committed = json.loads(Path("assets/results/layers.json").read_text())
    assert report.keys() == committed.keys()
    for part in ("passes", "attention"):
        assert report[part].keys() == committed[part].keys()
        for name, row in report[part].items():
            assert row.keys() == committed[part][name].keys()
            assert all(ms > 0 for ms in row.values())


def kept(said: dict[tuple[str, str], str]) -> AnswerArchive:
    """Answers by setting and question, of which pages are long."""
    items = [
        Item("short-0", 0, "tables", "What?", ("4",), "exact_match", False),
        Item("short-1", 0, "tables", "What?", ("5",), "exact_match", False),
        Item("page-0", 1, "transcription", "All?", ("a b",), "exact_match", True),
    ]
    answers = {key: Answer(*key, text, 1, 1.0) for key, text in said.items()}
    return AnswerArchive({}, {}, items, answers)


def test_two_runs_are_compared() -> None:
    """What one of them has not asked does not count."""
    first = {("x", "short-0"): "4", ("x", "short-1"): "6", ("y", "short-0"): "4"}
    pages = {("x", "page-0"): "a b", ("y", "page-0"): "c"}
    second = {("x", "short-0"): "4", ("x", "short-1"): "5", ("x", "page-0"): "a b"}
    second[("y", "page-0")] = "d"
    found = alike(kept(first | pages), kept(second))
    short, long = found["short"], found["long"]
    assert (short["answers"], short["same"], short["settings"]) == (2, 0.5, 1)
    assert short["mean"] == short["least"] == short["most"] == 50 and not short["within a point"]
    assert (long["answers"], long["same"], long["settings"]) == (2, 0.5, 2)
    assert long["mean"] == 0 and long["within a point"] == 1
