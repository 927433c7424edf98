"""The fallback: the first failure or a wrong answer moves a dispatcher to the reference, aloud."""

import importlib
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels import dispatch
from kernels.dispatch import SOLVER, WINDOW, Dispatcher
from kernels.reference import Text, Unsupported, Visual, attend_reference
from kernels.samples import sample, sample_planes, sample_window
from kernels.window_attention_reference import Window, window_attention_plain
from rotatek.methods import rotation
from tests.fixtures import OnGpu


def call(dispatcher: Dispatcher) -> torch.Tensor:
    q, visual, text = sample(torch.device("cpu"), torch.float32, 32)
    out = dispatcher.attend(q.as_subclass(OnGpu), visual, text, 0.1)
    return out.as_subclass(torch.Tensor)


def kernel(monkeypatch: pytest.MonkeyPatch, attend: Callable[..., Any]) -> None:
    fake = SimpleNamespace(attend_triton=attend)
    monkeypatch.setattr(importlib, "import_module", lambda *names: fake)


def expected() -> torch.Tensor:
    q, visual, text = sample(torch.device("cpu"), torch.float32, 32)
    return attend_reference(q, visual, text, 0.1)


@pytest.fixture(autouse=True)
def plain_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference must not notice the disguise."""

    def honest(q: torch.Tensor, visual: Any, text: Any, scale: float) -> torch.Tensor:
        return attend_reference(q.as_subclass(torch.Tensor), visual, text, scale)

    monkeypatch.setattr(dispatch, "attend_reference", honest)
    monkeypatch.setattr(dispatch, "placed", lambda device: nullcontext())


def test_the_first_failure_is_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def broken(*args: object) -> None:
        calls.append(args)
        raise RuntimeError("a secret path /home/someone")

    kernel(monkeypatch, broken)
    dispatcher = Dispatcher()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert torch.equal(call(dispatcher), expected())
    status = dispatcher.status("cuda")
    assert len(calls) == 1
    assert status.backend == "reference"
    assert "RuntimeError" in status.reason and "secret" not in status.reason
    assert caplog.records


@pytest.mark.parametrize(
    "error",
    [torch.cuda.OutOfMemoryError("full"), RuntimeError("Triton Error [CUDA]: out of memory")],
)
def test_out_of_memory_is_not_a_fault_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*args: object) -> None:
        raise error

    kernel(monkeypatch, full)
    monkeypatch.setattr(importlib.import_module("fake"), "covariance", full, raising=False)
    dispatcher = Dispatcher()
    with pytest.raises(type(error)):
        call(dispatcher)
    with pytest.raises(type(error)):
        dispatcher.solve("covariance", torch.ones(1).as_subclass(OnGpu))
    assert dispatcher.status("cuda") == Dispatcher().status("cuda")


def test_kernels_are_launched_on_the_device_of_their_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered = []

    @contextmanager
    def placed(device: Any) -> Iterator[None]:
        entered.append(device.index)
        yield
        entered.append("left")

    def launched(q: torch.Tensor, *rest: object) -> torch.Tensor:
        entered.append("launched")
        return q

    kernel(monkeypatch, launched)
    monkeypatch.setattr(dispatch, "placed", placed)
    monkeypatch.setattr(OnGpu, "device", SimpleNamespace(type="cuda", index=1))
    call(Dispatcher())
    assert entered == [1, "launched", "left"]


def test_a_missing_triton_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*names: str) -> None:
        raise ImportError(names[0])

    monkeypatch.setattr(importlib, "import_module", absent)
    dispatcher = Dispatcher()
    assert torch.equal(call(dispatcher), expected())
    assert dispatcher.status("cuda").backend == "reference"


def test_a_wrong_answer_fails_the_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, lambda q, visual, text, scale: torch.zeros(q.shape, dtype=q.dtype))
    real = sample
    cpu = torch.device("cpu")
    monkeypatch.setattr(dispatch, "sample", lambda device, *rest: _disguised(real(cpu, *rest)))
    dispatcher = Dispatcher()
    dispatcher._faults[SOLVER] = "not tested here"
    status = dispatcher.self_test("cuda")
    assert status.backend == "reference" and "disagreed" in status.reason


def test_a_first_call_on_a_gpu_is_preceded_by_the_self_test_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not while a graph is being captured."""
    kernel(monkeypatch, lambda q, *rest: expected())
    dispatcher, tested, capturing = Dispatcher(check_first=True), [], [True]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])

    def error(owner: Dispatcher, device: Any) -> torch.Tensor:
        tested.append(device.type)
        return torch.zeros(())

    tests = {name: each._replace(error=error) for name, each in dispatch.KERNELS.items()}
    monkeypatch.setattr(dispatch, "KERNELS", tests)
    for capture, count in ((True, 0), (False, 1), (False, 1)):
        capturing[0] = capture
        assert torch.equal(call(dispatcher), expected())
        assert len(tested) == count
    q, visual, text = sample_planes(torch.device("cpu"), torch.float32)
    dispatcher.attend(q.as_subclass(OnGpu), visual, text, 0.1)
    assert len(tested) == 2  # digits have a test of their own


