"""The layout of one call of decode attention: configurations by architecture and cache, splits.

There is no autotuning at run time and no state: architecture and widths select a configuration, and
shapes and the multiprocessor count give the number of splits, which never depends on lengths.
Everywhere `work` is what a call reads, `sms` the multiprocessors, `config` how it is read, and
`splits` the number of parts of the visual tokens.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

import torch
from torch import Tensor

MERGE_TILES = 0.01  # what a split costs the merge, in tiles of the split kernel
LARGE = (90, 100, 103)  # architectures with more than 200 KB of shared memory a program
SM_BYTES_US = 4.6e6 / 132  # bytes a us that each multiprocessor of an H200 can read
CROWDED = 1.13  # time where multiprocessors take programs unevenly, against the model
APART, APART_US = 1.03, 2.0  # text splits beside visual ones: us against the model, and us added
PROGRAMS = 5  # most programs a multiprocessor with splits that read the text too
RAGGED = 4096  # most tokens of a row that one program reads alone, where rows may be ragged
SHORT = 1024  # rows up to which raggedness does no harm
INTERPRETED = 4  # "multiprocessors" of the interpreter: enough for several splits in the tests


class Single(NamedTuple):
    """Splits of a single tile, for small batches."""

    tokens: int = 128
    warps: int = 2  # four where each program has a multiprocessor to itself
    per_sm: int = 4  # programs a multiprocessor; with more the plan decides


class Joined(NamedTuple):
    """Costs of a call whose splits read the text too, as fitted to an H200's times."""

    saturate: float = 2.0  # programs a multiprocessor that stream at its full share of bandwidth
    overhead: float = 1.0  # tiles that starting and ending a program are worth
    partials: float = 1.0  # us to write and merge results, for a program a multiprocessor
    least: float = 0.9  # fewest heads a multiprocessor


@dataclass(frozen=True)
class Config:
    """The configuration of one architecture for one cache width. Where it is `joined`, `tail`,
    `partials`, `single` and `regs` are unused."""

    block_n: int = 64  # visual tokens a tile
    warps: int = 4
    stages: int = 3
    per_sm: int = 3  # programs that fill one multiprocessor
    block_m: int = 32  # text tokens a tile
    tma: bool = False  # load whole tiles with the bulk copy engine
    interleaved: bool = True  # a split takes every n-th tile, so that rows spread over all splits
    tail: float = 0.8  # the least share of a full wave's time that a partly filled one takes
    partials: float = 2.0  # tiles that a wave's partial results are worth, written and merged
    single: Single | None = Single()
    regs: int | None = None  # the most a thread may take, so that per_sm programs do fit
    joined: Joined | None = None  # every split reads text too, so a single one writes the output
    large: tuple["Config", ...] = ()  # joined ones, for batches that fill the GPU


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


# for batches that fill the GPU: measured on an H200
BF16 = (Config(64, 2, 3, 4, block_m=64, tma=True, joined=Joined(1.9, 0.3, 3.8)),)
DENSE = (Config(64, 2, 4, 2, tma=True, joined=Joined(1.2, 0.3, 4.6)),)

# (architecture, head width d, kept Key channels k, bytes of a token's Keys and Values), measured on
# an H200 (commit 690bf34 has what they measured)
CONFIGS: Final[dict[tuple[int, int, int, int], Config]] = {
    (90, 128, 16, 288): Config(128, warps=4, stages=2, per_sm=3, tma=True, large=BF16),
    (90, 128, 32, 320): Config(128, warps=4, stages=2, per_sm=3, tma=True, large=BF16),
    (90, 128, 48, 352): Config(  # 186 registers without
        128, warps=4, stages=2, per_sm=3, regs=168, large=BF16
    ),
    (90, 128, 64, 384): Config(128, warps=4, stages=2, per_sm=3, tma=True, large=BF16),
    (90, 128, 128, 512): Config(64, 4, 2, per_sm=3, tail=0.9, partials=1, large=DENSE),
}


