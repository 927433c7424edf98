"""A layer's element-wise work in one pass, against plain PyTorch."""

from typing import Any

import pytest
import torch
from torch import Tensor

from kernels import fused_elementwise
from kernels.elementwise_reference import PLAIN
from kernels.reference import Text, Window, window_attention_plain
from kernels.window_attention import window_attention

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
    """Queries before their positions are a transposed part of one projection."""
    x = drawn(2, 3, 4, 96, dtype=torch.bfloat16).transpose(1, 2)[..., 16:80]
    given = x, drawn(64, dtype=torch.bfloat16), 1e-5
    want = PLAIN["norm"](*given)
    torch.testing.assert_close(fused_elementwise.norm(*given), want, rtol=2**-5, atol=1e-4)


# -- sums of the last queries' attention, against one softmax a head in float64 ----------------


def window(N: int, d: int, M: int, dtype: torch.dtype, metric: bool) -> Window:
    """Two samples, ragged where they can be, four heads on two; rows of larger buffers."""
    generator = torch.Generator().manual_seed(N)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(DEVICE)

    def heads(n: int, many: int = 2) -> Tensor:
        return draw(2, n + 3, many, d)[:, :n].transpose(1, 2).to(dtype)

    lengths = torch.tensor([N, (N + 1) // 2], dtype=torch.int32, device=DEVICE)
    live = torch.arange(N, device=DEVICE) < lengths[:, None]
    keys, values = (heads(N) + 1).masked_fill(~live[:, None, :, None], 0), heads(N)
    values = (values + 3).masked_fill(~live[:, None, :, None], 0)  # a mean above their spread
    alive = torch.ones(2, 5, dtype=torch.bool, device=DEVICE)
    alive[1, 0] = False
    spoken = torch.tensor([M, M - 2], dtype=torch.int32, device=DEVICE)
    text = Text(heads(M), heads(M), spoken) if M else None
    root = draw(2, 2, d, d) / d**0.5 if metric else None
    return Window(heads(5, 4), alive, keys, values, lengths, text, root)


def wanted(seen: Window) -> tuple[Tensor, Tensor, Tensor]:
    """The three sums as they are defined."""
    (B, H, N, d), W = seen.keys.shape, seen.queries.shape[2]
    queries = seen.queries.double().view(B, H, -1, W, d)
    keys, values, far = seen.keys.double(), seen.values.double(), float("-inf")
    live = torch.arange(N, device=DEVICE) < seen.lengths[:, None]
    scores = (queries @ keys.mT[:, :, None]) * d**-0.5
    scores = scores.masked_fill(~live[:, None, None, None], far)
    if seen.text is not None:
        M, place = seen.text.keys.shape[2], seen.alive.long().cumsum(1)
        assert seen.text.lengths is not None
        last = seen.text.lengths[:, None] - place[:, -1:] + place
        beside = (queries @ seen.text.keys.double().mT[:, :, None]) * d**-0.5
        hidden = torch.arange(M, device=DEVICE) >= last[..., None]
        scores = torch.cat([scores, beside.masked_fill(hidden[:, None, None], far)], -1)
        values = torch.cat([values, seen.text.values.double()], 2)
    p = scores.softmax(-1).masked_fill(~seen.alive[:, None, None, :, None], 0)
    away = seen.values.double()[:, :, None, None] - (p @ values[:, :, None])[..., None, :]
    if seen.metric is not None:
        away = away @ seen.metric[:, :, None, None].double()
    p = p[..., :N]
    spread = (p.square() * away.square().sum(-1)).sum((2, 3, 4))
    return p.sum((1, 2, 3)), spread, p.square().sum((2, 3, 4))


@pytest.mark.parametrize(
    ("N", "d", "M", "dtype", "metric"),
    [
        (1, 64, 16, torch.bfloat16, False),
        (150, 80, 20, torch.bfloat16, True),
        (70, 32, 90, torch.float16, False),
        (150, 80, 20, torch.float32, True),
    ],
)
def test_sums_are_those_of_a_softmax(
    N: int, d: int, M: int, dtype: torch.dtype, metric: bool
) -> None:
    """Over one tile of queries and tokens and over several; in plain PyTorch in float32."""
    seen, plain = window(N, d, M, dtype, metric), dtype == torch.float32
    found = (window_attention_plain if plain else window_attention)(seen)
    for got, want in zip(found, wanted(seen), strict=True):
        assert got.shape == want.shape
        error = (got.double() - want).norm() / want.norm()
        assert float(error) <= (1e-4 if plain else 2e-2)  # of one number of 8 bits, for one token
    beyond = torch.arange(N, device=DEVICE) >= seen.lengths[:, None]
    assert not bool(found[0][beyond].any())
