"""Who computes what: a kernel that fails or is wrong leaves its work to plain PyTorch, aloud."""

import importlib
import logging
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels import dispatch
from kernels.dispatch import ATTENTION, KERNELS, SOLVER, WORKS, attend
from kernels.elementwise_reference import PLAIN
from kernels.reference import Unsupported, attend_reference, window_attention_plain
from kernels.samples import sample, sample_elementwise, sample_packed
from rotatek.methods import rotation

CPU, GPU = torch.device("cpu"), torch.device("cuda")
EACH = pytest.mark.parametrize("work", WORKS)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A GPU of a process that knows nothing yet: what its kernels do, the error that self-tests
    find, whether a graph is captured, and the kernels and self-tests that ran."""
    found = SimpleNamespace(launch=lambda: "kernel", error=0.5, capturing=False, ran=[])

    def noted(name: str, do: Callable[[], Any]) -> Callable[..., Any]:
        return lambda *given: (found.ran.append(name), do())[1]

    module = SimpleNamespace(**{work: noted(work, lambda: found.launch()) for work in WORKS})
    tests = {
        name: kernel._replace(error=noted(f"test of {name}", lambda: torch.tensor(found.error)))
        for name, kernel in KERNELS.items()
    }
    memory = dispatch.Memory()
    monkeypatch.setattr(importlib, "import_module", lambda *names: module)
    monkeypatch.setattr(dispatch, "placed", lambda device: nullcontext())
    monkeypatch.setattr(dispatch, "KERNELS", tests)
    monkeypatch.setattr(dispatch, "shared", lambda: memory)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: found.capturing)
    return found


def call(work: str) -> Any:
    return dispatch.run(work, lambda *given: "plain", GPU, "given")


def reason() -> str:
    return dispatch.status("cuda").reason


@EACH
def test_a_first_call_is_preceded_by_self_tests_once(work: str, gpu: SimpleNamespace) -> None:
    """Not while a graph is captured."""
    gpu.capturing = True
    assert call(work) == "kernel" and gpu.ran == [work]
    gpu.capturing = False
    assert [call(work), call(work)] == ["kernel"] * 2
    assert gpu.ran[1:] == [*(f"test of {name}" for name in WORKS[work].kernels), work, work]
    assert "in use" in reason()


@EACH
def test_a_failing_kernel_is_left_alone_and_no_other_with_it(
    work: str, gpu: SimpleNamespace
) -> None:
    """Its first failure is its last."""

    def fails() -> None:
        raise RuntimeError("a secret path /home/someone")

    fault = WORKS[work].kernels[-1]
    gpu.launch = fails
    assert [call(work), call(work)] == ["plain"] * 2 and gpu.ran.count(work) == 1
    assert dispatch.status("cuda").backend == ("reference" if fault == ATTENTION else "triton")
    assert "RuntimeError" in reason() and "secret" not in reason()
    gpu.launch = lambda: "kernel"
    for other, (_, kernels) in WORKS.items():
        assert call(other) == ("plain" if fault in kernels else "kernel")


@EACH
def test_a_wrong_kernel_is_not_used(
    work: str, gpu: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    gpu.error = 1.1
    with caplog.at_level(logging.ERROR):
        assert [call(work), call(work)] == ["plain"] * 2
    assert gpu.ran == [f"test of {WORKS[work].kernels[0]}"]
    assert "disagreed" in reason() and "self-test" in caplog.text


@pytest.mark.parametrize(
    "error",
    [torch.cuda.OutOfMemoryError("full"), RuntimeError("Triton Error [CUDA]: out of memory")],
)
def test_out_of_memory_is_not_a_fault_of_the_kernel(error: Exception, gpu: SimpleNamespace) -> None:
    def full() -> None:
        raise error

    gpu.launch = full
    with pytest.raises(torch.OutOfMemoryError):
        call("attend_packed")
    assert not dispatch.shared().faults


def test_an_unsupported_call_is_bypassed_aloud(
    gpu: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    def unsupported() -> None:
        raise Unsupported("a head of 512")

    gpu.launch = unsupported
    with caplog.at_level(logging.WARNING):
        assert call("attend_triton") == "plain"
    assert dispatch.status("cuda").backend == "triton"
    assert "a head of 512" in reason() and caplog.records


@pytest.mark.parametrize("factor", [1.0, 1.5, float("nan")])
@pytest.mark.parametrize("kernel", [name for name in KERNELS if name != SOLVER])
def test_self_tests_tell_right_from_wrong(
    kernel: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scaled(right: Callable[..., Any]) -> Callable[..., Any]:
        def wrong(*given: Any) -> Any:
            made = right(*given)
            return tuple(m * factor for m in made) if isinstance(made, tuple) else made * factor

        return wrong

    monkeypatch.setattr(dispatch, "attend", scaled(attend_reference))
    monkeypatch.setattr(dispatch, "window_attention", scaled(window_attention_plain))
    monkeypatch.setattr(dispatch, "elementwise", scaled(lambda work, *given: PLAIN[work](*given)))
    assert bool(KERNELS[kernel].error(CPU) <= 1) == (factor == 1)


@pytest.mark.parametrize("basis", ["right", "slanted", "wrong", "heavy"])
def test_a_wrong_basis_fails_the_solver(monkeypatch: pytest.MonkeyPatch, basis: str) -> None:
    def solve(work: str, first: Tensor, *rest: Any) -> Any:
        if work == "covariance":
            return rotation.centred_covariance(first, torch.tensor([first.shape[2]]))
        if work == "weigh":
            return rotation.query_weights(first, 1) * (2 if basis == "heavy" else 1)
        found = rotation.full_basis(first)[0]
        kept = found[..., -32:] if basis == "wrong" else found[..., :32]
        return kept * (1.01 if basis == "slanted" else 1.0)

    monkeypatch.setattr(dispatch, "solve", solve)
    assert bool(KERNELS[SOLVER].error(CPU) <= 1) == (basis == "right")


def test_every_call_has_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor, in float32, where gradients are wanted, and for heads that are too wide, no
    kernel is tried that could fail there, and then be off for other heads."""
    q, visual, text = sample(CPU, torch.float32, 32)
    _, packed, _ = sample_packed(CPU, torch.float32)
    want = attend_reference(q, packed, text, 0.1)
    assert torch.equal(attend(q, packed, text, 0.1), want)
    gate, wide = sample_elementwise("gate", CPU, torch.bfloat16), torch.ones(1, 2, 6, 512)
    with torch.no_grad():
        assert dispatch.elementwise("gate", *gate) is None
    assert "No GPU" in dispatch.self_test("cpu").reason
    monkeypatch.setattr(dispatch, "run", lambda work, *given: work)
    several: Any = q.expand(-1, -1, 3, -1)
    for asked, tokens, work in (
        (q, visual, "attend_triton"), (q, packed, "attend_packed"), (several, None, "attend_rows"),
        (several[:1], visual, "attend_rows"), (several, packed, "attend_packed"),
    ):  # fmt: skip
        assert attend(asked, tokens, text, 0.1) == work
    assert attend(several, visual, text, 0.1).shape == several.shape
    assert dispatch.elementwise("gate", *gate) is None and dispatch.solve("weigh", wide) is None
    with torch.no_grad():
        assert dispatch.elementwise("gate", wide, wide) is None
        assert str(dispatch.elementwise("gate", *gate)) == "gate"
    for width, dtype, has in (
        (256, torch.float16, True),
        (512, torch.float16, False),
        (64, torch.float32, False),
    ):
        keys: Any = SimpleNamespace(device=GPU, dtype=dtype, shape=(1, 2, 6, width))
        assert dispatch.has_window_kernel(keys) == has


def test_what_is_loaded_on_a_gpu_alone_exists() -> None:
    """A name that is gone would only be seen there, where plain PyTorch takes over."""
    for function, (module, _) in WORKS.items():
        assert callable(getattr(importlib.import_module(module, dispatch.__package__), function))