@lru_cache(maxsize=256)
def configuration(arch: int, d: int, k: int, row_bytes: int) -> Config:
    """The row of `CONFIGS`; else one sized from a token's bytes: below sm_90, and on sm_120 with
    its ~100 KB of shared memory, two stages of at most 16 KB."""
    if (arch, d, k, row_bytes) in CONFIGS:
        return CONFIGS[arch, d, k, row_bytes]
    large = arch in LARGE
    tile_bytes, stages = (24 << 10, 3) if large else (16 << 10, 2)
    block = max(16, min(256, 1 << ((tile_bytes // row_bytes).bit_length() - 1)))
    return Config(block_n=block, warps=4, stages=stages, per_sm=3 if large else 2, block_m=16)


class Work(NamedTuple):
    """The size of one call: B * Hkv groups of N visual tokens and M text slots, in bytes a token.

    ragged: rows may be shorter than N.
    """

    groups: int
    N: int
    M: int
    row_bytes: int
    text_bytes: int
    d: int = 128
    k: int = 32
    ragged: bool = False


def one_tile(work: Work, arch: int, sms: int, config: Config) -> tuple[Config, int | None]:
    """For small batches on sm_90, a configuration and its visual splits, each a single tile that is
    loaded before the query is ready; `config` and None where this does not apply."""
    if arch != 90 or config.single is None:
        return config, None
    tokens, warps, per_sm = config.single
    splits = -(-work.N // tokens)
    programs = work.groups * (splits + 1)
    if programs > per_sm * sms:
        return config, None
    return Config(tokens, warps if programs > sms else 4, stages=2), splits


def _rounded(tokens: int, block: int) -> int:
    return -(-tokens // block) * block


def layout(
    work: Work, facts: tuple[int, int], config: Config | None = None, splits: int | None = None
) -> tuple[Config, Plan]:
    """The configuration and splits of a call, those that are not given by table and model of time;
    facts: of `device_facts`."""
    arch, sms = facts
    wide = work.text_bytes == 8 * work.d  # float32
    if config is None:
        config = configuration(arch, work.d, work.k, work.row_bytes)
        if splits is None:
            config, splits = one_tile(work, arch, sms, config)
            if splits is None and config.large and not wide:
                config, splits = joined_splits(work, sms, config)
    if wide and arch:
        config = replace(config, block_n=32 if arch in LARGE else 16, block_m=16, stages=2)
    if splits is None:
        splits = plan_splits(work, sms, config)
    return config, plan_of(work, splits, config)


def plan_of(work: Work, wanted: int, config: Config) -> Plan:
    """Visual splits of whole tiles, and text splits of about as many bytes.

    Of `wanted` visual ones rounding to tiles may leave fewer.
    """
    size = _rounded(-(-work.N // wanted), config.block_n)
    splits = -(-work.N // size)
    if config.joined:
        text_size = max(_rounded(-(-work.M // splits), config.block_m), config.block_m)
        return Plan(0, text_size, splits, size, config.interleaved)
    text_size = _rounded(size * work.row_bytes // work.text_bytes, config.block_m)
    text_size = max(text_size, 2 * config.block_m)
    return Plan(-(-work.M // text_size), text_size, splits, size, config.interleaved)


def split_tiles(work: Work, sms: int, config: Config, splits: int) -> float:
    """Modelled time, in tiles as one program reads them, of visual splits beside text splits.

    Full waves of programs take their largest share. The last wave takes at least the
    configuration's tail, since a few programs do not stream at full speed. A group's text counts as
    half a split, or as more by its bytes.
    """
    slots, tiles = sms * config.per_sm, -(-work.N // config.block_n)
    size = -(-tiles // splits) * config.block_n
    text = max(0.5, work.M * work.text_bytes / (size * work.row_bytes)) if work.M else 0.0
    waves, last = divmod(work.groups * (splits + text), slots)
    filled = waves + (max(last / slots, config.tail) if last else 0.0)
    partials = config.partials * work.groups * splits / slots
    return -(-tiles // splits) * filled + partials + MERGE_TILES * splits


@lru_cache(maxsize=4096)
def plan_splits(work: Work, sms: int, config: Config) -> int:
    """The count of visual splits of least `split_tiles`.

    Over 85 measured shapes its choice is 2.8 % from the best, most where a layer takes 10 us.
    """
    counts = _counts(work, config, 5 * sms * config.per_sm)
    return min(counts, key=lambda splits: split_tiles(work, sms, config, splits))


def joined_us(work: Work, sms: int, config: Config, splits: int) -> float:
    """Modelled microseconds of splits that read the text too, on an H200.

    The busiest multiprocessor decides: `ceil` of the programs over multiprocessors, each of which
    reads its tiles and its text. A multiprocessor that is full, or that has one free slot, takes
    further programs unevenly.
    """
    fit, tile_us = config.joined or Joined(), config.block_n * work.row_bytes / SM_BYTES_US
    plan = plan_of(work, splits, config)
    tiles = -(-work.N // config.block_n)
    text = min(plan.text_size, work.M) * work.text_bytes / (config.block_n * work.row_bytes)
    longest = max(-(-tiles // splits), tiles // splits + text) + fit.overhead
    programs = work.groups * splits
    full, rest = divmod(programs, config.per_sm * sms)
    last = -(-rest // sms)
    uneven = 0 < last < config.per_sm if full else 3 <= last == config.per_sm - 1
    crowd = CROWDED if uneven else 1.0
    busy = full * config.per_sm + (max(last, fit.saturate) if last else 0)
    merge = fit.partials * programs / sms if splits > 1 else 0.0
    return longest * busy * crowd * tile_us + merge


@lru_cache(maxsize=4096)
def joined_splits(work: Work, sms: int, config: Config) -> tuple[Config, int | None]:
    """Of least modelled time: one of `config.large` and its visual splits, or `config` and None.

    Where long rows may be ragged, two splits at least, of 4,096 tokens at most: the longest row
    would be streamed by one program while all others have ended.
    Over 350 measured shapes its choice is .8 to 6.4 % from the best of both kinds, by the row.
    """
    apart = split_tiles(work, sms, config, plan_splits(work, sms, config)) * config.per_sm
    apart_us = APART * apart * config.block_n * work.row_bytes / SM_BYTES_US + APART_US
    least = max(2, -(-work.N // RAGGED)) if work.ragged and work.N > SHORT else 1
    found = [
        (joined_us(work, sms, each, splits), each, splits)
        for each in config.large
        for splits in _counts(work, each, PROGRAMS * sms, least)
        if each.joined and work.groups >= each.joined.least * sms
    ]
    us, each, splits = min(found, key=lambda row: row[0], default=(apart_us, config, 0))
    return (each, splits) if us < apart_us else (config, None)


def _counts(work: Work, config: Config, programs: int, least: int = 1) -> range:
    """Numbers of visual splits, of a tile each at least, that make at most so many programs.

    least: the first of them, however many programs it makes.
    """
    tiles = -(-work.N // config.block_n)
    return range(least, min(tiles, max(least, programs // work.groups)) + 1)


def power_of_two(number: int) -> int:
    """The next one, without the time that Triton's own takes."""
    return 1 << max(number - 1, 0).bit_length()


def padded(width: int) -> int:
    """Next power of two, at least a tensor core's 16."""
    return max(16, power_of_two(width))


def unit(tensor: Tensor) -> Tensor:
    """The tensor itself when its last stride is one, else a copy."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


@lru_cache(maxsize=16)
def device_facts(device: torch.device) -> tuple[int, int]:
    """(architecture as 90, multiprocessors); architecture 0 is the interpreter."""
    if device.type != "cuda":
        return 0, INTERPRETED
    found = torch.cuda.get_device_properties(device)
    return 10 * found.major + found.minor, found.multi_processor_count