@pytest.mark.parametrize(
    "basis, good", [("right", True), ("slanted", False), ("wrong", False), ("heavy", False)]
)
def test_a_wrong_basis_moves_the_solver_to_plain_pytorch(
    monkeypatch: pytest.MonkeyPatch, basis: str, good: bool
) -> None:
    def solve(work: str, first: torch.Tensor, *rest: Any) -> Any:
        if work == "covariance":
            return rotation.centred_covariance(first, torch.tensor([first.shape[2]]))
        if work == "weigh":
            return rotation.query_weights(first, 1) * (2 if basis == "heavy" else 1)
        found = rotation.full_basis(first)[0]
        kept = found[..., -32:] if basis == "wrong" else found[..., :32]
        return kept * (1.01 if basis == "slanted" else 1.0)

    dispatcher = Dispatcher()
    monkeypatch.setattr(dispatcher, "solve", solve)
    dispatcher._test(SOLVER, torch.device("cpu"))
    assert ("disagreed" in dispatcher.status("cuda").reason) != good


def _disguised(case: tuple[Any, ...]) -> tuple[Any, ...]:
    q, visual, text = case
    return q.as_subclass(OnGpu), visual, text


def test_an_unsupported_call_is_bypassed_aloud(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unsupported(*given: object) -> None:
        raise Unsupported("a head of 512")

    kernel(monkeypatch, unsupported)
    dispatcher = Dispatcher()
    with caplog.at_level(logging.WARNING):
        assert torch.equal(call(dispatcher), expected())
    assert dispatcher.status("cuda").backend == "triton"
    assert "a head of 512" in dispatcher.status("cuda").reason and caplog.records


@pytest.mark.parametrize(("tokens", "samples", "rows"), [(2, 1, 1), (2, 2, 0), (1, 2, 0)])
def test_several_new_tokens_of_one_sample_are_rows(
    monkeypatch: pytest.MonkeyPatch, tokens: int, samples: int, rows: int
) -> None:
    q, visual, text = sample(torch.device("cpu"), torch.float32, 32)
    fields: dict[str, Any] = {
        k: v[:samples] for k, v in visual._asdict().items() if isinstance(v, torch.Tensor)
    }
    visual = visual._replace(**fields)
    assert text.lengths is not None
    text = Text(text.keys[:samples], text.values[:samples], text.lengths[:samples])
    q = q[:samples].expand(-1, -1, tokens, -1)
    called: list[str] = []
    fake = SimpleNamespace(
        attend_rows=lambda *given: called.append("rows"),
        attend_triton=lambda *given: called.append("one"),
    )
    monkeypatch.setattr(importlib, "import_module", lambda *names: fake)
    Dispatcher().attend(q.as_subclass(OnGpu), visual, text, 0.1)
    assert called.count("rows") == rows and called.count("one") == (tokens == 1)


def test_import_without_triton_or_gpu(root: Path) -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import kernels.dispatch, kernels.reference, torch\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=60)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_fault_of_one_form_leaves_the_others_alone(
    wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digits' attention fails, or is off in its self-test: it is read in plain PyTorch, all else by
    the kernels."""
    calls = []

    def attend(q: torch.Tensor, visual: Visual, text: Any, scale: float) -> torch.Tensor:
        calls.append(visual)
        mine = visual.key_planes is not None
        if mine and not wrong:
            raise RuntimeError("a secret path")
        return attend_reference(q.as_subclass(torch.Tensor), visual, text, scale) + mine

    kernel(monkeypatch, attend)
    dispatcher = Dispatcher()
    dispatcher._untested = {"planes"} if wrong else set()
    q, visual, text = sample_planes(torch.device("cpu"), torch.float32)
    disguised = q.as_subclass(OnGpu)
    monkeypatch.setattr(dispatch, "sample_planes", lambda *given: (disguised, visual, text))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    for _ in range(3):
        got = dispatcher.attend(disguised, visual, text, 0.1)
        assert torch.equal(got, attend_reference(q, visual, text, 0.1))
    assert len(calls) == 1
    status = dispatcher.status("cuda")
    assert status.backend == "triton"
    assert "few bits" in status.reason and "secret" not in status.reason
    assert torch.equal(call(dispatcher), expected())
    assert len(calls) == 2


def test_heads_that_are_too_wide_are_computed_in_plain_pytorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No kernel is tried that could fail there, and then be off for other heads."""
    monkeypatch.setattr(importlib, "import_module", lambda *names: pytest.fail("launched"))
    dispatcher = Dispatcher()
    wide = torch.ones(1, 2, 6, 512, dtype=torch.bfloat16)
    assert dispatcher.solve("covariance", wide.as_subclass(OnGpu)) is None
    assert not dispatcher.has_window_kernel(wide.as_subclass(OnGpu))
    assert dispatcher.has_window_kernel(wide[..., :256].as_subclass(OnGpu))


@pytest.mark.parametrize("wrong", [False, True])
def test_a_failed_window_is_summed_in_plain_pytorch(
    wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernel fails, or is off in its self-test; attention keeps its own."""
    seen, calls = sample_window(torch.device("cpu"), torch.bfloat16), []
    disguised = seen._replace(keys=seen.keys.as_subclass(OnGpu))

    def failing(given: Window) -> tuple[torch.Tensor, ...]:
        calls.append(given)
        if not wrong:
            raise RuntimeError("a secret path")
        mass, spread, squares = window_attention_plain(seen)
        return mass, 1.1 * spread, squares

    fake = SimpleNamespace(window_attention=failing)
    monkeypatch.setattr(importlib, "import_module", lambda *names: fake)
    monkeypatch.setattr(dispatch, "sample_window", lambda *given: disguised)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    dispatcher = Dispatcher()
    dispatcher._untested = {WINDOW}
    for _ in range(3):
        got = dispatcher.window_attention(disguised)
        assert all(map(torch.equal, got, window_attention_plain(disguised)))
    assert len(calls) == 1
    assert not any(dispatcher.has_window_kernel(each.keys) for each in (seen, disguised))
    reason = dispatcher.status("cuda").reason
    assert "last queries" in reason and "secret" not in reason
