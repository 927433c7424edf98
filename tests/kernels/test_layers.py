"""A layer's element-wise work in one pass, against plain PyTorch, and who does it when."""

import importlib
import logging
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels import dispatch, fused_elementwise
from kernels.dispatch import Dispatcher
from kernels.elementwise_reference import CLOSE, PLAIN, gate_plain, norm_plain, rotate_plain
from kernels.samples import sample_elementwise as sample
from tests.fixtures import OnGpu

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TYPES = [torch.bfloat16, torch.float16]
if (
    DEVICE == "cpu"
):  # on a GPU no pass is for float32 (`Dispatcher.elementwise`), and exponentials are coarser
    TYPES.append(torch.float32)


def drawn(*shape: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


def steps_off(got: Tensor, want: Tensor) -> float:
    """Share of the numbers that differ, each by a few steps of its type at most."""
    assert got.shape == want.shape and got.dtype == want.dtype
    step = torch.finfo(want.dtype).eps * want.float().abs().clamp_min(1e-3)
    gap = (got.float() - want.float()).abs()
    assert bool((gap <= 4 * step).all()), float((gap / step).max())
    return float((gap > 0).float().mean())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 1), (2, 5, 80), (1, 3, 4, 128), (2, 1280), (0, 64)])
def test_rows_are_normed(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight = 3 * drawn(*shape, dtype=dtype), drawn(shape[-1], dtype=dtype)
    given = x, weight, 1e-6
    off = steps_off(fused_elementwise.norm(*given), norm_plain(*given))
    if x.numel() and (DEVICE == "cuda" or dtype == torch.float16):
        assert off < 0.05  # Triton's interpreter cuts bfloat16 off


def test_rows_of_a_larger_tensor_are_normed() -> None:
    """Queries before their positions are a transposed part of one projection."""
    x = drawn(2, 3, 4, 96, dtype=torch.bfloat16).transpose(1, 2)[..., 16:80]
    weight = drawn(64, dtype=torch.bfloat16)
    steps_off(fused_elementwise.norm(x, weight, 1e-5), norm_plain(x, weight, 1e-5))


def test_a_row_too_wide_for_a_program_is_refused() -> None:
    with pytest.raises(ValueError, match="more than"):
        fused_elementwise.norm(
            torch.ones(1, fused_elementwise.WIDEST + 1),
            torch.ones(fused_elementwise.WIDEST + 1),
            1e-6,
        )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1,), (3, 70), (2, 3, 2048), (0, 8)])
def test_gates_are_multiplied(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    gate, up = 4 * drawn(*shape, dtype=dtype), drawn(*shape, dtype=dtype)
    steps_off(fused_elementwise.gate(gate, up), gate_plain(gate, up))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("n", "H", "d"), [(1, 1, 2), (9, 3, 80), (5, 16, 64), (0, 2, 8)])
def test_queries_and_keys_are_rotated(n: int, H: int, d: int, dtype: torch.dtype) -> None:
    qkv, angle = drawn(n, 3, H, d, dtype=dtype), drawn(n, d, dtype=torch.float32)
    given = qkv, angle.cos(), angle.sin()
    got, want = (
        fused_elementwise.rotate(*given).float(),
        rotate_plain(*given).float(),
    )
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(got, want, rtol=eps, atol=eps)  # of a difference of two products


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A GPU whose kernels are plain PyTorch; what was launched."""
    launched: list[str] = []

    def launcher(work: str, launch: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def launched_by_name(*given: Any) -> Tensor:
            launched.append(work)
            return launch(*given)

        return launched_by_name

    plain = {work: launcher(work, launch) for work, launch in PLAIN.items()}
    monkeypatch.setattr(importlib, "import_module", lambda *names: SimpleNamespace(**plain))
    monkeypatch.setattr(dispatch, "placed", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(dispatch, "sample_elementwise", lambda work, _, dtype: asked(work, dtype))
    return launched


def asked(work: str = "gate", dtype: torch.dtype = torch.bfloat16) -> list[Any]:
    first, *rest = sample(work, torch.device("cpu"), dtype)
    return [first.as_subclass(OnGpu), *rest]


def reason(dispatcher: Dispatcher) -> str:
    return dispatcher.status("cuda").reason


@pytest.mark.parametrize("work", PLAIN)
@torch.no_grad()
def test_each_is_tested_once(work: str, gpu: list[str]) -> None:
    dispatcher = Dispatcher(check_first=True)
    for _ in range(2):
        made = dispatcher.elementwise(work, *asked(work))
        assert made is not None
        assert torch.equal(made.as_subclass(Tensor), PLAIN[work](*asked(work)))
    assert gpu == 4 * [work] and "in use" in reason(dispatcher)  # two types, then two calls


@torch.no_grad()
def test_the_caller_computes_what_has_no_kernel(gpu: list[str]) -> None:
    """On a processor, in float32, and where gradients are wanted."""
    dispatcher = Dispatcher(check_first=True)
    on_processor = sample("gate", torch.device("cpu"), torch.bfloat16)
    assert dispatcher.elementwise("gate", *on_processor) is None
    assert dispatcher.elementwise("gate", *asked(dtype=torch.float32)) is None
    with torch.enable_grad():
        assert dispatcher.elementwise("gate", *asked()) is None
    assert gpu == []


@torch.no_grad()
def test_a_wrong_kernel_is_left_to_the_caller(
    gpu: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And no other with it."""
    right = PLAIN["gate"]
    monkeypatch.setitem(PLAIN, "gate", lambda *given: (1 + 3 * CLOSE) * right(*given))
    dispatcher = Dispatcher(check_first=True)
    with caplog.at_level(logging.ERROR):
        assert dispatcher.elementwise("gate", *asked()) is None
    found = reason(dispatcher)
    assert "disagreed" in found and "gate" in found and "self-test" in caplog.text
    monkeypatch.setitem(PLAIN, "gate", right)
    assert dispatcher.elementwise("gate", *asked()) is None
    assert dispatcher.elementwise("norm", *asked("norm")) is not None


@torch.no_grad()
def test_a_failing_kernel_is_left_to_the_caller(
    gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [RuntimeError("no image for this device")]

    def fails(*given: Any) -> Tensor:
        gpu.append("norm")
        raise errors[-1]

    fake = SimpleNamespace(norm=fails)
    monkeypatch.setattr(importlib, "import_module", lambda *names: fake)
    dispatcher = Dispatcher(check_first=True)
    for _ in range(2):
        assert dispatcher.elementwise("norm", *asked("norm")) is None
    assert gpu == ["norm"] and "RuntimeError" in reason(dispatcher)
    errors.append(RuntimeError("out of memory"))
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        Dispatcher().elementwise("norm", *asked("norm"))
