"""Fixtures shared by every kind of test."""

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from PIL import Image

if TYPE_CHECKING:
    import torch

    from rotatek.engine.engine import Engine
    from rotatek.models import VisionLanguageModel
    from tests.recorded import RecordedGraph


def _set_the_scene() -> None:
    """Settings that must stand before torch, Triton or the hub's client are imported."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models: more threads only wait
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test reaches for the network
    # A page that ends deletes what was uploaded to it, and files of one content have one path:
    # pages of two workers must not share the folder.
    uploads = os.environ["GRADIO_TEMP_DIR"] = tempfile.mkdtemp(prefix="rotatek-tests-")
    atexit.register(shutil.rmtree, uploads, ignore_errors=True)
    import torch

    if not torch.cuda.is_available():  # Triton's interpreter then runs the kernels
        os.environ["TRITON_INTERPRET"] = "1"
    # Gradio asks for it at every page. Where it is missing, the search takes the import lock, and
    # the collector may import meanwhile, which Python 3.11 answers with a KeyError (gh-106176).
    sys.modules.setdefault("IPython.core.getipython", None)  # type: ignore[arg-type]


_set_the_scene()
# The same examples every time, however long one takes: a run that fails says what a commit broke.
# `--hypothesis-profile=default` draws others.
settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
MOST_WORKERS = 4  # each holds torch and models, about a gigabyte


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """The workers of `-n auto`: one a core; none, so this process, where there is one core."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return 0 if cores == 1 else min(cores, MOST_WORKERS)


def pytest_collection_finish() -> None:
    """Spare the collector what was imported: a sweep took a third of a second, and tests sweep."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def picture() -> Callable[..., Image.Image]:
    """A maker of small, reproducible pictures with something in them."""

    def make(width: int = 64, height: int = 48, mode: str = "RGB", seed: int = 0) -> Image.Image:
        rng = np.random.default_rng(seed)
        coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        return image.convert(mode)

    return make


@pytest.fixture(scope="module")
def qwen() -> "VisionLanguageModel":
    """A tiny Qwen2.5-VL: one a module, so that a test can change its own."""
    from tests.tiny import tiny_qwen

    return tiny_qwen()


@pytest.fixture(scope="module")
def engine(qwen: "VisionLanguageModel") -> "Engine":
    """An engine of the tiny Qwen2.5-VL."""
    from rotatek.engine.engine import Engine

    return Engine(qwen)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of the pocket's class: two layers in two shards, real tokenizer and
    processor."""
    from tests.tiny import save_small_pocket

    path = tmp_path_factory.mktemp("models") / "tiny"
    save_small_pocket(path)
    return path


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> "list[RecordedGraph]":
    """Every step can be captured, by recording it."""
    from rotatek.cache import question_graph, step_graph
    from tests.recorded import RecordedGraph, RecordedMemory

    made: list[RecordedGraph] = []

    def record(device: "torch.device", work: Callable[[], None]) -> RecordedGraph:
        made.append(RecordedGraph(device, work))
        return made[-1]

    class Memory(RecordedMemory):
        def begin(self) -> RecordedGraph:
            made.append(super().begin())
            return made[-1]

    monkeypatch.setattr(step_graph, "capture", record)
    monkeypatch.setattr(question_graph, "GraphMemory", Memory)
    monkeypatch.setattr(step_graph, "capturable", lambda device: True)
    return made
