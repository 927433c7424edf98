"""Launches the decode attention of `kernels.attention`: fixed configurations, splits, scratch.

No autotuning at run time and no state: a configuration is looked up by architecture and widths,
the number of splits follows from shapes and the multiprocessor count alone (never from lengths,
which stay on the device), and the scratch is allocated per call. So a call can be captured in a
CUDA graph.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from .attention import split_kernel
from .merge import merge_kernel
from .reference import Text, Visual

LOG2_E = 1.4426950408889634
QUANTISED = (torch.float8_e4m3fn, torch.int8)
TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
MERGE_TILES = 0.01  # what a split costs the merge, in tiles of the split kernel
LARGE = (90, 100, 103)  # architectures with more than 200 KB of shared memory a program
SLICED = 256  # query heads up to which several programs merge one, each a slice of the output
SLICED_RANK = 16  # Value ranks up to which they merge Values that are rotated up, at any batch
INTERPRETED = 4  # "multiprocessors" of the interpreter: enough for several splits in the tests


class Single(NamedTuple):
    """Splits of a single tile, for small batches: its tokens, its warps, programs a multiprocessor.

    With more programs than per_sm the plan decides. Where each has a multiprocessor to itself, four
    warps.
    """

    tokens: int = 128
    warps: int = 2
    per_sm: int = 4


@dataclass(frozen=True)
class Config:
    """How one architecture reads one cache width.

    block_n: visual tokens a tile; block_m: text tokens a tile; per_sm: programs that fill one
    multiprocessor; tma: load whole tiles with the bulk copy engine; interleaved: a split
    takes every n-th tile, so that rows of any length spread over all splits; tail: the least share
    of a whole wave's time that a partly filled one takes; partials: tiles that a wave's partial
    results are worth, written and merged; single: splits of one tile at small batches; regs: the
    most registers a thread may take, so that per_sm programs do fit.
    """

    block_n: int = 64
    warps: int = 4
    stages: int = 3
    per_sm: int = 3
    block_m: int = 32
    tma: bool = False
    interleaved: bool = True
    tail: float = 0.8
    partials: float = 2.0
    single: Single | None = Single()
    regs: int | None = None


@dataclass(frozen=True)
class Plan:
    """Token ranges of one launch: split i < text_splits reads text, the rest visual tokens."""

    text_splits: int
    text_size: int
    visual_splits: int
    visual_size: int
    interleaved: bool = False

    @property
    def splits(self) -> int:
        return self.text_splits + self.visual_splits

    def tiles(self, block: int) -> tuple[int, int, int]:
        """(first token of split 1, step between a split's tiles, span of a split) in tokens."""
        if self.interleaved:
            return block, self.visual_splits * block, 1 << 30
        return self.visual_size, block, self.visual_size


# (architecture, head width d, kept Key channels k, bytes of a token's Keys and Values), measured on
# an H200: by `python -m kernels.bench tune` and `splits` (assets/results/kernels-tune.json), those
# of 288, 352 and 384 bytes in an earlier sweep
CONFIGS: dict[tuple[int, int, int, int], Config] = {
    (90, 128, 16, 288): Config(block_n=128, warps=4, stages=2, per_sm=3, tma=True),
    (90, 128, 32, 320): Config(block_n=128, warps=4, stages=2, per_sm=3, tma=True),
    (90, 128, 48, 352): Config(block_n=128, warps=4, stages=2, per_sm=3, regs=168),  # 186 without
    (90, 128, 64, 384): Config(block_n=128, warps=4, stages=2, per_sm=3, tma=True),
    (90, 128, 128, 512): Config(64, warps=4, stages=2, per_sm=3, tail=0.9, partials=1),
    (90, 128, 32, 128): Config(
        128, 1, 4, per_sm=4, tma=True, tail=0.9, partials=12, single=Single(256, 4, 2)
    ),
    (90, 128, 16, 64): Config(128, 1, 4, per_sm=4, tail=0.8, partials=12, single=Single(256, 4, 2)),
    (90, 128, 32, 160): Config(  # 8 bits
        64, 1, 3, per_sm=8, tail=0.75, partials=3, single=Single(256, 4)
    ),
    (90, 128, 32, 192): Config(64, 1, 3, per_sm=8, tail=0.75, partials=3, single=Single(256, 4)),
    (90, 128, 128, 256): Config(block_n=128, warps=2, stages=3, per_sm=3, tma=True),
}


@lru_cache(maxsize=256)
def configuration(arch: int, d: int, k: int, row_bytes: int) -> Config:
    """The table's row; else one sized from a token's bytes.

    Below sm_90, and on sm_120 with its ~100 KB of shared memory, two stages of at most 16 KB.
    """
    if (arch, d, k, row_bytes) in CONFIGS:
        return CONFIGS[arch, d, k, row_bytes]
    large = arch in LARGE
    tile_bytes, stages = (24 << 10, 3) if large else (16 << 10, 2)
    block = max(16, min(256, 1 << ((tile_bytes // row_bytes).bit_length() - 1)))
    return Config(block_n=block, warps=4, stages=stages, per_sm=3 if large else 2, block_m=16)


def _one_tile(
    config: Config, arch: int, groups: int, N: int, sms: int
) -> tuple[Config, int | None]:
    """For small batches on sm_90: every split a single tile, loaded before the query is ready."""
    if arch != 90 or config.single is None:
        return config, None
    tokens, warps, per_sm = config.single
    splits = -(-N // tokens)
    programs = groups * (splits + 1)
    if programs > per_sm * sms:
        return config, None
    return Config(tokens, warps if programs > sms else 4, stages=2), splits


def _rounded(tokens: int, block: int) -> int:
    return -(-tokens // block) * block


@lru_cache(maxsize=4096)
def plan_splits(
    groups: int, N: int, M: int, sms: int, config: Config, row_bytes: int, text_bytes: int
) -> Plan:
    """The count of splits of least modelled time, for B * Hkv `groups`.

    Time counts in tiles: whole waves of programs take their largest share, the last one at least
    the configuration's tail, since a few programs do not stream at full speed. A group's text takes
    the place of half a split, or more by its bytes. Over 85 measured shapes its choice is 2.8 %
    from the best, most where a layer takes 10 us.
    """
    slots, tiles = sms * config.per_sm, -(-N // config.block_n)

    def cost(splits: int) -> float:
        size = -(-tiles // splits) * config.block_n
        text = max(0.5, M * text_bytes / (size * row_bytes)) if M else 0.0
        waves, last = divmod(groups * (splits + text), slots)
        filled = waves + (max(last / slots, config.tail) if last else 0.0)
        partials = config.partials * groups * splits / slots
        return -(-tiles // splits) * filled + partials + MERGE_TILES * splits

    counts = range(1, max(1, min(tiles, 5 * slots // groups)) + 1)
    return _plan(N, M, min(counts, key=cost), config, row_bytes, text_bytes)


def _plan(N: int, M: int, wanted: int, config: Config, row_bytes: int, text_bytes: int) -> Plan:
    """`wanted` visual splits of whole tiles, and text splits of about as many bytes."""
    size = _rounded(-(-N // wanted), config.block_n)
    text_size = max(_rounded(size * row_bytes // text_bytes, config.block_m), 2 * config.block_m)
    return Plan(-(-M // text_size), text_size, -(-N // size), size, config.interleaved)


@lru_cache(maxsize=16)
def device_facts(device: torch.device) -> tuple[int, int]:
    """(architecture as 90, multiprocessors); architecture 0 is the interpreter."""
    if device.type != "cuda":
        return 0, INTERPRETED
    found = torch.cuda.get_device_properties(device)
    return 10 * found.major + found.minor, found.multi_processor_count


def _padded(width: int) -> int:
    """Next power of two, at least a tensor core's 16."""
    return max(16, triton.next_power_of_2(width))


def _key_blocks(k: int) -> tuple[int, int]:
    """k as two powers of two, so that 48 costs 32 + 16 and not 64: (first, second or 0)."""
    first = max(16, 1 << (k.bit_length() - 1))
    return first, (_padded(k - first) if k > first else 0)


def _unit(tensor: Tensor) -> Tensor:
    """The tensor itself when its last stride is one, else a copy."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _whole(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _compute_type(stored: Tensor, query: Tensor) -> torch.dtype:
    """float16 for 8-bit caches (its conversions are cheap and exact), else the cache's own type."""
    if query.dtype == torch.float32:
        return torch.float32
    return torch.float16 if stored.dtype in QUANTISED else stored.dtype


def supported(q: Tensor, visual: Visual | None, text: Text) -> str | None:
    """Why this call is not for the kernel; None when it is."""
    if q.shape[2] != 1:
        return "more than one query token"
    if q.shape[1] // text.keys.shape[1] > 64:
        return "more than 64 query heads a key head"
    if q.shape[-1] > 256:
        return "head width above 256"
    stored = [text.keys, text.values] + ([] if visual is None else [visual.keys, visual.values])
    if any(t.dtype not in TYPES and t.dtype not in QUANTISED for t in [q, *stored]):
        return "a type the kernel does not read"
    if any(t.dtype != q.dtype for t in stored if t.dtype in TYPES):
        return "cache and query of different types"
    return None


def attend_triton(
    q: Tensor,
    visual: Visual | None,
    text: Text,
    scale: float,
    config: Config | None = None,
    splits: int | None = None,
    pdl: bool | None = None,
) -> Tensor:
    """Decode attention, T = 1; shapes as `kernels.reference.attend_reference`.

    config, splits (visual) and pdl override the table: for benchmarks and tests. A cache that is
    `fresh`, or has to be copied first, is never read before the kernel ahead has ended.
    Raises ValueError where `supported` names a reason.
    """
    reason = supported(q, visual, text)
    if reason:
        raise ValueError(reason)
    if visual is None or _tokens(visual) == 0:  # text alone is a dense cache
        visual = Visual(text.keys, text.values, text.lengths, fresh=True)
        text = Text(text.keys[:, :, :0], text.values[:, :, :0])
    return _launch(q, visual, text, scale, config, splits, pdl)


def _tokens(visual: Visual) -> int:
    return visual.tokens if visual.keys.dim() == 1 else visual.keys.shape[2]


def _widths(visual: Visual) -> tuple[int, int]:
    """(k, r): for 1-D caches the widest head's, from the bases."""
    if visual.keys.dim() > 1:
        k = visual.keys.shape[-1]
    else:
        k = (visual.basis if visual.basis is not None else visual.index).shape[-1]
    r = visual.values.shape[-1] if visual.values.dim() > 1 else visual.value_basis.shape[-2]
    return k, r


def _paired(cache: Tensor, width: int) -> tuple[Tensor, tl.dtype | None]:
    """An 8-bit cache as int16 with its own type beside it, where two channels share a word."""
    aligned = cache.dim() == 4 and all(stride % 2 == 0 for stride in cache.stride()[:3])
    whole = width % 32 == 0 and cache.data_ptr() % 2 == 0 and cache.numel() > 0
    if cache.dtype not in QUANTISED or not (aligned and whole):
        return cache, None
    kept = tl.int8 if cache.dtype == torch.int8 else tl.float8e4nv
    return cache.view(torch.int16), kept


def _with_top(visual: Visual) -> Visual:
    """Value scales of at most one, relative to a head's largest, so that they fit float16."""
    scale = visual.value_scale
    if scale is None or visual.value_top is not None:
        return visual
    top = scale.float().amax(-1).clamp(min=1e-30)
    return visual._replace(value_scale=scale / top[..., None], value_top=top)


def _descriptors(caches: tuple[Tensor, ...], block: int) -> tuple[TensorDescriptor | None, ...]:
    """Keys and Values as [B * Hkv * N, width] for the bulk copy engine, where they lie that way."""
    found = []
    for cache in caches:
        width = cache.shape[-1]
        aligned = cache.data_ptr() % 16 == 0 and width * cache.element_size() % 16 == 0
        fits = width == _padded(width) and width <= 256
        if cache.dim() == 1 or not (cache.is_contiguous() and aligned and fits):
            return None, None
        flat = cache.view(-1, width)
        found.append(TensorDescriptor(flat, list(flat.shape), [width, 1], [block, width]))
    return tuple(found)


def _strides(tensor: Tensor | None, count: int) -> tuple[int, ...]:
    if tensor is None or tensor.dim() == 1:
        return (0,) * count
    return tensor.stride()[:count]


def _launch(
    q: Tensor,
    visual: Visual,
    text: Text,
    scale: float,
    config: Config | None,
    splits: int | None,
    pdl: bool | None,
) -> Tensor:
    B, Hq, _, d = q.shape
    Hkv, M, N = text.keys.shape[1], text.keys.shape[2], _tokens(visual)
    G = Hq // Hkv
    k, r = _widths(visual)
    arch, sms = device_facts(q.device)
    row_bytes = k * visual.keys.element_size() + r * visual.values.element_size()
    text_bytes = 2 * d * q.element_size()
    if config is None:
        config = configuration(arch, d, k, row_bytes)
        if splits is None:
            config, splits = _one_tile(config, arch, B * Hkv, N, sms)
    if q.dtype == torch.float32 and arch:
        config = replace(config, block_n=32 if arch in LARGE else 16, block_m=16, stages=2)
    if splits is None:
        plan = plan_splits(B * Hkv, N, M, sms, config, row_bytes, text_bytes)
    else:
        plan = _plan(N, M, splits, config, row_bytes, text_bytes)
    q, given = _unit(q), visual
    visual = _with_top(visual)
    visual = visual._replace(
        keys=_unit(visual.keys),
        values=_unit(visual.values),
        index=_whole(visual.index),
        mean=_whole(visual.mean),
        value_mean=_whole(visual.value_mean),
        key_scale=_whole(visual.key_scale),
        value_top=_whole(visual.value_top),
        **{name: _whole(getattr(visual, name)) for name in _TABLES},
    )
    fresh = given.fresh or any(a is not b for a, b in zip(given, visual, strict=True))
    pdl = (arch >= 90 if pdl is None else pdl) and not fresh
    text = text._replace(keys=_unit(text.keys), values=_unit(text.values))
    width = max(d, r) if plan.text_splits or visual.value_basis is None else r
    rows = B * Hq * plan.splits
    scratch = torch.empty(rows * (width + 2), dtype=torch.float32, device=q.device)
    acc, top, total = scratch[: rows * width], scratch[rows * width : -rows], scratch[-rows:]
    basis = visual.basis
    mixed = basis is not None and (basis.dtype != q.dtype or q.dtype == torch.float32)
    key_type = _compute_type(visual.keys, q)
    keys, key_pairs = _paired(visual.keys, k)
    first, second = (_padded(k // 2),) * 2 if key_pairs else _key_blocks(k)
    values, packed = _paired(visual.values, r)
    descriptors = _descriptors((keys, values), config.block_n) if config.tma else (None, None)
    extra: dict[str, Any] = {"launch_pdl": True} if pdl else {}
    if config.regs is not None:
        extra["maxnreg"] = config.regs
    split_kernel[plan.splits, B * Hkv](
        q, keys, values, visual.lengths,
        basis, visual.index, visual.key_scale, visual.value_scale, visual.value_top,
        visual.key_widths, visual.key_offsets, visual.value_widths, visual.value_offsets,
        text.keys, text.values, text.lengths, acc, top, total, *descriptors,
        q.stride(0), q.stride(1),
        *_strides(keys, 3), *_strides(values, 3), *_strides(visual.value_scale, 3),
        *_strides(basis, 4), *_strides(text.keys, 3), *_strides(text.values, 3),
        N, M, *plan.tiles(config.block_n), plan.text_size, plan.text_splits, Hkv, G, scale * LOG2_E,
        GP=max(8, triton.next_power_of_2(G)), D=d, DP=_padded(d), K=k, KP1=first, KP2=second,
        R=r, RP=_padded(r),
        WIDTH=width, KT=TYPES[key_type], VT=TYPES[_compute_type(visual.values, q)],
        TT=TYPES[q.dtype], PT=tl.float32 if mixed else TYPES[q.dtype],
        KPREC="tf32x3" if mixed and q.dtype != torch.float32 else "ieee",
        BLOCK_N=config.block_n, BLOCK_M=config.block_m, STAGES=config.stages, TEXT_STAGES=2,
        ONE_TILE=plan.visual_size == config.block_n,
        KEY_PAIRS=key_pairs, PACKED=packed, ALIGN=visual.width_multiple, PDL=pdl,
        WIDEN=arch == 0, num_warps=config.warps, **extra,
    )  # fmt: skip
    out = torch.empty((B, Hq, 1, d), dtype=q.dtype, device=q.device)
    first = plan.tiles(config.block_n)[0]
    _merge(q, visual, text, out, (acc, top, total), plan, first, width, scale, pdl)
    return out


_TABLES = ("key_widths", "key_offsets", "value_widths", "value_offsets")


def _merge_block(d: int, rank: int | None, heads: int) -> int:
    """Output channels of a merge program, for B * Hq heads; rank: of Values that are rotated up."""
    sliced = heads <= SLICED if rank is None else rank <= SLICED_RANK
    return min(_padded(d), 32) if sliced else _padded(d)


def _merge(
    q: Tensor,
    visual: Visual,
    text: Text,
    out: Tensor,
    partials: tuple[Tensor, Tensor, Tensor],
    plan: Plan,
    first: int,
    width: int,
    scale: float,
    pdl: bool,
) -> None:
    """One program a query head and slice of the output; see `merge_kernel`."""
    B, Hq, _, d = q.shape
    Hkv = text.keys.shape[1]
    padded = max(2, triton.next_power_of_2(plan.splits))
    up, r = visual.value_basis, _widths(visual)[1]
    block = _merge_block(d, None if up is None else r, B * Hq)
    extra = {"launch_pdl": True} if pdl else {}
    merge_kernel[B * Hq, triton.cdiv(d, block)](
        *partials, out, q, visual.lengths, text.lengths,
        visual.mean, up, visual.value_mean,
        q.stride(0), q.stride(1), out.stride(0), out.stride(1), *_strides(up, 4),
        _tokens(visual), text.keys.shape[2], first, plan.text_size,
        plan.text_splits, plan.splits, Hq, Hq // Hkv, scale * LOG2_E,
        D=d, DP=_padded(d), R=r, WIDTH=width,
        SP=padded, SC=min(padded, 4096 // block), BLOCK_D=block,
        BLOCK_R=min(_padded(r), 64), PDL=pdl, num_warps=4, **extra,
    )  # fmt: skip
