"""Vision towers in our calls: sequences in one attention call, patches as a product, and a record
of attention, by which encoder-stage pruners choose."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rotatek.bridge.scope import is_own

BLOCK: Final = 256  # query rows scored at a time
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


class Segments:
    """The sequences among the tokens of one vision attention call, computed once for all layers:
    windows, pictures, frames of a clip.

    A tower packs its pictures into one row of tokens and marks the end of each sequence. Attention
    to one sequence after another takes thousands of launches for a large picture. Here sequences of
    one length are samples of one call, with the same numbers.

    Args:
        bounds: [S + 1] where each sequence begins, and where the last one ends.
    """

    def __init__(self, bounds: Tensor) -> None:
        self.lengths = [end - start for start, end in pairwise(bounds.tolist())]
        self.whole = torch.tensor([0, sum(self.lengths)], dtype=bounds.dtype)
        kinds = sorted({length for length in self.lengths if length})
        self._groups = [(length, self.lengths.count(length)) for length in kinds]
        self._order = self._back = None
        if len(kinds) > 1:
            lengths = torch.tensor(self.lengths)
            order = lengths.repeat_interleave(lengths).argsort(stable=True)
            self._order, self._back = (one.to(bounds.device) for one in (order, order.argsort()))

    def each(self, query: Tensor, key: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """The sequences' own queries and Keys of [1, H, n, d], one after another."""
        yield from zip(query.split(self.lengths, 2), key.split(self.lengths, 2), strict=True)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, full: Attention) -> Tensor:
        """Attention in which every sequence attends only to itself: query, key, value [1, H, n, d]
        to [1, n, H, d]; full: plain attention of [S, H, L, d] over themselves, [S, L, H, d]."""
        states = [query, key, value]
        if self._order is not None:
            states = [part.index_select(2, self._order) for part in states]
        made, start = [], 0
        for length, count in self._groups:
            group = [part[0, :, start : start + count * length] for part in states]
            start += count * length
            rows = (part.unflatten(1, (count, length)).transpose(0, 1) for part in group)
            made.append(full(*rows).flatten(0, 1))
        if self._back is None:
            return made[0][None]
        return torch.cat(made).index_select(0, self._back)[None]


def together(module: Any, args: tuple, kwargs: dict[str, Any] | None = None) -> tuple | None:
    """A pre-hook of vision attention, which transformers calls once a window, picture or frame:
    one call for all of them (`Segments`)."""
    if kwargs is None or kwargs.get("cu_seqlens") is None or "segments" in kwargs or not is_own():
        return None
    if "flash" in str(module.config._attn_implementation):  # it is one call already
        return None
    bounds = kwargs["cu_seqlens"]
    segments = getattr(bounds, "rotatek_segments", None)  # every layer brings the same tensor
    if segments is None:
        segments = bounds.rotatek_segments = Segments(bounds)
    return args, {**kwargs, "cu_seqlens": segments.whole, "segments": segments}


class PatchProjection(nn.Conv3d):
    """A convolution over patches of exactly its kernel's size, as the product that it is where
    nothing overlaps, in calls that are ours; all others go the usual way.

    As a convolution of three dimensions that took 3.5 times as long in float32 and 7 times in
    bfloat16 on a processor, and on some GPUs far longer (huggingface/transformers#45750,
    pytorch#174051).
    """

    def forward(self, patches: Tensor) -> Tensor:
        """[N, c, t, h, w] to [N, out, 1, 1, 1]."""
        if not is_own() or patches.shape[2:] != self.kernel_size:
            return super().forward(patches)
        made = F.linear(patches.flatten(1), self.weight.flatten(1), self.bias)
        return made[..., None, None, None]


def multiply_patches(module: nn.Module) -> None:
    """Replace the forward of `module`, if it is such a convolution, by a matrix product."""
    plain = type(module) is nn.Conv3d and module.groups == 1 and module.dilation == (1, 1, 1)
    if plain and module.stride == module.kernel_size and module.padding == (0, 0, 0):
        module.__class__ = PatchProjection


@dataclass
class AttentionTap:
    """Scores and Keys of one vision attention module, recorded while images are encoded.

    With `cls`: attention of row 0 summed over heads, row 0 itself left out (CLIP towers); else
    attention received, summed over queries, mean over heads. scores: per call [B, n]; keys: per
    call the head mean [B, n, d].
    """

    module: nn.Module
    cls: bool
    scores: list[Tensor] = field(default_factory=list)
    keys: list[Tensor] = field(default_factory=list)

    def see(self, query: Tensor, key: Tensor, scale: float) -> None:
        """One attention call: query, key [B, H, n, d]."""
        if self.cls:
            row = (query[:, :, :1].float() @ key.float().transpose(-1, -2) * scale).softmax(-1)
            self.scores.append(row[:, :, 0, 1:].sum(1))
            self.keys.append(key[:, :, 1:].float().mean(1))
        else:
            total = torch.zeros(query.shape[0], key.shape[2], device=key.device)
            for rows in query.split(BLOCK, dim=2):  # in O(n * BLOCK) memory
                scores = (rows @ key.transpose(-1, -2)).float() * scale
                total += scores.softmax(-1).sum(2).mean(1)
            self.scores.append(total)
            self.keys.append(key.float().mean(1))
