"""Who computes what: a kernel that fails or is wrong leaves its work to plain PyTorch, aloud."""

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from kernels import dispatch
from kernels.dispatch import ATTENTION, PLANES, SOLVER, WINDOW, WORKS, attend
from kernels.elementwise_reference import CLOSE, PLAIN
from kernels.reference import Packed, Unsupported, attend_reference
from kernels.samples import sample, sample_elementwise, sample_packed, sample_window
from kernels.window_attention_reference import window_attention_plain
from rotatek.methods import rotation
from tests.fixtures import OnGpu

CPU = torch.device("cpu")


def disguised(tensor: Tensor) -> Tensor:
    """A tensor that says that it is on a GPU."""
    return tensor.as_subclass(OnGpu)


def bare(made: Any) -> Any:
    """The same without its disguise, where plain PyTorch would notice it."""
    if isinstance(made, Tensor):
        return made.as_subclass(Tensor)
    if isinstance(made, tuple):
        parts = [bare(part) for part in made]
        return type(made)(*parts) if hasattr(made, "_fields") else tuple(parts)
    return made


class Function(NamedTuple):
    """One function with a kernel: its call, the kernel at fault, and the kernel's right answer."""

    kernel: str
    works: tuple[str, ...]
    call: Callable[[], Any]
    right: Callable[..., Any]
    fallback: bool = True  # plain PyTorch answers where the kernel does not; else the caller does


def _attend(given: tuple[Any, ...]) -> Tensor:
    q, visual, text = given
    return attend(disguised(q), visual, text, 0.1)


def _reference(*given: Any) -> Tensor:
    return attend_reference(*bare(given))


def _step(work: str) -> Function:
    def call() -> Tensor | None:
        return dispatch.elementwise(work, *_shown(work))

    return Function(work, (work,), call, lambda *given: PLAIN[work](*bare(given)), fallback=False)


FUNCTIONS = {
    "attention": Function(
        ATTENTION,
        ("attend_triton", "attend_rows"),
        lambda: _attend(sample(CPU, torch.float32, 32)),
        _reference,
    ),
    "digits": Function(
        PLANES, ("attend_packed",), lambda: _attend(sample_packed(CPU, torch.float32)), _reference
    ),
    "window": Function(
        WINDOW,
        ("window_attention",),
        lambda: dispatch.window_attention(_window(torch.bfloat16)),
        lambda window: window_attention_plain(bare(window)),
    ),
    **{work: _step(work) for work in PLAIN},
}
EACH = pytest.mark.parametrize("name", FUNCTIONS)


def _shown(work: str, *_: Any, dtype: torch.dtype = torch.bfloat16) -> tuple[Any, ...]:
    first, *rest = sample_elementwise(work, CPU, dtype)
    return disguised(first), *rest


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A GPU, of a process that knows nothing yet; its kernels, which are right, note their calls.

    Cases of self-tests are disguised, too.
    """
    called: list[str] = []
    known = {work: one.right for one in FUNCTIONS.values() for work in one.works}

    def launcher(work: str) -> Callable[..., Any]:
        def launch(*given: Any) -> Any:
            called.append(work)
            return known[work](*given)

        return launch

    module = SimpleNamespace(**{work: launcher(work) for work in known})
    monkeypatch.setattr(importlib, "import_module", lambda *names: module)
    monkeypatch.setattr(dispatch, "placed", lambda device: nullcontext())
    monkeypatch.setattr(dispatch, "attend_reference", _reference)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    for name, of in (("sample", sample), ("sample_packed", sample_packed)):
        monkeypatch.setattr(dispatch, name, lambda _, *rest, of=of: _first(of(CPU, *rest)))
    monkeypatch.setattr(dispatch, "sample_window", lambda _, dtype: _window(dtype))
    monkeypatch.setattr(
        dispatch, "sample_elementwise", lambda work, _, dtype: _shown(work, dtype=dtype)
    )
    memory = dispatch.Memory()
    monkeypatch.setattr(dispatch, "shared", lambda: memory)
    with torch.no_grad():
        yield called


def _first(case: tuple[Any, ...]) -> tuple[Any, ...]:
    return disguised(case[0]), *case[1:]


def _window(dtype: torch.dtype) -> Any:
    window = sample_window(CPU, dtype)
    return window._replace(keys=disguised(window.keys))


def trusted() -> None:
    """Let kernels run without their self-tests."""
    dispatch.shared().untested.clear()


def breaks(gpu: list[str], monkeypatch: pytest.MonkeyPatch, name: str, do: Any) -> None:
    """Let a function's kernels do something else; they still note their calls."""
    module = importlib.import_module("any")
    for work in FUNCTIONS[name].works:

        def launch(*given: Any, work: str = work) -> Any:
            gpu.append(work)
            return do(*given)

        monkeypatch.setattr(module, work, launch)


def same(found: Any, want: Any) -> bool:
    pairs = (
        zip(bare(found), bare(want), strict=True) if isinstance(want, tuple) else [(found, want)]
    )
    return all(torch.equal(bare(one), bare(other)) for one, other in pairs)


def reason() -> str:
    return dispatch.status("cuda").reason


