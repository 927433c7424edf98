"""ThinK and SparK as the RotateK paper times them: full-width Keys are rebuilt, then attended to.

Every step recovers dense visual Keys, joins them to the text's, and runs the dense kernel that the
uncompressed cache runs. The library itself does less for ThinK (it gathers the query's channels).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from kernels.attention_launch import attend_triton
from kernels.reference import Visual

from .arms import fill_in, scatter
from .model import Cache, Decoder, Sizes

THINK: Final = "ThinK k=32, rebuilt"
SPARK: Final = "SparK k=32, rebuilt"
KEPT: Final = 32


@dataclass
class Rebuilt(Cache):
    """A layer's cache whose Keys are kept channels that a step makes dense again.

    where: [B, Hkv, k] int64, the channels that all tokens keep; or [B, Hkv, N, d] bool, each
        token's own. fill: [B, Hkv, N, 1], what the other channels become; None is zero.
    """

    where: Tensor
    fill: Tensor | None = None

    @property
    def mask_bytes(self) -> int:
        """The mask of kept channels, a bit a channel where tokens differ; and the fill."""
        if self.fill is None:
            return self.where.nbytes
        return self.where.numel() // 8 + self.fill.nbytes

    def recover(self) -> Tensor:
        """Dense visual Keys [B, Hkv, N, d]."""
        kept = self.visual.keys
        if self.fill is not None:
            return fill_in(kept, self.where, self.fill)
        return scatter(kept, self.where, self.visual.values.shape[-1])

    def join(self, dense: Tensor) -> Tensor:
        """Visual and text Keys in one tensor [B, Hkv, N + M, d]."""
        return torch.cat([dense, self.text.keys], 2)

    def attend(self, q: Tensor, scale: float) -> Tensor:
        """Recovery, concatenation, dense attention (which reads the two where they were)."""
        dense = self.recover()
        self.join(dense)
        visual = Visual(dense, self.visual.values, fresh=True)
        return attend_triton(q, visual, self.text, scale)


def rebuilt_caches(decoder: Decoder, method: str, B: int, N: int, M: int) -> Sequence[Rebuilt]:
    """Random caches of every layer of one of the two methods."""
    s, generator = decoder.sizes, torch.Generator(device=decoder.device).manual_seed(2)
    caches = []
    for cache in decoder.caches(B, N, M, KEPT):
        visual = Visual(cache.visual.keys, cache.visual.values)
        where, fill = _places(s, (B, s.Hkv, N, s.d), method, generator)
        caches.append(Rebuilt(visual, cache.text, where, fill))
    return caches


def _places(
    sizes: Sizes, shape: tuple[int, ...], method: str, generator: torch.Generator
) -> tuple[Tensor, Tensor | None]:
    """Which channels stay, by chance, and what becomes of the others."""
    B, Hkv, N, d = shape
    device = generator.device
    if method == THINK:
        order = torch.rand(B, Hkv, d, device=device, generator=generator).argsort(-1)
        return order[..., :KEPT].contiguous(), None
    mask = torch.arange(d, device=device) < KEPT  # the same indices for all: as many bytes to read
    fill = torch.ones(B, Hkv, N, 1, device=device, dtype=torch.bfloat16)
    return mask.expand(shape).contiguous(), fill


def bytes_of(sizes: Sizes, method: str, N: int, M: int) -> int:
    """Bytes of one row's cache: kept Keys, Values, masks and text of every layer."""
    token = 2 * (KEPT + sizes.d)
    mask = N * (sizes.d // 8 + 2) if method == SPARK else 8 * KEPT
    return sizes.layers * sizes.Hkv * (N * token + mask + M * 4 * sizes.d)


def compressors(keys: Tensor, queries: Tensor) -> dict[str, Callable[[], object]]:
    """A layer's prefill for each method; keys [B, Hkv, N, d], queries [B, Hkv, W, d]."""
    weight = queries.float().square().sum(2).sqrt()[:, :, None]  # [B, Hkv, 1, d]

    def think() -> Tensor:
        score = weight[:, :, 0].square() * keys.float().square().mean(2)
        index = score.topk(KEPT, -1).indices
        return keys.gather(-1, index[:, :, None].expand(*keys.shape[:3], KEPT))

    def spark() -> Tensor:
        score = keys.float().square() * weight
        index = score.topk(KEPT, -1).indices
        mask = torch.zeros(keys.shape, dtype=torch.bool, device=keys.device)
        mask.scatter_(-1, index, value=True)
        kept = keys.gather(-1, index)
        return (keys.sum(-1) - kept.sum(-1)) / (keys.shape[-1] - KEPT)

    return {THINK: think, SPARK: spark}
