"""Visual tokens that each Key head chooses for itself, once a layer's prefill attention has run.

Prefill computes all tokens; the choice concerns only which tokens a layer stores. Where all heads
keep the same number, a channel method compresses them as usual. Otherwise each head is a store of
its own, so that nothing is padded, and attention reads the stores side by side.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import max_pool1d, pad

from kernels.reference import Text, Visual, expanded
from rotatek.errors import ModeUnsupported
from rotatek.methods.channels.base import ChannelMethod, LayerStates
from rotatek.methods.channels.store import Store
from rotatek.methods.rotation import token_mask
from rotatek.methods.rotation.stored_bases import LayerAxes
from rotatek.methods.tokens.base import Stage, TokenPruner


def window_attention(states: LayerStates) -> Tensor:
    """[B, Hkv, N] float32: the attention that the window's queries give each visual token.

    The softmax includes the text that a query sees. The mean is over the real queries of the window
    and over a group's heads.
    """
    _, heads, N, d = states.keys.shape
    query = states.queries.float().unflatten(1, (heads, -1))  # [B, Hkv, G, W, d]
    live = token_mask(states.lengths, N)[:, None, None, None]
    scores = query @ states.keys.float().mT[:, :, None]
    scores = scores.masked_fill(~live, float("-inf"))
    if states.text is not None:
        scores = torch.cat([scores, _text_scores(query, states.text, states.window_alive)], -1)
    weights = (scores * d**-0.5).softmax(-1)[..., :N].nan_to_num(0.0)
    real = states.window_alive[:, None, None, :, None]
    count = states.window_alive.sum(1).clamp(min=1)[:, None, None]
    return weights.masked_fill(~real, 0.0).sum(3).mean(2) / count


def _text_scores(query: Tensor, text: Text, window: Tensor) -> Tensor:
    """Products [B, Hkv, G, W, M] with the text, -inf behind each query: the last row is the newest
    token of the text."""
    M = text.keys.shape[2]
    place = window.long().cumsum(1)
    lengths = M if text.lengths is None else text.lengths[:, None].to(place)
    last = lengths - place[:, -1:] + place  # [B, W] tokens that a query sees
    dead = torch.arange(M, device=query.device) >= last[..., None]  # [B, W, M]
    scores = query @ text.keys.float().mT[:, :, None]
    return scores.masked_fill(dead[:, None, None], float("-inf"))


def pooled(attention: Tensor, width: int) -> Tensor:
    """The largest of `width` neighbours, so that tokens beside a chosen one stay, too."""
    return max_pool1d(attention, width, stride=1, padding=width // 2)


@dataclass(frozen=True)
class HeadPruner(TokenPruner):
    """A pruner that chooses for each head what a layer stores.

    Class attributes, beside those of `TokenPruner`:
        even: whether all heads of a layer keep the same number of tokens.
    """

    stage: ClassVar[Stage] = "cache"
    even: ClassVar[bool] = True

    def kept_by_head(self, states: LayerStates, counts: Tensor) -> Tensor:
        """Which visual tokens each head keeps.

        Args:
            states: of one layer.
            counts: [B] how many a head keeps, on average.

        Returns:
            [B, Hkv, N] bool.
        """
        raise NotImplementedError

    def counts(self, lengths: Tensor) -> Tensor:
        """[B] tokens that a head keeps of `lengths`: the share `keep`; at least one unless there
        are none."""
        kept = (lengths.double() * self.kept_share).round().long()
        return torch.minimum(kept.clamp(min=1), lengths).long()


def measured(pruner: HeadPruner, method: ChannelMethod, states: LayerStates) -> list[Store]:
    """Run a channel method's `measure` on the tokens that a pruner keeps: one store, or one for
    each head.

    They are what `ChannelMethod.pack` completes; `as_one` makes one store of them.

    Args:
        pruner: that chooses.
        method: that stores.
        states: of one layer.
    """
    kept = pruner.kept_by_head(states, pruner.counts(states.lengths))
    if pruner.even:
        return [method.measure(_taken(states, kept))]
    return [method.measure(_taken(one, kept[:, h : h + 1])) for h, one in enumerate(_split(states))]


def as_one(stores: Sequence[Store], states: LayerStates) -> Store:
    """One store of those that `measured` made."""
    return stores[0] if len(stores) == 1 else HeadStores.of(stores, states)


def _taken(states: LayerStates, kept: Tensor) -> LayerStates:
    """The kept tokens of each head, in order; kept: [B, Hkv, N], as many in all of its heads."""
    lengths = kept[:, 0].sum(-1, dtype=torch.int32)
    order = kept.long().argsort(dim=-1, descending=True, stable=True)[..., : int(lengths.max())]
    alive = token_mask(lengths, order.shape[-1])[:, None, :, None]
    index = order[..., None].expand(*order.shape, states.keys.shape[-1])
    keys, values = (
        part.gather(2, index).masked_fill(~alive, 0) for part in (states.keys, states.values)
    )
    return replace(states, keys=keys, values=values, lengths=lengths, made={})


def _split(states: LayerStates) -> Iterator[LayerStates]:
    """Every head as a layer of its own."""
    heads = states.keys.shape[1]
    queries = states.queries.unflatten(1, (heads, -1))
    for h in range(heads):
        one = slice(h, h + 1)
        text, metric, basis = states.text, states.value_metric, states.basis
        if isinstance(basis, LayerAxes) and basis.offered:
            basis = None
        if basis is not None and not isinstance(basis, Tensor):
            raise ModeUnsupported(
                "A calibration for bits serves all heads of a layer together. Leave it out, or "
                "take a pruner that keeps as many tokens in every head."
            )
        yield replace(
            states,
            keys=states.keys[:, one],
            values=states.values[:, one],
            queries=queries[:, h],
            value_metric=None if metric is None else (metric[0][one], metric[1][one]),
            basis=None if basis is None else basis[one],
            text=None if text is None else text._replace(keys=text.keys[:, one],
                                                         values=text.values[:, one]),
            made={},
        )  # fmt: skip


@dataclass
class HeadStores(Store):
    """A store for each head, in `heads`; of `visual` there are only lengths [B], the longest's.

    Its class names no `per_token`, so that it has an attention call of its own.
    """

    heads: list[Store]
    width: int
    dtype: torch.dtype

    @classmethod
    def of(cls, stores: Sequence[Store], states: LayerStates) -> "HeadStores":
        """Of one layer's stores, in the order of its heads."""
        nothing = states.keys.new_zeros(len(states.keys), len(stores), 0, 0)
        longest = torch.stack([_lengths(one) for one in stores]).amax(0)
        visual = Visual(nothing, nothing, longest)
        return cls(visual, list(stores), states.keys.shape[-1], states.keys.dtype)

    def read(self) -> Visual:
        """Dense Keys and Values [B, Hkv, N, d] and the lengths [B, Hkv] of every head."""
        parts = [one.read() for one in self.heads]
        dense = [expanded(part, self.width) for part in parts]
        lengths = torch.stack([part.lengths for part in parts if part.lengths is not None], 1)
        N = max(keys.shape[2] for keys, _ in dense)
        keys, values = (
            torch.cat([pad(pair[i], (0, 0, 0, N - pair[i].shape[2])) for pair in dense], 1)
            for i in (0, 1)
        )
        return Visual(keys.to(self.dtype), values.to(self.dtype), lengths, fresh=True)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(part, tensor) of everything that is held."""
        if self.visual.lengths is not None:
            yield "lengths", self.visual.lengths
        for one in self.heads:
            yield from one.tensors()

    def shared(self) -> Iterator[Tensor]:
        """What belongs to a calibration."""
        for one in self.heads:
            yield from one.shared()

    def without_shared(self) -> Self:
        """The same without `shared`."""
        return replace(self, heads=[one.without_shared() for one in self.heads])

    def with_shared(self, axes: Any) -> Self:
        """The same with `shared` again."""
        return replace(self, heads=[one.with_shared(axes) for one in self.heads])

    def select(self, change: Callable[[Tensor], Tensor]) -> None:
        """Apply a batch selection to every tensor."""
        super().select(change)
        for one in self.heads:
            one.select(change)


def _lengths(store: Store) -> Tensor:
    """[B] of a store's tokens."""
    lengths = store.visual.lengths
    assert lengths is not None
    return lengths
