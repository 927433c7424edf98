"""Models and engines that many units share: one a module, so that a test can change its own."""

import pytest

from rotatek.engine.engine import Engine
from rotatek.models import VisionLanguageModel
from tests.tiny import tiny_qwen


@pytest.fixture(scope="module")
def qwen() -> VisionLanguageModel:
    """A tiny Qwen2.5-VL."""
    return tiny_qwen()


@pytest.fixture(scope="module")
def engine(qwen: VisionLanguageModel) -> Engine:
    """An engine of the tiny Qwen2.5-VL."""
    return Engine(qwen)
