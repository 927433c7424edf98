"""The devices of an evaluation."""

import pytest
import torch

from rotatek.evaluation.evaluate import on_gpu, versions


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
