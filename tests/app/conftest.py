"""The page in this process, on a tiny random model, so that nothing depends on trained weights."""

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rotatek.engine.engine import Engine
from rotatek.service.service import Service
from tests.served import service_of, square
from tests.tiny import tiny_qwen

# The server and the client that gradio runs in this process leave event loops to the collector.
LEFT_OPEN = pytest.mark.filterwarnings(
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what gradio leaves open pass, in this folder only."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(LEFT_OPEN)


@pytest.fixture(scope="package", autouse=True)
def swept() -> Iterator[None]:
    """Collect what was left open before another folder's tests run."""
    yield
    gc.collect()


@pytest.fixture(scope="package")
def service() -> Service:
    """A service whose one model is tiny and random."""
    return service_of(Engine(tiny_qwen()))


@pytest.fixture(scope="package")
def picture_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small drawn picture on disk."""
    return square(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="package")
def image() -> Image.Image:
    """A picture of 24 coloured squares."""
    noise = np.random.default_rng(3).integers(0, 255, (4, 6, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((168, 112))
