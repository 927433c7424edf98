"""Which rows of a prompt are visual, which are text, and which are padding, per sample; and the
remaining rows and mask of a layer after rows were dropped before it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_mask
from torch.nn.functional import pad

TEXT_STEP: Final = 16  # text slots a buffer grows by: the slack is counted, so it stays small
NOWHERE: Final = 2**30  # an index that no query reaches
WINDOW: Final = 32  # W: the most recent prefill queries that weigh the channels (as ThinK)


@dataclass(frozen=True)
class Rows:
    """Row numbers of some tokens: index [B, n] int64, in order, padded with 0; lengths [B].

    ragged: whether samples differ in length. longest: the longest's. Known to the host, so that no
    layer has to ask.
    """

    index: Tensor
    lengths: Tensor
    ragged: bool
    longest: int

    @classmethod
    def where(cls, mask: Tensor, places: Tensor | None = None) -> "Rows":
        """The rows at which `mask` [B, L] is true, in order, or by rising `places` [B, L] int32."""
        lengths = mask.sum(-1)
        rank = -mask.long() if places is None else places.masked_fill(~mask, NOWHERE)
        order = rank.argsort(dim=-1, stable=True)
        shortest, longest = torch.stack(lengths.aminmax()).tolist()
        index = order[:, :longest]
        alive = torch.arange(index.shape[1], device=mask.device) < lengths[:, None]
        index = index.masked_fill(~alive, 0)
        return cls(index, lengths.to(torch.int32), shortest != longest, longest)

    def to(self, device: torch.device) -> "Rows":
        """The same rows on another device."""
        if self.index.device == device:
            return self
        return replace(self, index=self.index.to(device), lengths=self.lengths.to(device))

    def padded(self, step: int) -> "Rows":
        """The same rows with n rounded up to a multiple of `step`, as capacity for more."""
        missing = -self.index.shape[1] % step
        return replace(self, index=pad(self.index, (0, missing))) if missing else self

    @cached_property
    def alive(self) -> Tensor:
        """[B, n] bool: the entries that name a real row."""
        return torch.arange(self.index.shape[1], device=self.index.device) < self.lengths[:, None]

    def gather(self, states: Tensor) -> Tensor:
        """Pick these rows of states [B, H, L, d]: a copy [B, H, n, d], zero beyond each length."""
        if states.shape[0] == 1:
            return states.index_select(2, self.index[0])
        index = self.index[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3])
        picked = states.gather(2, index)
        return picked.masked_fill(~self.alive[:, None, :, None], 0) if self.ragged else picked


@dataclass(frozen=True)
class Layout:
    """The tokens of one prefill. visual, valid: [B, L] bool (valid: not padding).

    window: how many of the last tokens weigh; aside: [B, L] bool, text at the end that is read and
    may weigh, and is then forgotten; None where there is none.
    """

    visual: Tensor
    valid: Tensor
    window: int
    aside: Tensor | None = None

    @property
    def length(self) -> int:
        """L, padding included."""
        return self.visual.shape[1]

    @cached_property
    def rows(self) -> tuple[Rows, Rows, Rows]:
        """Visual tokens, text tokens with spare capacity, and the last `window` queries."""
        last = self.valid.flip(-1).long().cumsum(-1).flip(-1) <= self.window
        return (
            Rows.where(self.visual & self.valid),
            Rows.where(~self.visual & self.stays).padded(TEXT_STEP),
            Rows.where(last & self.valid),
        )

    def to(self, device: torch.device) -> "Layout":
        """The same on another device."""
        return self if self.visual.device == device else self._changed(lambda t: t.to(device))

    def _changed(self, how: Callable[[Tensor], Tensor]) -> "Layout":
        aside = None if self.aside is None else how(self.aside)
        return Layout(how(self.visual), how(self.valid), self.window, aside)

    def repeated(self, rows: int) -> "Layout":
        """Of `rows` samples, each repeated as `generate` does for its beams and samples."""
        times = max(1, rows // len(self.visual))
        return self._changed(lambda t: t.repeat_interleave(times, 0))

    @property
    def stays(self) -> Tensor:
        """[B, L] bool: the tokens that a cache keeps, or may keep."""
        return self.valid if self.aside is None else self.valid & ~self.aside

    @cached_property
    def read_text(self) -> Rows:
        """The text that the last tokens attend to, tokens that the cache drops included."""
        return Rows.where(~self.visual & self.valid).padded(TEXT_STEP)

    def take(self, kept: Tensor) -> tuple["Layout", Tensor]:
        """Keep only rows where `kept` [B, L]; samples are padded on the left to one length.

        Returns the new layout and the source row of each new row, [B, L'].
        """
        lengths = kept.sum(-1)
        order = kept.long().argsort(dim=-1, stable=True)  # dropped rows first, kept ones in order
        source = order[:, -int(lengths.max()) :]
        alive = kept.gather(1, source)
        return self._changed(lambda t: t.gather(1, source) & alive), source


class Narrowing(NamedTuple):
    """A layer's input where rows were dropped before it.

    hidden: [B, n, c]; source: [B, n] the prompt's row that each of them was, None where the layer's
    other inputs have these rows already; mask: or None.
    """

    hidden: Tensor
    source: Tensor | None
    mask: Tensor | None


def take_rows(states: Tensor, source: Tensor) -> Tensor:
    """Rows `source` [B, n] of states [B or 1, L, c]."""
    source = source.to(states.device)
    states = states.expand(source.shape[0], -1, -1)
    return states.gather(1, source[..., None].expand(-1, -1, states.shape[-1]))


def seen_by(mask: Any, rows: int) -> Tensor | None:
    """A model's own mask as bool [B or 1, 1, rows, n], for any of its attention functions: bool, or
    added to scores, or flex attention's, and not one of tokens alone. None where it is causal."""
    if isinstance(mask, BlockMask):
        B, _, _, n = mask.shape
        device = mask.kv_num_blocks.device
        return create_mask(mask.mask_mod, B, None, rows, n, device=device)
    if not isinstance(mask, Tensor) or mask.dim() != 4:
        return None
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def narrow_mask(
    whole: Tensor | None, source: Tensor, valid: Tensor, window: int | None = None
) -> Tensor | None:
    """The mask of those rows `source` [B, n] that are left, [B, 1, n, n] bool; None where it is
    causal.

    Args:
        whole: the model's own mask [B or 1, 1, L, L] of all rows, bool; None where it is causal.
        valid: [B, n] which of the remaining rows are no padding.
        window: most tokens that a row attends to, where `whole` does not include it.
    """
    if whole is None:
        reaches = window is None or source.numel() == 0 or int(source.max()) < window
        if reaches and bool(valid.all()):
            return None
        source = source.to(valid.device)
        return rows_mask(source, source, valid, window)
    count, source = source.shape[1], source.to(whole.device)
    rows = source[:, None, :, None].expand(-1, -1, -1, whole.shape[-1])
    left = whole.expand(source.shape[0], -1, -1, -1).gather(2, rows)
    left = left.gather(3, source[:, None, None].expand(-1, -1, count, -1))
    own = torch.eye(count, dtype=torch.bool, device=left.device)  # see `rows_mask`
    return (left & valid.to(left.device)[:, None, None]) | own


def rows_mask(rows: Tensor, source: Tensor, valid: Tensor, window: int | None) -> Tensor:
    """Which rows `source` [B, n] of an earlier layer some `rows` [B, T] of a later one see, bool
    [B, 1, T, n], by their numbers in the prompt; valid: [B, n] which of `source` are no padding;
    window: most tokens that a row attends to."""
    back = rows[:, :, None] - source[:, None]
    seen = (back >= 0) & valid[:, None]
    if window is not None:
        seen &= back < window
    return (seen | (back == 0))[:, None]  # a padding row sees itself, or its softmax would be NaN
