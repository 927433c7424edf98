"""Launches the decode attention of `kernels.attention`: arguments, scratch, and the merge.

The layout of a call comes from `kernels.plan`; lengths stay on the device and the scratch is
allocated per call. So a call can be captured in a CUDA graph.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from .attention import joined_kernel, split_kernel
from .merge import merge_kernel
from .packed_attention_launch import (
    LOG2_E,
    MOST_PROGRAMS,
    MOST_ROWS,
    TYPES,
    Partials,
    merge_joined,
    partials_of,
    refused,
)
from .plan import Config, Plan, Work, device_facts, layout, padded, unit
from .reference import Narrow, Text, Unsupported

SLICED = 256  # query heads up to which several programs merge one, each a slice of the output


def _key_blocks(k: int) -> tuple[int, int]:
    """k as two powers of two, so that 48 costs 32 + 16 and not 64: (first, second or 0)."""
    first = max(16, 1 << (k.bit_length() - 1))
    return first, (padded(k - first) if k > first else 0)


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def refusal(q: Tensor, visual: Narrow | None, text: Text) -> str | None:
    """Why the kernel cannot compute this call; None when it can."""
    if q.shape[2] != 1:
        return "more than one query token"
    if visual is not None and not visual.keys.shape[-1]:
        return "no channel left"
    return refused(q, [*text[:2], *(visual or ())[:2]])


def attend_triton(
    q: Tensor,
    visual: Narrow | None,
    text: Text,
    scale: float,
    config: Config | None = None,
    splits: int | None = None,
    pdl: bool | None = None,
) -> Tensor:
    """Decode attention, T = 1; the first four as of `kernels.reference.attend_reference`.

    A cache that is `fresh`, or has to be copied first, is never read before the kernel ahead has
    ended.

    Args:
        q: [B, Hq, 1, d].
        visual: the compressed tokens, or None.
        text: the others.
        scale: factor of the scores.
        config: overrides the table, for benchmarks and tests.
        splits: number of visual splits; the plan's by default.
        pdl: whether the kernel may start before the previous one has ended; by default from sm_90
            on.

    Raises:
        Unsupported: where `refusal` names a reason.
    """
    reason = refusal(q, visual, text)
    if reason:
        raise Unsupported(reason)
    if visual is None or visual.tokens == 0:  # text alone is a dense cache
        visual = Narrow(text.keys, text.values, text.lengths, fresh=True)
        text = Text(text.keys[:, :, :0], text.values[:, :, :0])
    return _launch(q, visual, text, scale, config, splits, pdl)


def attend_rows(q: Tensor, visual: Narrow | None, text: Text, scale: float) -> Tensor:
    """Attention of several new tokens: each is a row of its own, with a text that ends at it.

    Rows of a sample read the same tokens, which then lie in the cache; tables are repeated.

    Args:
        q: [B, Hq, T, d].
        visual: the compressed tokens of one sample, or None.
        text: the others.
        scale: factor of the scores.

    Raises:
        Unsupported: for several samples with visual tokens, or where `refusal` says so.
    """
    B, T = q.shape[0], q.shape[2]
    if B > 1 and visual is not None:
        raise Unsupported("several new tokens of samples without planes")
    step = max(1, min(MOST_ROWS // B, MOST_PROGRAMS // (B * text.keys.shape[1])))
    found = [
        _rows(q[:, :, first : first + step], visual, text, scale, max(0, T - first - step))
        for first in range(0, T, step)
    ]
    return found[0] if len(found) == 1 else torch.cat(found, 2)


def _rows(q: Tensor, visual: Narrow | None, text: Text, scale: float, ahead: int) -> Tensor:
    """Attention of some of them, as samples of their own; ahead: tokens of the text behind them."""
    B, Hq, T, d = q.shape
    ends = text.lengths
    if ends is None:
        ends = torch.full((B,), text.keys.shape[2], dtype=torch.int32, device=q.device)
    rows = torch.arange(B, device=q.device).repeat_interleave(T)
    behind = torch.arange(T - 1 + ahead, ahead - 1, -1, device=q.device).repeat(B)
    lengths = (ends[rows] - behind).clamp(min=1).int()  # rows of padding are not read
    own = Text(_repeated(text.keys, rows), _repeated(text.values, rows), lengths)
    if visual is not None:
        found = {
            name: part[rows]  # contiguous, as kernels read tables
            for name, part in visual._asdict().items()
            if isinstance(part, Tensor) and name not in ("keys", "values")
        }
        keys, values = _repeated(visual.keys, rows), _repeated(visual.values, rows)
        visual = visual._replace(**found, keys=keys, values=values, fresh=True)
    out = attend_triton(q.transpose(1, 2).reshape(B * T, Hq, 1, d), visual, own, scale)
    return out.view(B, T, Hq, d).transpose(1, 2)


def _repeated(states: Tensor, rows: Tensor) -> Tensor:
    """The samples `rows` of [B, ...]; a view of a single one."""
    return states.expand(len(rows), *states.shape[1:]) if len(states) == 1 else states[rows]


def _descriptors(caches: tuple[Tensor, ...], block: int) -> tuple[TensorDescriptor | None, ...]:
    """Keys and Values as [B * Hkv * N, width] for the bulk copy engine; None for other layouts."""
    found = []
    for cache in caches:
        width = cache.shape[-1]
        aligned = cache.data_ptr() % 16 == 0 and width * cache.element_size() % 16 == 0
        fits = width == padded(width) and width <= 256
        if not (cache.is_contiguous() and aligned and fits):
            return None, None
        flat = cache.view(-1, width)
        found.append(TensorDescriptor(flat, list(flat.shape), [width, 1], [block, width]))
    return tuple(found)


def _strides(tensor: Tensor | None, count: int) -> tuple[int, ...]:
    return (0,) * count if tensor is None else tensor.stride()[:count]


@dataclass(frozen=True)
class _Call:
    """One call, ready to launch: contiguous where the kernels need it, laid out on its device."""

    q: Tensor
    visual: Narrow
    text: Text
    scale: float
    config: Config
    plan: Plan
    pdl: bool

    @property
    def extra(self) -> dict[str, Any]:
        """Options of a launch that may start early."""
        return {"launch_pdl": True} if self.pdl else {}


def _ready(
    q: Tensor, visual: Narrow, text: Text, pdl: bool | None
) -> tuple[Tensor, Narrow, Text, bool]:
    """The tensors as the kernels read them, and whether they may be read early."""
    given = visual
    visual = visual._replace(
        keys=unit(visual.keys),
        values=unit(visual.values),
        index=_contiguous(visual.index),
        mean=_contiguous(visual.mean),
    )
    fresh = given.fresh or any(a is not b for a, b in zip(given, visual, strict=True))
    text = text._replace(keys=unit(text.keys), values=unit(text.values))
    early = device_facts(q.device)[0] >= 90 if pdl is None else pdl
    return unit(q), visual, text, early and not fresh


def _launch(
    q: Tensor,
    visual: Narrow,
    text: Text,
    scale: float,
    config: Config | None,
    splits: int | None,
    pdl: bool | None,
) -> Tensor:
    B, Hq, _, d = q.shape
    Hkv, M, N = text.keys.shape[1], text.keys.shape[2], visual.tokens
    k = visual.keys.shape[-1]
    row_bytes = (k + d) * q.element_size()
    work = Work(
        B * Hkv, N, M, row_bytes, 2 * d * q.element_size(), d, k, visual.lengths is not None
    )
    config, plan = layout(work, device_facts(q.device), config, splits)
    q, visual, text, pdl = _ready(q, visual, text, pdl)
    call = _Call(q, visual, text, scale, config, plan, pdl)
    out = torch.empty((B, Hq, 1, d), dtype=q.dtype, device=q.device)
    if config.joined and plan.splits == 1:
        _attend_joined(call, (out, None, None))
    else:
        partials = partials_of(out, plan.splits)
        if config.joined:
            _attend_joined(call, partials)
            merge_joined(q, out, partials, pdl)
        else:
            _attend_splits(call, partials)
            _merge(call, out, partials)
    return out


class _Shared(NamedTuple):
    """Arguments that both kernels take: tensors, descriptors, strides, compile-time options."""

    tensors: tuple[Tensor | None, ...]
    descriptors: tuple[TensorDescriptor | None, ...]
    strides: tuple[int, ...]
    options: dict[str, Any]


def _shared(call: _Call) -> _Shared:
    """The arguments of `call`; basis products in float32 where types mix."""
    q, visual, text, config = call.q, call.visual, call.text, call.config
    d, G, k = q.shape[-1], q.shape[1] // text.keys.shape[1], visual.keys.shape[-1]
    basis, keys, values = visual.basis, visual.keys, visual.values
    mixed = basis is not None and (basis.dtype != q.dtype or q.dtype == torch.float32)
    first, second = _key_blocks(k)
    tensors = (
        q, keys, values, visual.lengths, basis, visual.index, text.keys, text.values, text.lengths,
    )  # fmt: skip
    strides = (
        *q.stride()[:2], *keys.stride()[:3], *values.stride()[:3],
        *_strides(basis, 4), *text.keys.stride()[:3], *text.values.stride()[:3],
    )  # fmt: skip
    options = {
        "GP": max(8, triton.next_power_of_2(G)), "D": d, "DP": padded(d),
        "K": k, "KP1": first, "KP2": second,
        "TT": TYPES[q.dtype], "PT": tl.float32 if mixed else TYPES[q.dtype],
        "KPREC": "tf32x3" if mixed and q.dtype != torch.float32 else "ieee",
        "BLOCK_N": config.block_n, "BLOCK_M": config.block_m, "STAGES": config.stages,
        "TEXT_STAGES": 2, "PDL": call.pdl, "WIDEN": device_facts(q.device)[0] == 0,
        "num_warps": config.warps, **call.extra,
    }  # fmt: skip
    if config.regs is not None:
        options["maxnreg"] = config.regs
    descriptors = _descriptors((keys, values), config.block_n) if config.tma else (None, None)
    return _Shared(tensors, descriptors, strides, options)


def _attend_splits(call: _Call, partials: Partials) -> None:
    """Text splits beside visual ones; see `split_kernel`."""
    plan, text, given = call.plan, call.text, _shared(call)
    B, Hkv, M = text.keys.shape[:3]
    block = call.config.block_n
    split_kernel[plan.splits, B * Hkv](
        *given.tensors, *partials, *given.descriptors, *given.strides,
        call.visual.tokens, M, *plan.tiles(block), plan.text_size,
        plan.text_splits, Hkv, call.q.shape[1] // Hkv, call.scale * LOG2_E,
        ONE_TILE=plan.visual_size == block, **given.options,
    )  # fmt: skip


def _attend_joined(call: _Call, partials: Partials) -> None:
    """Visual splits that read the text too; a single one writes the output, partials[0]."""
    plan, text, visual, given = call.plan, call.text, call.visual, _shared(call)
    B, Hkv, M = text.keys.shape[:3]
    joined_kernel[plan.splits, B * Hkv](
        *given.tensors, visual.mean,
        *partials, *given.descriptors, *given.strides,
        visual.tokens, M, *plan.tiles(call.config.block_n), plan.text_size,
        Hkv, call.q.shape[1] // Hkv, call.scale * LOG2_E,
        SINGLE=plan.splits == 1, **given.options,
    )  # fmt: skip


def _merge(call: _Call, out: Tensor, partials: Partials) -> None:
    """One program a query head and slice of the output; see `merge_kernel`."""
    q, plan, visual, text = call.q, call.plan, call.visual, call.text
    B, Hq, _, d = q.shape
    Hkv, M = text.keys.shape[1:3]
    first = plan.tiles(call.config.block_n)[0]
    slots = max(2, triton.next_power_of_2(plan.splits))
    block = min(padded(d), 32) if B * Hq <= SLICED else padded(d)
    merge_kernel[B * Hq, triton.cdiv(d, block)](
        *partials, out, q, visual.lengths, text.lengths, visual.mean,
        q.stride(0), q.stride(1), out.stride(0), out.stride(1),
        visual.tokens, M, first, plan.text_size,
        plan.text_splits, plan.splits, Hq, Hq // Hkv, call.scale * LOG2_E,
        D=d, DP=padded(d), SP=slots, SC=min(slots, 4096 // block), BLOCK_D=block,
        PDL=call.pdl, num_warps=4, **call.extra,
    )  # fmt: skip
