"""Every benchmark of the kernels runs on the CPU: tiny shapes, Triton's interpreter, no graphs.

So that no minute of a GPU goes to a slip of the pen. Times are made up; that every arm agrees with
the reference is checked by the benchmarks themselves.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from benchmarks import timing
from benchmarks.catalogue import BENCHMARKS
from benchmarks.harness import found_at
from benchmarks.kernels import (
    arms,
    attention,
    efficiency,
    planes,
    prefill,
    solver,
    step,
    tune,
)
from benchmarks.kernels.arms import Shape
from benchmarks.kernels.model import Decoder, Sizes

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: run them there")
TINY = Sizes("Llama3-8B", hidden=512, inner=512, layers=1, Hq=4, Hkv=2, vocabulary=64, d=128)
TIME = timing.Timing(4.25, 4.0, 4.5)


class OnTheCPU(TorchFunctionMode):
    """Everything that asks for the GPU gets the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return args[0] if func is torch.Tensor.cuda else func(*args, **kwargs)


class Called:
    """In place of a graph: its calls have run once."""

    def replay(self) -> None:
        """Nothing."""


def called(calls: Iterable[Callable[[], object]]) -> Called:
    for call in list(calls)[:1]:
        call()
    return Called()


def smaller(one: Any) -> Any:
    """The tiny case of a shape, a model, or a product of one."""
    if isinstance(one, Shape):
        return replace(one, Hq=4, Hkv=2, B=min(one.B, 2), N=40, M=8)
    return TINY if isinstance(one, Sizes) else (*one[:2], (32, 512))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One tiny case of every grid, and nothing timed."""

    def rows_of(shapes: Iterable[Any], row: Callable[[Any], Any]) -> dict[str, Any]:
        return {"rows": [row(smaller(next(iter(shapes))))]}

    fakes: dict[str, Any] = {
        "rows_of": rows_of, "capture": called, "layers_for": lambda *_, **__: 1,
        "interleaved": lambda graphs, *_: dict.fromkeys(graphs, TIME),
        "read_bandwidth": lambda *_: 1e12, "read_only": lambda buffer: buffer.sum,
        "event_ms": lambda call, *_, **__: (call(), 1.5)[1], "LLAMA": TINY, "QWEN": TINY,
    }  # fmt: skip
    for module in (arms, attention, efficiency, planes, prefill, solver, step, tune):
        for name, fake in fakes.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, fake)
    generator = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device=None: generator("cpu"))
    ours = arms.ours
    monkeypatch.setattr(arms, "ours", lambda layer, shape, **_: ours(layer, shape))  # no pdl here
    monkeypatch.setattr(arms, "library", lambda layer, shape, _: arms.ours_dense(layer, shape))
    monkeypatch.setattr(Decoder, "overlaps", lambda *_: False)
    monkeypatch.setattr(solver, "MATRICES", 2)
    monkeypatch.setattr(solver, "WIDTHS", (16,))
    monkeypatch.setattr(solver, "solver_report", lambda device: {})
    for module, name in ((step, "STEPS"), (efficiency, "GRID"), (efficiency, "PREFILLS")):
        monkeypatch.setattr(module, name, ((1, 40),))
    for name in ("reset_peak_memory_stats", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    with OnTheCPU():
        yield


def committed(root: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "assets/results/kernels.json").read_text())
    found |= json.loads((root / "assets/results/efficiency.json").read_text())
    return found[name]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["attention", "latency", "quant", "baselines", "planes", "solver", "step", "efficiency"],
)
def test_rows_have_the_fields_of_the_committed_ones(name: str, tiny: None, root: Path) -> None:
    models: dict[str, Any] = {"models": (TINY,)} if name == "efficiency" else {}
    found, want = found_at(BENCHMARKS[name].run)(**models), committed(root, name)
    assert found.keys() == want.keys() and not found.get("refused")
    if "rows" in want:
        assert found["rows"][0].keys() == want["rows"][0].keys() - {"transformers_ms"}


@pytest.mark.parametrize("name", ["tune", "joined", "small", "splits", "products"])
def test_candidates_are_timed_beside_what_is_in_use(
    name: str, tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "refusals", lambda jobs: dict.fromkeys(jobs, ""))
    monkeypatch.setattr(tune, "device_facts", lambda device: (90, 132))
    shape = Shape(4, 2, 1, 40, 8)
    for grid in ("SHAPES", "FULL", "SMALL"):
        monkeypatch.setattr(tune, grid, (shape,))
    monkeypatch.setattr(tune, "BATCHES", (1,))
    monkeypatch.setattr(tune, "Shape", lambda *_, **__: shape)
    if name == "products":
        us = tune.products()["rows"][0]["us"]
        assert "cuBLAS" in us and len(us) > 5
        return
    found = found_at(BENCHMARKS[name].run)(packs=["bf16 k=32"])
    (first, *_) = found["rows"]
    assert first["pack"] == "bf16 k=32" and not found["refused"]
    assert {"floor", "in use"} < first["us"].keys() and set(first["us"].values()) == {4.25}
    assert all(",S" in candidate for candidate in first["us"].keys() - {"floor", "in use"})
