"""Evaluation by several processes: devices, parts, interruption, and the report afterwards."""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rotatek.cli import evaluate
from rotatek.cli.main import main
from rotatek.evaluation import processes
from rotatek.evaluation import suite as suites
from rotatek.evaluation.evaluate import versions
from rotatek.pocket.models.config import build_model, model_config, save_model

pytestmark = pytest.mark.unversioned  # what processes do; test_evaluate.py has the answers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of the pocket's class: two layers, real tokenizer and processor."""
    path = tmp_path_factory.mktemp("model")
    save_model(build_model(model_config(2, 2, 512, 64)), path)
    return path


def picture(seed: int) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (28, 35, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((280, 224))


def command(*words: str) -> int:
    parser = argparse.ArgumentParser()
    evaluate.add_arguments(parser)
    return evaluate.run(parser.parse_args(words))


def count_lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


class Here:
    """Stands for a part's process: its command has run in this one, which has everything loaded."""

    def __init__(self, line: list[str], **options: object) -> None:
        assert line[:4] == [sys.executable, "-m", "rotatek", "evaluate"]
        self.returncode = command(*line[4:])

    def poll(self) -> int:
        return self.returncode

    wait = poll


def test_two_jobs_answer_as_one_and_go_on_after_an_interruption(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"ThinK 16": {"channels": "think"}, "FastV": {"tokens": "fastv", "keep_tokens": 0.5}}
    (tmp_path / "mine.json").write_text(json.dumps(rows))
    words = [
        *("--model", str(folder), "--device", "cpu", "--batch", "1", "--short-tokens", "3"),
        *("--suite", str(tmp_path / "suite.jsonl"), "--long-tokens", "4"),
        *("--settings", str(tmp_path / "mine.json"), "--out"),
    ]
    for name in ("a", "b"):
        picture("ab".index(name)).save(tmp_path / f"{name}.png")
    lines = [
        {"image": f"{name}.png", "question": text, "answer": "1"} for name in "ab" for text in "?!"
    ]
    (tmp_path / "suite.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert command(*words, str(tmp_path / "one")) == 0
    two = str(tmp_path / "two")
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", Here)
        assert command(*words, two, "--jobs", "2", "--limit-s", "0") == 3
    assert count_lines(tmp_path / "two" / "journal.jsonl") < 1 + 3 * len(lines)
    assert command(*words, two, "--jobs", "2") == 0
    journals = [
        sorted((tmp_path / run / "journal.jsonl").read_text().splitlines())
        for run in ("one", "two")
    ]
    assert len(journals[0]) == 1 + 3 * len(lines) and journals[0] == journals[1]
    results = (tmp_path / "two" / "results.json").read_text()
    (tmp_path / "suite.jsonl").unlink()  # the questions are kept beside the journal
    assert command(*words, two, "--report") == 0
    reported = json.loads((tmp_path / "two" / "results.json").read_text())
    assert reported["tables"] == json.loads(results)["tables"]
    assert not list((tmp_path / "two").glob("*-part-*"))


@pytest.mark.parametrize(
    ("device", "there", "expected"),
    [
        (None, True, True),
        ("auto", True, True),
        ("cuda", True, True),
        ("cuda:1", True, True),
        ("cpu", True, False),
        (None, False, False),
        ("auto", False, False),
    ],
)
def test_what_counts_as_a_gpu(
    device: str | None, there: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"GPU {number}")
    assert processes.on_gpu(device) is expected
    named = f"GPU {device if device == 'cuda:1' else None}" if expected else "cpu"
    assert versions(device)["ran_on"]["device"] == named


def test_parts_are_spread_over_the_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    given = [processes.environment(index, 3, "cuda")["CUDA_VISIBLE_DEVICES"] for index in range(3)]
    assert given == ["0", "1", "0"]
    for device in ("auto", "cuda:1"):  # several, and one by its number among all
        assert "CUDA_VISIBLE_DEVICES" not in processes.environment(1, 3, device)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    made = processes.environment(1, 3, None)
    assert (made["CUDA_VISIBLE_DEVICES"], made["OMP_NUM_THREADS"]) == ("7", "1")


@pytest.fixture
def heeded() -> Iterator[list[int]]:
    """SIGTERMs that came when nobody else took them; without it they would end the tests."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    yield came
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def interrupted(
    folder: Path, tmp_path: Path, heeded: list[int], capsys: pytest.CaptureFixture[str]
) -> tuple[Path, list[str]]:
    """Two jobs, whose parent is terminated once some of their answers are there."""
    out = tmp_path / "out"
    rows = {f"RotateK {k}": {"keep_channels": k / 128} for k in range(1, 40)}
    (tmp_path / "mine.json").write_text(json.dumps(rows))
    words = [
        *("--model", str(folder), "--device", "cpu", "--questions", "10", "--batch", "1"),
        *("--short-tokens", "8", "--long-tokens", "16", "--settings", str(tmp_path / "mine.json")),
        *("--out", str(out)),
    ]
    parts = [processes.part_path(out, index) for index in range(2)]
    over = threading.Event()

    def terminate() -> None:
        while not over.wait(0.05):
            if all(count_lines(part) >= 4 for part in parts):
                return os.kill(os.getpid(), signal.SIGTERM)

    ending = threading.Thread(target=terminate)
    ending.start()
    try:
        assert main(["evaluate", *words, "--jobs", "2"]) == 2
    finally:
        over.set()
        ending.join()
    assert not heeded and "What was answered is kept" in capsys.readouterr().err
    return out, words


def test_a_terminated_run_keeps_its_answers(interrupted: tuple[Path, list[str]]) -> None:
    """As `timeout` ends it; the report needs neither the pictures nor the parts."""
    out, words = interrupted
    assert not list(out.glob("*-part-*.jsonl"))
    held = count_lines(out / "journal.jsonl") - 1
    assert 6 <= held < 400
    for picture in (out / suites.PICTURES).iterdir():
        picture.unlink()
    assert command(*words, "--report") == 0
    built = json.loads((out / "results.json").read_text())
    assert built["tables"][0]["rows"][0]["label"] == "Uncompressed"
    assert 1 <= built["tables"][0]["questions"] < 10


def test_a_part_runs_alone_and_is_reported(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: its progress counts its own answers, and the report reads what is not merged."""
    (tmp_path / "mine.json").write_text(json.dumps({"ThinK 16": {"channels": "think"}}))
    words = [
        *("--model", str(folder), "--device", "cpu", "--questions", "5", "--batch", "1"),
        *("--short-tokens", "3", "--long-tokens", "3", "--out", str(tmp_path / "out")),
        *("--settings", str(tmp_path / "mine.json")),
    ]
    assert command(*words, "--draw") == 0
    drawn = os.stat(tmp_path / "out" / suites.QUESTIONS).st_mtime_ns
    assert command(*words, "--part", "1/2") == 0
    # two of four short questions under both settings, and one of them for the page
    assert "/5 [" in capsys.readouterr().err
    assert command(*words, "--report") == 0
    built = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [row["label"] for row in built["tables"][0]["rows"]] == ["Uncompressed", "ThinK 16"]
    assert built["tables"][0]["questions"] == 2 and built["tables"][0]["of"] == 5
    assert command(*words, "--no-report") == 0
    assert "/5 [" in capsys.readouterr().err  # the part was merged first
    assert count_lines(tmp_path / "out" / "journal.jsonl") == 1 + 10
    assert os.stat(tmp_path / "out" / suites.QUESTIONS).st_mtime_ns == drawn
