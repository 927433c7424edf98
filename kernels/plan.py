"""How one call of decode attention is laid out: configurations by architecture and cache, splits.

No autotuning at run time and no state: a configuration is looked up by architecture and widths, and
the number of splits follows from shapes and the multiprocessor count alone, never from lengths.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import torch

MERGE_TILES = 0.01  # what a split costs the merge, in tiles of the split kernel
LARGE = (90, 100, 103)  # architectures with more than 200 KB of shared memory a program
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
    most registers a thread may take, so that per_sm programs do fit; joined: every split reads a
    share of the text too, so that a single one writes the output itself; early: the first tile's
    loads leave before the query is ready.
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
    joined: bool = False
    early: bool = True


@dataclass(frozen=True)
class Plan:
    """Token ranges of one launch: split i < text_splits reads text, the rest visual tokens.

    Without text splits, every visual one reads `text_size` tokens of the text as well.
    """

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


def one_tile(config: Config, arch: int, groups: int, N: int, sms: int) -> tuple[Config, int | None]:
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
    return plan_of(N, M, min(counts, key=cost), config, row_bytes, text_bytes)


def plan_of(N: int, M: int, wanted: int, config: Config, row_bytes: int, text_bytes: int) -> Plan:
    """`wanted` visual splits of whole tiles, and text splits of about as many bytes."""
    size = _rounded(-(-N // wanted), config.block_n)
    splits = -(-N // size)
    if config.joined:
        text_size = max(_rounded(-(-M // splits), config.block_m), config.block_m)
        return Plan(0, text_size, splits, size, config.interleaved)
    text_size = max(_rounded(size * row_bytes // text_bytes, config.block_m), 2 * config.block_m)
    return Plan(-(-M // text_size), text_size, splits, size, config.interleaved)


class Work(NamedTuple):
    """What one call reads: B * Hkv groups of N visual tokens and M text slots, in bytes a token."""

    groups: int
    N: int
    M: int
    d: int
    k: int
    row_bytes: int
    text_bytes: int


def layout(
    work: Work, arch: int, sms: int, config: Config | None = None, splits: int | None = None
) -> tuple[Config, Plan]:
    """The configuration and splits of a call; `config` and (visual) `splits` override them."""
    if config is None:
        config = configuration(arch, work.d, work.k, work.row_bytes)
        if splits is None:
            config, splits = one_tile(config, arch, work.groups, work.N, sms)
    if work.text_bytes == 8 * work.d and arch:  # float32
        config = replace(config, block_n=32 if arch in LARGE else 16, block_m=16, stages=2)
    if splits is not None:
        return config, plan_of(work.N, work.M, splits, config, work.row_bytes, work.text_bytes)
    groups, N, M, _, _, row_bytes, text_bytes = work
    return config, plan_splits(groups, N, M, sms, config, row_bytes, text_bytes)


@lru_cache(maxsize=16)
def device_facts(device: torch.device) -> tuple[int, int]:
    """(architecture as 90, multiprocessors); architecture 0 is the interpreter."""
    if device.type != "cuda":
        return 0, INTERPRETED
    found = torch.cuda.get_device_properties(device)
    return 10 * found.major + found.minor, found.multi_processor_count