@EACH
def test_a_first_call_is_preceded_by_the_self_test_once(
    name: str, gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while a graph is captured."""
    one = FUNCTIONS[name]
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        first = one.call()
    assert len(gpu) == 1
    assert same(one.call(), first)
    tested = len(gpu)
    assert tested > 1 and set(gpu) <= {"attend_triton", "attend_rows", *one.works}
    assert same(one.call(), first) and len(gpu) == tested + 1
    assert "in use" in reason()


@EACH
@pytest.mark.parametrize("tested", [True, False])
def test_a_failing_kernel_is_left_alone_and_no_other_with_it(
    name: str, tested: bool, gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first failure is its last."""

    def fails(*given: Any) -> None:
        raise RuntimeError("a secret path /home/someone")

    one = FUNCTIONS[name]
    if not tested:
        trusted()
    want = one.call()
    dispatch.shared().untested.discard(one.kernel)
    breaks(gpu, monkeypatch, name, fails)
    gpu.clear()
    for _ in range(3):
        assert same(one.call(), want) if one.fallback else one.call() is None
    assert len(gpu) == 1
    assert dispatch.status("cuda").backend == ("reference" if name == "attention" else "triton")
    assert "RuntimeError" in reason() and "secret" not in reason()
    trusted()
    for other, each in FUNCTIONS.items():
        if other != name and name != "attention":
            gpu.clear()
            assert each.call() is not None and len(gpu) == 1


@EACH
def test_a_wrong_kernel_fails_its_self_test(
    name: str, gpu: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(*given: Any) -> Any:
        made = FUNCTIONS[name].right(*given)
        return tuple(2 * m for m in made) if isinstance(made, tuple) else (1 + 3 * CLOSE) * made + 1

    breaks(gpu, monkeypatch, name, wrong)
    with caplog.at_level(logging.ERROR):
        found = FUNCTIONS[name].call()
    assert (found is None) != FUNCTIONS[name].fallback
    assert "disagreed" in reason() and "self-test" in caplog.text
    called = len(gpu)
    FUNCTIONS[name].call()
    assert len(gpu) == called


@EACH
@pytest.mark.parametrize(
    "error",
    [torch.cuda.OutOfMemoryError("full"), RuntimeError("Triton Error [CUDA]: out of memory")],
)
def test_out_of_memory_is_not_a_fault_of_the_kernel(
    name: str, error: Exception, gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise error

    trusted()
    breaks(gpu, monkeypatch, name, full)
    with pytest.raises(torch.OutOfMemoryError):
        FUNCTIONS[name].call()
    assert not dispatch.shared().faults


@pytest.mark.parametrize(
    "basis, good", [("right", True), ("slanted", False), ("wrong", False), ("heavy", False)]
)
def test_a_wrong_basis_moves_the_solver_to_plain_pytorch(
    monkeypatch: pytest.MonkeyPatch, basis: str, good: bool
) -> None:
    def solve(work: str, first: Tensor, *rest: Any) -> Any:
        if work == "covariance":
            return rotation.centred_covariance(first, torch.tensor([first.shape[2]]))
        if work == "weigh":
            return rotation.query_weights(first, 1) * (2 if basis == "heavy" else 1)
        found = rotation.full_basis(first)[0]
        kept = found[..., -32:] if basis == "wrong" else found[..., :32]
        return kept * (1.01 if basis == "slanted" else 1.0)

    monkeypatch.setattr(dispatch, "solve", solve)
    dispatch._test(SOLVER, CPU)
    assert (SOLVER in dispatch.shared().faults) != good


def test_an_unsupported_call_is_bypassed_aloud(
    gpu: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unsupported(*given: object) -> None:
        raise Unsupported("a head of 512")

    trusted()
    want = FUNCTIONS["attention"].call()
    breaks(gpu, monkeypatch, "attention", unsupported)
    with caplog.at_level(logging.WARNING):
        assert same(FUNCTIONS["attention"].call(), want)
    assert dispatch.status("cuda").backend == "triton"
    assert "a head of 512" in reason() and caplog.records


def test_the_caller_computes_what_has_no_kernel(gpu: list[str]) -> None:
    """On a processor, in float32, where gradients are wanted, and for heads that are too wide: no
    kernel is tried that could fail there, and then be off for other heads."""
    assert dispatch.elementwise("gate", *sample_elementwise("gate", CPU, torch.bfloat16)) is None
    assert dispatch.elementwise("gate", *_shown("gate", dtype=torch.float32)) is None
    with torch.enable_grad():
        assert dispatch.elementwise("gate", *_shown("gate")) is None
    wide = disguised(torch.ones(1, 2, 6, 512, dtype=torch.bfloat16))
    assert dispatch.solve("covariance", wide) is None
    assert not dispatch.has_window_kernel(wide) and dispatch.has_window_kernel(wide[..., :256])
    q, visual, text = sample_packed(CPU, torch.float32)
    assert isinstance(visual, Packed)
    assert torch.equal(attend(q, visual, text, 0.1), attend_reference(q, visual, text, 0.1))
    assert dispatch.status("cpu").backend == "reference"
    assert "No GPU" in dispatch.self_test("cpu").reason and gpu == []


def test_what_is_loaded_on_a_gpu_alone_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is gone would only be seen there, where plain PyTorch takes over."""
    monkeypatch.undo()
    for function, (module, _) in WORKS.items():
        assert callable(getattr(importlib.import_module(module, dispatch.__package__), function))
