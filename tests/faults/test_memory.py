"""Models against memory: what they need, what is free, and what is said when it does not fit."""

from collections.abc import Callable

import pytest
import torch

from rotatek import errors
from rotatek.models import VisionLanguageModel, loading, memory
from rotatek.models.assembly import at_hand
from rotatek.models.loading import CHECKPOINTS, POCKET, fitting, load
from tests.tiny import tiny_qwen


@pytest.mark.parametrize("make", [tiny_qwen])
def test_weights_are_weighed_without_loading_them(make: Callable[[], VisionLanguageModel]) -> None:
    model = make().model
    held = sum(weight.numel() * 4 for weight in model.parameters())
    assert memory.weight_bytes(model.config, torch.float32) == held
    assert memory.weight_bytes(model.config, torch.bfloat16) == held // 2


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 30_000_000)
    monkeypatch.setattr(loading, "AutoModelForImageTextToText", None)
    with pytest.raises(errors.ModelTooLarge) as caught:
        load(POCKET, "cpu")
    assert "needs about 0.7 GB and cpu has 0.0 GB free" in caught.value.message


@pytest.mark.parametrize(
    "failure",
    [
        MemoryError(),
        torch.OutOfMemoryError("0x7f"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_ends_while_loading_is_not_damage(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reader:
        @staticmethod
        def from_config(config: object, **options: object) -> torch.nn.Module:
            return tiny_qwen().model

        @staticmethod
        def from_pretrained(*args: object, **options: object) -> None:
            raise failure

    monkeypatch.setattr(loading, "AutoModelForImageTextToText", Reader)
    with pytest.raises(errors.OutOfMemory):
        load(POCKET, "cpu")


def test_what_is_offered_follows_the_room() -> None:
    here = [name for name, c in CHECKPOINTS.items() if at_hand(c.source)]
    small = [name for name in here if CHECKPOINTS[name].gigabytes < 1]
    assert fitting(0) == small and "pocket" in small
    assert "qwen2.5-vl-7b" in fitting(24 * memory.GB)
    assert "llava-next-8b" not in fitting(24 * memory.GB)
    assert fitting(80 * memory.GB) == here


def test_every_hub_checkpoint_is_pinned() -> None:
    for checkpoint in CHECKPOINTS.values():
        if checkpoint.gigabytes >= 1:
            assert len(checkpoint.revision or "") == 40
            int(checkpoint.revision or "", 16)
