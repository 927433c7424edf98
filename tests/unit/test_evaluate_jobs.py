"""Several jobs, as far as they need no Ray (see tests/cluster), and where one runs."""

import argparse
from pathlib import Path

import pytest
import torch

from rotatek.cli import evaluate
from rotatek.cluster import quiet
from rotatek.errors import UserError
from rotatek.evaluation.evaluate import on_gpu, versions


def test_several_jobs_need_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "find_spec", lambda name: None)
    parser = argparse.ArgumentParser()
    evaluate.add_arguments(parser)
    words = ["--questions", "4", "--jobs", "2", "--out", str(tmp_path)]
    with pytest.raises(UserError, match="--jobs needs Ray. Install rotatek"):
        evaluate.run(parser.parse_args(words))


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
    assert on_gpu(device) is expected
    named = f"GPU {device if device == 'cuda:1' else None}" if expected else "cpu"
    assert versions(device)["ran_on"]["device"] == named
