"""A layer's element-wise work in one pass, against plain PyTorch."""

import pytest
import torch
from torch import Tensor

from kernels import fused_elementwise
from kernels.elementwise_reference import gate_plain, norm_plain, rotate_plain

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TYPES = [torch.bfloat16, torch.float16]
if DEVICE == "cpu":  # on a GPU no pass is for float32, and exponentials are coarser
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
@pytest.mark.parametrize("shape", [(2, 5, 80), (2, 1280), (0, 64)])
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
    ones = torch.ones(1, fused_elementwise.WIDEST + 1)
    with pytest.raises(ValueError, match="more than"):
        fused_elementwise.norm(ones, ones[0], 1e-6)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3, 70), (2, 3, 2048), (0, 8)])
def test_gates_are_multiplied(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    gate, up = 4 * drawn(*shape, dtype=dtype), drawn(*shape, dtype=dtype)
    steps_off(fused_elementwise.gate(gate, up), gate_plain(gate, up))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("n", "H", "d"), [(9, 3, 80), (5, 16, 64), (0, 2, 8)])
def test_queries_and_keys_are_rotated(n: int, H: int, d: int, dtype: torch.dtype) -> None:
    qkv, angle = drawn(n, 3, H, d, dtype=dtype), drawn(n, d, dtype=torch.float32)
    given = qkv, angle.cos(), angle.sin()
    got, want = fused_elementwise.rotate(*given).float(), rotate_plain(*given).float()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(got, want, rtol=eps, atol=eps)  # of a difference of two products
