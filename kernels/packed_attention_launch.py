"""Launches decode attention over planes of 2-bit digits (`kernels.packed_attention`), and its
merge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from .merge import merge_kernel
from .packed_attention import Compiled, digits_kernel
from .plan import device_facts, padded, power_of_two, unit
from .planes import TILE, Planes
from .reference import WIDEST_HEAD, Packed, Text, Unsupported

LOG2_E = 1.4426950408889634
TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
MOST_ROWS: Final = 4096  # new tokens that one launch attends to, over all samples
MOST_PROGRAMS: Final = 65535  # rows times Key heads of a launch
CROWD, ROOM = 5, 8  # warps a multiprocessor: see `plan_planes`
SLICED: Final = 256  # query heads up to which several programs merge one, each a slice
MERGED: Final = 8  # instructions that a split costs the merge
WIDEST: Final = 32  # most granules of Keys or of Values that a head may have
FEW: Final = 3  # fewest granules that a kernel has registers for: 24 bytes a token and head
Partials = tuple[Tensor, Tensor | None, Tensor | None]  # sums, log2 maxima and masses of splits


@dataclass(frozen=True)
class PlanesConfig:
    """Reading of planes: tiles of 128 tokens at once; `apart`: text has splits of its own."""

    tiles: int = 2
    apart: bool = False
    warps: int = 1
    stages: int = 2
    block_m: int = 32


class PlanesPlan(NamedTuple):
    """Splits a head: `spread` of them read visual tokens; the last ones text_size text tokens."""

    splits: int
    spread: int
    text_size: int


class PlanesWork(NamedTuple):
    """One call: rows of B * Hkv heads, N visual tokens and M text slots; granules: of K and V."""

    rows: int
    N: int
    M: int
    granules: int


@lru_cache(maxsize=4096)
def plan_planes(
    work: PlanesWork, sms: int, config: PlanesConfig, spread: int | None = None
) -> PlanesPlan:
    """Choose the visual splits of least modelled time; text then fills its splits evenly.

    A program's time is its instructions; up to CROWD warps a multiprocessor run side by side as
    fast as one, and ROOM have registers. Fitted to an H200's times. spread: visual splits, where
    they are given.
    """
    groups = -(-work.N // (TILE * config.tiles))
    if spread is None:
        group = config.tiles * (175 + 63 * work.granules)
        fixed = 2300 + 370 * work.granules

        def cost(count: int) -> float:
            crowd = config.warps * work.rows * count / (CROWD * sms)
            return (-(-groups // count) * group + fixed) * max(1.0, crowd) + MERGED * count

        most = max(1, min(groups, ROOM * sms // (config.warps * work.rows)))
        # Powers of two, which share tokens evenly: 10 to 25 % faster than their neighbours.
        few = [1 << power for power in range(most.bit_length())]
        spread = -(-groups // -(-groups // most)) if config.apart else min(few, key=cost)
    block = config.block_m
    if config.apart:
        text_size = block * (1 if 8 * block >= work.M else 2)
        return PlanesPlan(spread + -(-work.M // text_size), spread, text_size)
    return PlanesPlan(spread, spread, max(block, -(-work.M // (spread * block)) * block))


@lru_cache(maxsize=256)
def slots_for(widest: int, beside: int) -> int:
    """Granules that a kernel has registers for: 3, or a power of two from 4 to 32, where so many
    are the `widest` head's of the Keys or the Values, and `beside` those of the other side.

    The sizes for Keys and for Values are at most a factor of two apart. Each size is compiled
    separately; that takes seconds, and the first prompt that needs it waits.
    """
    if max(widest, beside) <= FEW:
        return FEW
    return max(FEW + 1, power_of_two(widest), power_of_two(beside) // 2)


def blocks(slots: int) -> tuple[int, int]:
    """The granules in two blocks, of powers of two: heads with few granules skip the second."""
    first = 1 << ((slots - 1).bit_length() - 1)
    return first, slots - first


def refused(q: Tensor, stored: Sequence[Tensor]) -> str | None:
    """Why no kernel reads these numbers [B, Hkv, tokens, ...] for q; None when one can."""
    if q.shape[1] // stored[0].shape[1] > 64:
        return "more than 64 query heads a key head"
    if q.shape[-1] > WIDEST_HEAD:
        return f"head width above {WIDEST_HEAD}"
    if any(t.dtype not in TYPES for t in [q, *stored]):
        return "a type the kernel does not read"
    if any(t.dtype != q.dtype for t in stored):
        return "cache and query of different types"
    return None


def attend_packed(
    q: Tensor,
    visual: Packed,
    text: Text,
    scale: float,
    config: PlanesConfig | None = None,
    splits: int | None = None,
) -> Tensor:
    """Decode attention over planes and text, as `kernels.reference.attend_reference`.

    Each new token is a row of its own, with a text that ends at it; rows of a sample read the same
    words and bases, which then lie in the cache. A cache that is `fresh`, or has to be copied
    first, is never read before the kernel ahead has ended.

    Args:
        q: [B, Hq, T, d].
        visual: the compressed tokens, at least one.
        text: the others.
        scale: factor of the scores.
        config: overrides the default, for benchmarks and tests.
        splits: number of visual splits; the plan's by default.

    Raises:
        Unsupported: for types, heads or planes that no kernel reads.
    """
    reason = refused(q, text[:2])
    if max(visual.keys.widest, visual.values.widest) > WIDEST:
        reason = "too many bits a token for planes"
    if q.dtype == torch.float32:  # its sums of digits would err by up to 3e-4
        reason = "channels of a few bits under float32 queries"
    if reason:
        raise Unsupported(reason)
    q, text = unit(q), text._replace(keys=unit(text.keys), values=unit(text.values))
    return in_parts(
        q,
        text.keys.shape[1],
        lambda some, ahead: _launch(some, visual, text, scale, config, splits, ahead),
    )


def _launch(
    q: Tensor,
    visual: Packed,
    text: Text,
    scale: float,
    config: PlanesConfig | None,
    splits: int | None,
    ahead: int,
) -> Tensor:
    """Attention of new tokens [B, Hq, T, d], which have `ahead` tokens of the text behind them, in
    one launch and its merge."""
    B, Hq, T, d = q.shape
    Hkv, M, N = text.keys.shape[1], text.keys.shape[2], visual.tokens
    arch, sms = device_facts(q.device)
    visual, copied = _contiguous(visual)
    keys, values = visual.keys, visual.values
    key_slots, value_slots = (
        slots_for(one.widest, other.widest) for one, other in ((keys, values), (values, keys))
    )
    granules, slots = keys.widest + values.widest, key_slots + value_slots
    work = PlanesWork(B * T * Hkv, N, M, granules)
    if config is None:  # text apart for few rows; warps by the registers that granules take
        apart = work.rows <= sms // 8
        warps = 4 if slots > 16 else 2 if apart or slots > 8 else 1
        config = PlanesConfig(apart=apart, warps=warps)
    plan = plan_planes(work, sms, config, splits)
    splits = plan.splits
    early = arch >= 90 and not (visual.fresh or copied)
    extra = {"launch_pdl": True} if early else {}
    out = torch.empty((B * T, Hq, 1, d), dtype=q.dtype, device=q.device)
    partials: Partials = (out, None, None) if splits == 1 else partials_of(out, splits)
    G = Hq // Hkv
    compiled = Compiled(
        max(8, power_of_two(G)), d, padded(d), *blocks(key_slots), *blocks(value_slots),
        config.tiles, TYPES[q.dtype], config.block_m, config.stages, splits == 1, early, arch == 0,
    )  # fmt: skip
    digits_kernel[splits, B * T * Hkv](
        q, visual.lengths, _tensors(keys), _tensors(values), visual.mean, visual.value_mean,
        tuple(text), partials, (*q.stride()[:2], q.stride(2) if T > 1 else 0),
        (*text.keys.stride()[:3], *text.values.stride()[:3]),
        N, M, plan.spread, plan.text_size, Hkv, G, T, ahead, scale * LOG2_E, compiled,
        num_warps=config.warps, **extra,
    )  # fmt: skip
    if splits > 1:
        merge(out, out, partials, early)
    return out.view(B, T, Hq, d).transpose(1, 2)


def _contiguous(visual: Packed) -> tuple[Packed, bool]:
    """The visual cache with every table contiguous, and whether that took a copy."""
    parts = (visual.mean, visual.value_mean, *visual.keys, *visual.values)
    if all(part.is_contiguous() for part in parts if isinstance(part, Tensor)):
        return visual, False

    def whole(given: Any) -> Any:
        return given.contiguous() if isinstance(given, Tensor) else given

    found = visual._replace(
        mean=whole(visual.mean),
        value_mean=whole(visual.value_mean),
        keys=Planes(*map(whole, visual.keys)),
        values=Planes(*map(whole, visual.values)),
    )
    return found, True


def _tensors(planes: Planes) -> tuple[Tensor, ...]:
    basis = planes.basis.view(torch.int16)  # two channels a word
    return planes.data, planes.counts, planes.offsets, basis, planes.steps, planes.starts


def partials_of(out: Tensor, splits: int) -> Partials:
    """Scratch for `splits` a query head: their sums, log2 maxima and masses."""
    rows, width = out.shape[0] * out.shape[1] * splits, out.shape[-1]
    step = -(-rows // 4) * 4  # to 16 bytes: Triton compiles a kernel again for other addresses
    scratch = torch.empty(rows * width + 2 * step, dtype=torch.float32, device=out.device)
    return scratch[: rows * width], scratch[rows * width :][:rows], scratch[-step:][:rows]


def merge(
    q: Tensor, out: Tensor, partials: Partials, early: bool, apart: tuple[Any, ...] | None = None
) -> None:
    """Fold splits into the output, one program a query head and slice of the output.

    Args:
        q: [B, Hq, 1, d].
        out: the same.
        partials: of `partials_of`.
        early: whether it may start before the splits have ended.
        apart: what `merge_kernel` has to know where text has splits of its own: lengths, mean,
            sizes and the scale. None where all splits are live, and folded by maxima and masses.
    """
    B, Hq, _, d = q.shape
    splits = partials[0].numel() // (B * Hq * d)
    block = min(padded(d), 32) if B * Hq <= SLICED else padded(d)
    width = max(2, power_of_two(splits))
    lengths, sizes, G, scale = apart or ((None,) * 3, (1, 0, 0, 32, 0), 1, 1.0)
    merge_kernel[B * Hq, -(-d // block)](
        *partials, out, q, *lengths, q.stride(0), q.stride(1), out.stride(0), out.stride(1),
        *sizes, splits, Hq, G, scale,
        D=d, DP=padded(d), SP=width, SC=min(width, 4096 // block), BLOCK_D=block,
        PDL=early, num_warps=4, **({"launch_pdl": True} if early else {}),
    )  # fmt: skip


def in_parts(q: Tensor, heads: int, launch: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Attention of new tokens [B, Hq, T, d], as few launches as hold them; launch: of some, and of
    how many tokens are behind them."""
    B, _, T, _ = q.shape
    step = max(1, min(MOST_ROWS // B, MOST_PROGRAMS // (B * heads)))
    found = [launch(q[:, :, i : i + step], max(0, T - i - step)) for i in range(0, T, step)]
    return found[0] if len(found) == 1 else torch.cat(found, 2)
