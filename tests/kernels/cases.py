"""Cases of the correctness grid, their float64 truth, and the judge of attention kernels.

A case's error may be at most twice that of plain PyTorch in the same type, plus 1e-5, and at most
an absolute bar a type; NaN never passes. Scratch memory is poisoned.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from kernels.planes import GRANULE, rows_of, unpack
from kernels.reference import Narrow, Packed, Text, Visual
from kernels.samples import planes_of

Attend = Callable[..., Tensor]
DEVICE_BAR = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 5e-2}  # absolute
PACKS = ("rotated", "dense", "index")


@dataclass(frozen=True)
class Case:
    """One call of decode attention; `pack` says how the visual cache is stored.

    strided: caches are views of larger token-major buffers. ragged: rows differ in length and the
    slots past each length hold NaN.
    """

    dtype: torch.dtype
    B: int = 2
    Hkv: int = 2
    G: int = 4
    N: int = 65
    M: int = 7
    d: int = 128
    k: int = 32
    pack: str = "rotated"
    strided: bool = False
    ragged: bool = False


def grid() -> list[Case]:
    """The full grid, for hardware: every axis of the design's table, crossed where it matters."""
    cases = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for G, N, k in product((1, 4, 7, 8), (0, 1, 16, 17, 63, 65), (8, 48, 128)):
            cases.append(Case(dtype, B=1 + N % 2, G=G, N=N, k=k, M=(1, 7, 200)[(N + k) % 3]))
        for G, N, M, k in product((4, 7), (864, 2880, 4097), (1, 7, 200), (16, 32, 48, 80)):
            cases.append(Case(dtype, G=G, N=N, M=M, k=k, ragged=M == 7))
        for pack, d, ragged in product(PACKS, (64, 80, 96, 128, 256), (False, True)):
            base = Case(dtype, d=d, k=d // 4, N=300, M=40, pack=pack, ragged=ragged)
            cases += [base, replace(base, Hkv=8, G=7, B=8, N=864, k=d // 4 + 8, strided=ragged)]
        if dtype == torch.float32:  # planes are for queries of 16 bits
            continue
        for G, N in product((1, 4, 7, 8), (1, 127, 129, 700)):
            base = Case(dtype, B=3, G=G, N=N, k=48, pack="planes")
            cases += [base, replace(base, M=200, k=16 * (1 + N % 5), ragged=True, strided=True)]
        for B, N, k, d in (
            (1, 2880, 32, 128), (2, 2880, 96, 128), (8, 16384, 32, 128), (64, 2880, 32, 128),
            (2, 300, 64, 64), (2, 300, 80, 80), (1, 300, 96, 96), (2, 300, 48, 256),
        ):  # fmt: skip
            case = Case(dtype, B=B, Hkv=4, N=N, M=40, k=k, d=d, pack="planes", ragged=B == 2)
            cases.append(case)
    for k, (B, N, M) in product(  # batches that fill an H200, and small ones
        (32, 48), ((32, 576, 40), (16, 2880, 300), (1, 2880, 40), (3, 2880, 40), (5, 2880, 40))
    ):
        case = Case(torch.bfloat16, B=B, Hkv=8, G=7, N=N, M=M, k=k, ragged=B > 1)
        cases += [case, replace(case, pack="dense")]
    return [*cases, Case(torch.bfloat16, B=3, N=0, M=700, ragged=True)]


def make(case: Case, device: str, seed: int = 0) -> tuple[Tensor, Visual | None, Text]:
    """q, visual and text of a case, from a private generator."""
    generator = torch.Generator(device).manual_seed(seed)
    B, Hkv, d, N, k = case.B, case.Hkv, case.d, case.N, min(case.k, case.d)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    def cache(tokens: int, width: int) -> Tensor:
        if case.strided:  # [B, T, H, w] storage with room to grow
            return draw(B, tokens + 3, Hkv, width)[:, :tokens].transpose(1, 2)
        return draw(B, Hkv, tokens, width)

    def send(tensor: Tensor) -> Tensor:
        return tensor.to(case.dtype)

    q = draw(B, 1, Hkv * case.G, d).transpose(1, 2) if case.strided else draw(B, Hkv * case.G, 1, d)
    rows, M = torch.arange(B, device=device), case.M
    text_keys, text_values = cache(M, d), cache(M, d)
    ends = (M - rows * M // 3).clamp(min=1).to(torch.int32) if case.ragged else None
    text = Text(_dead(text_keys, ends), _dead(text_values, ends))
    text = Text(send(text.keys), send(text.values), ends)
    if N == 0:
        return send(q), None, text
    lengths = (N - rows * (N // 2)).clamp(min=0).to(torch.int32) if case.ragged else None
    if case.pack == "dense":
        k = d
    if case.pack == "planes":
        mean, shift = send(draw(B, Hkv, d) / 4), send(draw(B, Hkv, d))
        sides = [
            planes_of(
                draw(B, Hkv, N, k),
                _mixtures(case, device, side),
                0.4 + draw(B, Hkv, k).abs() / 6,
                torch.linalg.qr(draw(B, Hkv, d, d))[0].mT[..., :k, :],
                bool(side),
            )
            for side in (0, 1)
        ]
        return send(q), Packed(sides[0], sides[1], N, lengths, mean, shift), text
    keys, values = _dead(cache(N, k), lengths), _dead(cache(N, d), lengths)
    visual = Narrow(send(keys), send(values), lengths)
    basis = torch.linalg.qr(draw(B, Hkv, d, d))[0][..., :k].contiguous()
    if case.pack == "index":
        index = draw(B, Hkv, d).argsort(-1)[..., :k].sort(-1).values
        return send(q), visual._replace(index=index), text
    if case.pack != "dense":
        visual = visual._replace(basis=send(basis), mean=send(draw(B, Hkv, d) / 4))
    return send(q), visual, text


def _dead(tensor: Tensor, lengths: Tensor | None) -> Tensor:
    """NaN in the slots past each row's length."""
    return tensor.masked_fill(_dead_mask(tensor, lengths).mT, float("nan"))


def _mixtures(case: Case, device: str, side: int) -> Tensor:
    """Counts of planes that differ from head to head, of no channels to k of up to 8 bits."""
    head = torch.arange(case.B * case.Hkv, device=device).view(case.B, case.Hkv)
    most = min(case.k, case.d) // GRANULE - head % (min(case.k, case.d) // GRANULE + 1)
    counts = [most]  # at least one head has all k channels
    for level in range(1, 4):
        counts.append(counts[-1] - (head * (level + 1) + side) % (counts[-1] + 1))
    return GRANULE * torch.stack(counts, -1).int()


def attend_plain(
    q: Tensor, visual: Visual | None, text: Text, scale: float, dtype: torch.dtype
) -> Tensor:
    """The textbook formula with every product in `dtype`, T = 1: float64 gives the truth."""
    B, Hq, _, d = q.shape
    Hkv = text.keys.shape[1]
    query = q.to(dtype).view(B, Hkv, Hq // Hkv, d)
    keys, values = (_masked(each, text.lengths, dtype) for each in text[:2])
    dead = _dead_mask(text.keys, text.lengths)
    scores = (query @ keys.mT * scale).masked_fill(dead, float("-inf"))
    if visual is None:
        return (scores.softmax(-1) @ values).view(B, Hq, 1, d)
    mean, N = visual.mean, visual.tokens
    if isinstance(visual, Packed):
        stored = unpack(visual.keys, N), unpack(visual.values, N, values=True)
        low = query @ rows_of(visual.keys).to(dtype).mT
    else:
        stored, low = (visual.keys, visual.values), query
        if visual.basis is not None:
            low = query @ visual.basis.to(dtype)
        if visual.index is not None:
            low = query.gather(-1, visual.index[:, :, None].expand(-1, -1, query.shape[2], -1))
    own_keys, own_values = (_masked(each, visual.lengths, dtype) for each in stored)
    seen = low @ own_keys.mT
    if mean is not None:
        seen = seen + query @ mean.to(dtype)[..., None]
    seen = (seen * scale).masked_fill(_dead_mask(own_keys, visual.lengths), float("-inf"))
    weights = torch.cat([seen, scores], -1).softmax(-1)
    out = weights[..., :N] @ own_values
    if isinstance(visual, Packed):
        out = out @ rows_of(visual.values).to(dtype)
        out = out + weights[..., :N].sum(-1, keepdim=True) * visual.value_mean.to(dtype)[:, :, None]
    return (out + weights[..., N:] @ values).view(B, Hq, 1, d)


def misaligned(visual: Visual) -> bool:
    """Whether a head of planes does not begin at a whole granule, which kernels load at once."""
    if isinstance(visual, Narrow):
        return False
    return any(
        bool((planes.offsets % (GRANULE * GRANULE)).any())
        for planes in (visual.keys, visual.values)
    )


def _dead_mask(cache: Tensor, lengths: Tensor | None) -> Tensor:
    """[B, 1, 1, T] true past each length."""
    slot = torch.arange(cache.shape[2], device=cache.device)
    ends = cache.shape[2] if lengths is None else lengths[:, None]
    return (slot >= ends).expand(cache.shape[0], -1)[:, None, None]


def _masked(cache: Tensor, lengths: Tensor | None, dtype: torch.dtype) -> Tensor:
    return cache.to(dtype).masked_fill(_dead_mask(cache, lengths).mT, 0.0)


def _poisoned(*args: Any, plain: Any = torch.empty, **kwargs: Any) -> Tensor:
    """torch.empty, which holds NaN."""
    tensor: Tensor = plain(*args, **kwargs)
    return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor


def check(case: Case, attend: Attend, device: str, seed: int = 0) -> None:
    """Assert the bar: twice the error of plain PyTorch in the case's type, plus 1e-5, and the
    type's absolute one."""
    q, visual, text = make(case, device, seed)
    if visual is not None and misaligned(visual):
        raise ValueError(f"{case} breaks what kernels rely on")
    truth, plain = (
        attend_plain(q, visual, text, case.d**-0.5, dtype).double()
        for dtype in (torch.float64, case.dtype)
    )
    with patch.object(torch, "empty", _poisoned):
        got = attend(q, visual, text, case.d**-0.5)
    assert got.shape == q.shape and got.dtype == q.dtype and bool(got.isfinite().all())
    gap, bar = (float((each.double() - truth).abs().max()) for each in (got, plain))
    assert gap <= 2 * bar + 1e-5 and gap <= DEVICE_BAR[case.dtype], (gap, bar)
