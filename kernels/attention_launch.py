"""Launches the decode attention of `kernels.attention`: arguments, scratch, and the merge.

The layout of a call comes from `kernels.plan`; lengths stay on the device and the scratch is
allocated per call. So a call can be captured in a CUDA graph.
"""

from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from .attention import Compiled, joined_kernel, split_kernel
from .packed_attention_launch import LOG2_E, TYPES, Partials, in_parts, merge, partials_of, refused
from .plan import Config, Work, device_facts, layout, padded, power_of_two, unit
from .reference import Narrow, Text, Unsupported


def attend_triton(
    q: Tensor,
    visual: Narrow | None,
    text: Text,
    scale: float,
    config: Config | None = None,
    splits: int | None = None,
) -> Tensor:
    """Decode attention, T = 1, as `kernels.reference.attend_reference`.

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
        Unsupported: for types, heads or channels that no kernel reads.
    """
    reason = refused(q, [*text[:2], *(visual or ())[:2]])
    if visual is not None and not visual.keys.shape[-1]:
        reason = "no channel left"
    if reason:
        raise Unsupported(reason)
    if visual is None or visual.tokens == 0:  # text alone is a dense cache
        visual = Narrow(text.keys, text.values, text.lengths, fresh=True)
        text = Text(text.keys[:, :, :0], text.values[:, :, :0])
    (B, Hq, _, d), (Hkv, M) = q.shape, text.keys.shape[1:3]
    N, k, size, G = visual.tokens, visual.keys.shape[-1], q.element_size(), Hq // Hkv
    work = Work(B * Hkv, N, M, (k + d) * size, 2 * d * size, d, k, visual.lengths is not None)
    arch, sms = device_facts(q.device)
    config, plan = layout(work, (arch, sms), config, splits)
    ready = visual._replace(
        keys=unit(visual.keys),
        values=unit(visual.values),
        index=None if visual.index is None else visual.index.contiguous(),
        mean=None if visual.mean is None else visual.mean.contiguous(),
    )
    copied = any(a is not b for a, b in zip(visual, ready, strict=True))
    early = arch >= 90 and not (visual.fresh or copied)
    q, visual = unit(q), ready
    text = text._replace(keys=unit(text.keys), values=unit(text.values))
    keys, values, basis, block = visual.keys, visual.values, visual.basis, config.block_n
    s_basis = (0,) * 4 if basis is None else basis.stride()
    mixed = basis is not None and (basis.dtype != q.dtype or q.dtype == torch.float32)
    out = torch.empty((B, Hq, 1, d), dtype=q.dtype, device=q.device)
    single = bool(config.joined) and plan.splits == 1
    first = max(16, 1 << (k.bit_length() - 1))  # of two powers of two: 48 costs 32 + 16, not 64
    partials: Partials = (out, None, None) if single else partials_of(out, plan.splits)
    compiled = Compiled(
        GP=max(8, power_of_two(G)), D=d, DP=padded(d), K=k, KP1=first,
        KP2=padded(k - first) if k > first else 0, TT=TYPES[q.dtype],
        PT=tl.float32 if mixed else TYPES[q.dtype],
        PREC="tf32x3" if mixed and q.dtype != torch.float32 else "ieee",
        BLOCK_N=block, BLOCK_M=config.block_m, STAGES=config.stages,
        ONE_TILE=not config.joined and plan.visual_size == block,
        SINGLE=single, PDL=early, WIDEN=arch == 0,
    )  # fmt: skip
    options: dict[str, Any] = {"launch_pdl": True} if early else {}
    limit = {} if config.regs is None else {"maxnreg": config.regs}
    scale_log2, tiles = scale * LOG2_E, plan.tiles(block)
    kernel = joined_kernel if config.joined else split_kernel
    kernel[plan.splits, B * Hkv](
        q, visual[:6], tuple(text), partials,
        *(_descriptors((keys, values), block) if config.tma else (None, None)), q.stride()[:2],
        (*keys.stride()[:3], *values.stride()[:3], *s_basis),
        (*text.keys.stride()[:3], *text.values.stride()[:3]),
        N, M, *tiles, plan.text_size, plan.text_splits, Hkv, G, scale_log2, compiled,
        num_warps=config.warps, **limit, **options,
    )  # fmt: skip
    if config.joined:  # visual splits that read the text too; a single one writes the output
        if not single:
            merge(q, out, partials, early)
        return out
    lengths = visual.lengths, text.lengths, visual.mean
    sizes = N, M, tiles[0], plan.text_size, plan.text_splits
    merge(q, out, partials, early, (lengths, sizes, G, scale_log2))
    return out


def attend_rows(q: Tensor, visual: Narrow | None, text: Text, scale: float) -> Tensor:
    """Attention of several new tokens: each is a row of its own, with a text that ends at it.

    Rows of a sample read the same tokens, which then lie in the cache; tables are repeated.
    `Unsupported` for several samples with visual tokens, and as `attend_triton`.
    """
    if len(q) > 1 and visual is not None:
        raise Unsupported("several new tokens of samples without planes")
    return in_parts(
        q, text.keys.shape[1], lambda some, ahead: _rows(some, visual, text, scale, ahead)
    )


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
