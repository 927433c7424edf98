"""SparK: a different subset of Key channels for every token (Liao et al., arXiv 2508.15212).

score[h, n, c] = k[h, n, c]^2 * L2 over W of the group-mean query channel c; the top k channels of
each token stay, with a bit-packed mask. Decoding rebuilds dense Keys. A pruned channel becomes
  recovery="sign": sign(k) * sqrt(mean over the token's pruned channels of score / L2_c), the
      authors' recommended form, at one sign bit per pruned channel; or
  recovery="mean": the signed mean of the token's pruned values, the form RotateK compares with.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rotatek.methods.channels.base import HeadStates, LayerStates, keep_option
from rotatek.methods.channels.rebuilt import Form, RebuiltMethod, RebuiltStore, pack, unpack
from rotatek.methods.options import channels_kept, option


def channel_norms(queries: Tensor, kv_heads: int, alive: Tensor) -> Tensor:
    """SparK's weight of a channel, L2_c [B, Hkv, d] float32: its group-mean query's norm over the
    window; shapes as `LayerStates`."""
    B, Hq, W, d = queries.shape
    mean = queries.float().view(B, kv_heads, Hq // kv_heads, W, d).mean(2)
    return mean.masked_fill(~alive[:, None, :, None], 0.0).square().sum(2).sqrt()


def spark_mask(keys: Tensor, norms: Tensor, k: int) -> Tensor:
    """The k channels each token keeps, [B, Hkv, N, d] bool; norms: of `channel_norms`."""
    scores = keys.float().square() * norms[:, :, None]
    index = scores.topk(k, dim=-1).indices
    return torch.zeros_like(keys, dtype=torch.bool).scatter_(-1, index, True)


def _where(mask: Tensor) -> Tensor:
    """For each true entry, its rank among the row's true entries (anything elsewhere)."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


@dataclass(frozen=True)
class SparK(RebuiltMethod):
    """Token-wise pruning with recovery."""

    name, label = "spark", "SparK"
    summary = "Its own channels for every token, at the price of masks and rebuilt Keys."
    title = "SparK: a mask for every token"
    reading = (
        "SparK lets each token choose its own channels: faithful, but so ragged that the Keys "
        "must be rebuilt before they can be used."
    )
    per_token = ("keys", "values", "mask", "level", "signs")
    colour = "#b04fb2"

    keep: float = keep_option("share of each token's Key channels that stays, in (0, 1]")
    recovery: str = option(
        "sign",
        "How SparK fills pruned channels",
        "the content of a pruned channel: its sign, as SparK's authors do, or the mean",
        choices=[("sign", "by their signs, as its authors do"), ("mean", "by their mean")],
    )

    def stored(self, side: str, numbers: Tensor, alive: Tensor, states: LayerStates) -> Form:
        """Keep each token's k highest-scoring Key channels.

        keys: [B, Hkv, N, k] kept values in channel order. beside: mask, uint8 [B, Hkv, N, d / 8];
        level [B, Hkv, N], per-token fill; with signs also signs, packed bits of the pruned
        channels, and norms, float32 [B, Hkv, d] L2_c.
        """
        if side == "value":
            return numbers, {}
        keys, d = numbers, numbers.shape[-1]
        k = channels_kept(d, self.keep)
        norms = channel_norms(states.queries, keys.shape[1], states.window_alive)
        mask = spark_mask(keys, norms, k)
        order = mask.long().argsort(dim=-1, descending=True, stable=True)  # kept first, in order
        kept, pruned = keys.gather(-1, order[..., :k]), keys.gather(-1, order[..., k:])
        if self.recovery == "sign":
            scores = keys.float().square() * norms[:, :, None]
            level = scores.masked_fill(mask, 0.0).sum(-1).div(max(1, d - k)).sqrt()
            beside = {"signs": pack(pruned < 0, 1), "norms": norms}
        else:
            level, beside = pruned.float().sum(-1) / max(1, d - k), {}
        return kept.contiguous(), beside | {"mask": pack(mask, 1), "level": level.to(keys.dtype)}

    def rebuild(self, side: str, stored: Tensor, store: RebuiltStore) -> Tensor:
        """Kept values at their channels, and the fill elsewhere."""
        if side == "value":
            return stored
        beside, d = store.beside, store.width
        mask, fill = unpack(beside["mask"], 1, d).bool(), beside["level"][..., None].float()
        if self.recovery == "sign":
            scale = beside["norms"].rsqrt().nan_to_num(posinf=0.0)
            pruned = d - stored.shape[-1]
            signs = unpack(beside["signs"], 1, pruned).bool() if pruned else mask
            negative = signs.gather(-1, _where(~mask).clamp(max=signs.shape[-1] - 1))
            fill = fill * scale[:, :, None] * torch.where(negative, -1.0, 1.0)
        return torch.where(mask, stored.gather(-1, _where(mask)), fill.to(stored.dtype))

    def mask(self, head: HeadStates, k: int) -> Tensor:
        """[n, d] bool: k channels, chosen for each token."""
        layer = head.as_layer()
        norms = channel_norms(layer.queries, 1, layer.window_alive)
        return spark_mask(layer.keys, norms, k)[0, 0]
