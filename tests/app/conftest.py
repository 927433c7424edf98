"""The page in this process, on a tiny random model, so that nothing depends on trained weights."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from rotatek.engine.engine import Engine
from rotatek.page import server
from rotatek.page.binding import MODEL_WORK, VISITORS
from rotatek.page.build import build
from rotatek.page.page_context import PageContext
from rotatek.service.model_list import Example, Model
from rotatek.service.service import Service
from tests.tiny import tiny_qwen

# The server and the client that gradio runs in this process leave event loops to the collector.
LEFT_OPEN = pytest.mark.filterwarnings(
    "ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning"
)
TINY = Model("tiny", "Tiny", "nowhere")


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
    vlm = tiny_qwen()
    return Service([TINY], lambda source: Engine(vlm))


@pytest.fixture(scope="package")
def picture_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small drawn picture on disk."""
    image = Image.new("RGB", (336, 224), "white")
    ImageDraw.Draw(image).rectangle((60, 40, 180, 160), fill="#0ca38a")
    path = tmp_path_factory.mktemp("pictures") / "square.png"
    image.save(path)
    return path


@pytest.fixture(scope="package")
def image() -> Image.Image:
    """A picture of 24 coloured squares."""
    noise = np.random.default_rng(3).integers(0, 255, (4, 6, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((168, 112))


@contextmanager
def served(service: Service, picture: Path, at_once: int = VISITORS) -> Iterator[tuple[Any, str]]:
    """The whole page with one example, served with the product's own settings, and its address."""
    examples = [Example(picture, "A square", ("Which colour?",))]
    with pytest.MonkeyPatch.context() as fewer:
        fewer.setitem(MODEL_WORK, "concurrency_limit", at_once)
        page = build(PageContext(service, examples), server.ASSETS)
    options = {"prevent_thread_lock": True, "quiet": True, "server_name": "127.0.0.1"}
    _, url, _ = server.launch(page, service, **options)
    try:
        yield page, url
    finally:
        page.close(verbose=False)
