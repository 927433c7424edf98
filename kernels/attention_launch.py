"""Launches the decode attention of `kernels.attention`: arguments, scratch, and the merge.

The layout of a call comes from `kernels.plan`; lengths stay on the device and the scratch is
allocated per call. So a call can be captured in a CUDA graph.
"""

from typing import Any

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
from .plan import Config, Work, device_facts, layout, padded, unit
from .reference import Narrow, Text, Unsupported

SLICED = 256  # query heads up to which several programs merge one, each a slice of the output


def _key_blocks(k: int) -> tuple[int, int]:
    """k as two powers of two, so that 48 costs 32 + 16 and not 64: (first, second or 0)."""
    first = max(16, 1 << (k.bit_length() - 1))
    return first, (padded(k - first) if k > first else 0)


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

    Raises:
        Unsupported: where `refusal` names a reason.
    """
    reason = refusal(q, visual, text)
    if reason:
        raise Unsupported(reason)
    if visual is None or visual.tokens == 0:  # text alone is a dense cache
        visual = Narrow(text.keys, text.values, text.lengths, fresh=True)
        text = Text(text.keys[:, :, :0], text.values[:, :, :0])
    return _launch(q, visual, text, scale, config, splits)


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
        found: dict[str, Any] = {
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


def _ready(q: Tensor, visual: Narrow, text: Text) -> tuple[Tensor, Narrow, Text, bool]:
    """The tensors as the kernels read them, and whether they may be read early."""
    given = visual
    visual = visual._replace(
        keys=unit(visual.keys),
        values=unit(visual.values),
        index=None if visual.index is None else visual.index.contiguous(),
        mean=None if visual.mean is None else visual.mean.contiguous(),
    )
    fresh = given.fresh or any(a is not b for a, b in zip(given, visual, strict=True))
    text = text._replace(keys=unit(text.keys), values=unit(text.values))
    return unit(q), visual, text, device_facts(q.device)[0] >= 90 and not fresh


def _launch(
    q: Tensor,
    visual: Narrow,
    text: Text,
    scale: float,
    config: Config | None,
    splits: int | None,
) -> Tensor:
    """One launch, and the merge of its splits where there are several."""
    (B, Hq, _, d), (Hkv, M) = q.shape, text.keys.shape[1:3]
    N, k, size, G = visual.tokens, visual.keys.shape[-1], q.element_size(), Hq // Hkv
    work = Work(B * Hkv, N, M, (k + d) * size, 2 * d * size, d, k, visual.lengths is not None)
    config, plan = layout(work, device_facts(q.device), config, splits)
    q, visual, text, early = _ready(q, visual, text)
    tensors, descriptors, strides, options = _arguments(q, visual, text, config, early)
    grid, scale_log2, block = (plan.splits, B * Hkv), scale * LOG2_E, config.block_n
    out = torch.empty((B, Hq, 1, d), dtype=q.dtype, device=q.device)
    single = bool(config.joined) and plan.splits == 1
    partials: Partials = (out, None, None) if single else partials_of(out, plan.splits)
    if config.joined:  # visual splits that read the text too; a single one writes the output
        joined_kernel[grid](
            *tensors, visual.mean, *partials, *descriptors, *strides,
            N, M, *plan.tiles(block), plan.text_size, Hkv, G, scale_log2, SINGLE=single, **options,
        )  # fmt: skip
        if not single:
            merge_joined(q, out, partials, early)
        return out
    split_kernel[grid](
        *tensors, *partials, *descriptors, *strides,
        N, M, *plan.tiles(block), plan.text_size, plan.text_splits, Hkv, G, scale_log2,
        ONE_TILE=plan.visual_size == block, **options,
    )  # fmt: skip
    # one program a query head and slice of the output
    slots = max(2, triton.next_power_of_2(plan.splits))
    width = min(padded(d), 32) if B * Hq <= SLICED else padded(d)
    merge_kernel[B * Hq, triton.cdiv(d, width)](
        *partials, out, q, visual.lengths, text.lengths, visual.mean,
        q.stride(0), q.stride(1), out.stride(0), out.stride(1),
        N, M, plan.tiles(block)[0], plan.text_size, plan.text_splits, plan.splits, Hq, G,
        scale_log2, D=d, DP=padded(d), SP=slots, SC=min(slots, 4096 // width), BLOCK_D=width,
        PDL=early, num_warps=4, **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
    return out


def _arguments(
    q: Tensor, visual: Narrow, text: Text, config: Config, early: bool
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[int, ...], dict[str, Any]]:
    """What both kernels take: tensors, descriptors, strides, and compile-time options; basis
    products in float32 where types mix."""
    d, G, k = q.shape[-1], q.shape[1] // text.keys.shape[1], visual.keys.shape[-1]
    basis, keys, values = visual.basis, visual.keys, visual.values
    mixed = basis is not None and (basis.dtype != q.dtype or q.dtype == torch.float32)
    first, second = _key_blocks(k)
    tensors = (
        q, keys, values, visual.lengths, basis, visual.index, text.keys, text.values, text.lengths,
    )  # fmt: skip
    strides = (
        *q.stride()[:2], *keys.stride()[:3], *values.stride()[:3],
        *(basis.stride() if basis is not None else (0,) * 4),
        *text.keys.stride()[:3], *text.values.stride()[:3],
    )  # fmt: skip
    options = {
        "GP": max(8, triton.next_power_of_2(G)), "D": d, "DP": padded(d),
        "K": k, "KP1": first, "KP2": second,
        "TT": TYPES[q.dtype], "PT": tl.float32 if mixed else TYPES[q.dtype],
        "KPREC": "tf32x3" if mixed and q.dtype != torch.float32 else "ieee",
        "BLOCK_N": config.block_n, "BLOCK_M": config.block_m, "STAGES": config.stages,
        "TEXT_STAGES": 2, "PDL": early, "WIDEN": device_facts(q.device)[0] == 0,
        "num_warps": config.warps, **({"launch_pdl": True} if early else {}),
    }  # fmt: skip
    if config.regs is not None:
        options["maxnreg"] = config.regs
    descriptors = _descriptors((keys, values), config.block_n) if config.tma else (None, None)
    return tensors, descriptors, strides, options
