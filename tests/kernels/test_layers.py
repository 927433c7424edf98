"""A layer's element-wise work in one pass, against plain PyTorch."""

from typing import Any

import pytest
import torch
from torch import Tensor

from kernels import fused_elementwise
from kernels.elementwise_reference import PLAIN

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TYPES = [torch.bfloat16, torch.float16]
if DEVICE == "cpu":  # on a GPU no pass is for float32, and exponentials are coarser
    TYPES.append(torch.float32)


def drawn(*shape: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


CASES = {
    "norm": ((2, 5, 80), (2, 1280), (0, 64)),
    "gate": ((3, 70), (2, 3, 2048), (0, 8)),
    "rotate": ((9, 3, 3, 80), (5, 3, 16, 64), (0, 3, 2, 8)),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("work", "shape"), [(work, shape) for work, shapes in CASES.items() for shape in shapes]
)
def test_a_pass_rounds_as_plain_pytorch(
    work: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """A few steps of the type at most."""
    x, angle = 3 * drawn(*shape, dtype=dtype), drawn(shape[0], shape[-1], dtype=torch.float32)
    beside: dict[str, tuple[Any, ...]] = {
        "norm": (drawn(shape[-1], dtype=dtype), 1e-6),
        "gate": (drawn(*shape, dtype=dtype),),
        "rotate": (angle.cos(), angle.sin()),
    }
    got = getattr(fused_elementwise, work)(x, *beside[work])
    want, eps = PLAIN[work](x, *beside[work]), torch.finfo(dtype).eps
    atol = 3 * eps if work == "rotate" else 4e-3 * eps  # of a difference of two products
    torch.testing.assert_close(got, want, rtol=4 * eps, atol=atol)
    if work == "norm" and x.numel() and (DEVICE == "cuda" or dtype == torch.float16):
        off = (got != want).float().mean()  # Triton's interpreter cuts bfloat16 off
        assert off < 0.05


def test_rows_of_a_larger_tensor_are_normed() -> None:
    """Queries before their positions are a transposed part of one projection; no program holds a
    row that is too wide."""
    x = drawn(2, 3, 4, 96, dtype=torch.bfloat16).transpose(1, 2)[..., 16:80]
    given = x, drawn(64, dtype=torch.bfloat16), 1e-5
    want = PLAIN["norm"](*given)
    torch.testing.assert_close(fused_elementwise.norm(*given), want, rtol=2**-5, atol=1e-4)
    ones = torch.ones(1, fused_elementwise.WIDEST + 1)
    with pytest.raises(ValueError, match="more than"):
        fused_elementwise.norm(ones, ones[0], 1e-6)
