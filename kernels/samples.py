"""Small inputs from private generators: of self-tests, tests and benchmarks, and the start of every
subspace iteration."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .planes import Planes, granules, pack
from .reference import Narrow, Packed, Text, Window


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # a tensor for every later call
def start_basis(d: int, k: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """The start [d, k] of every iteration; a constant, copied to a device once."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(d, k, dtype=torch.float64, generator=generator).to(device, dtype)


def sample(device: torch.device, dtype: torch.dtype, k: int) -> tuple[Tensor, Narrow, Text]:
    """q, visual of k Key channels, and text: two ragged samples, eight query heads, d = 128."""
    B, Hkv, G, N, M, d = 2, 2, 4, 300, 40, 128
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    lengths = torch.tensor([N, 77], dtype=torch.int32, device=device)
    basis = torch.linalg.qr(torch.randn(B, Hkv, d, d, generator=generator))[0]
    basis = basis[..., :k].to(device, dtype)
    keys, values = draw(B, Hkv, N, k), draw(B, Hkv, N, d)
    visual = Narrow(keys, values, lengths, basis, mean=draw(B, Hkv, d) / 4)
    text = Text(draw(B, Hkv, M, d), draw(B, Hkv, M, d), (lengths // 10).to(torch.int32))
    return draw(B, Hkv * G, 1, d), visual, text


def planes_of(
    coordinates: Tensor, counts: Tensor, steps: Tensor, rows: Tensor, values: bool
) -> Planes:
    """Planes of coordinates [B, Hkv, N, w] along rows [B, Hkv, w, d], rounded to a basis of 8 bits;
    steps: [B, Hkv, w]."""
    data, offsets = pack(coordinates, counts, steps, values)
    own = counts[..., 0]
    live = torch.arange(steps.shape[-1], device=own.device) < own[..., None]
    scale = rows.float().abs().amax(-1, keepdim=True) / 127
    basis = (rows / scale).round().to(torch.int8)[live]
    starts = (own.flatten().cumsum(0) - own.flatten()).view(own.shape).int()
    steps = (steps * scale[..., 0])[live]
    return Planes(data, counts, offsets, basis, steps, starts, int(granules(counts).max()))


def sample_packed(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Packed, Text]:
    """`sample` with Keys and Values as planes: heads of 2 to 8 bits a channel, one of none."""
    q, visual, text = sample(device, dtype, 48)
    assert visual.basis is not None and visual.mean is not None
    counts = [[[48, 16, 0, 0], [32, 32, 16, 16]], [[0, 0, 0, 0], [16, 0, 0, 0]]]
    levels = torch.tensor(counts, dtype=torch.int32, device=device)
    given = levels, torch.full((2, 2, 48), 0.5, device=device), visual.basis.mT
    keys = planes_of(visual.keys, *given, values=False)
    values = planes_of(visual.values[..., :48], *given, values=True)
    mean, shift = visual.mean, -4 * visual.mean
    return q, Packed(keys, values, visual.tokens, visual.lengths, mean, shift), text


def sample_window(device: torch.device, dtype: torch.dtype) -> Window:
    """Two ragged samples, four query heads, d = 128."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    lengths = torch.tensor([150, 77], dtype=torch.int32, device=device)
    alive = torch.ones(2, 32, dtype=torch.bool, device=device)
    text = Text(draw(2, 2, 48, 128), draw(2, 2, 48, 128), torch.full_like(lengths, 40))
    metric = (draw(2, 2, 128, 128) / 16).float()
    live = torch.arange(150, device=device) < lengths[:, None]
    keys, values = (draw(2, 2, 150, 128).masked_fill(~live[:, None, :, None], 0) for _ in range(2))
    return Window(draw(2, 4, 32, 128), alive, keys, values, lengths, text, metric)


def sample_elementwise(work: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, ...]:
    """Arguments of one of `kernels.elementwise_reference.PLAIN`."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    if work == "norm":
        return draw(5, 130), draw(130), 1e-6
    if work == "gate":
        return draw(3, 1100), draw(3, 1100)
    return draw(7, 3, 3, 40), draw(7, 40).float(), draw(7, 40).float()
