"""What one layer and head looked like at prefill: capped numpy, enough to redraw every figure.

A trace keeps ingredients (Keys, covariance, window queries), not pictures; `Trace.head` runs the
product's own methods on them for whatever settings the sliders hold.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rotatek import rotation
from rotatek.channels import Prefill
from rotatek.channels.spark import channel_norms, spark_mask
from rotatek.channels.think import think_scores
from rotatek.config import Settings, channels_kept

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class LayerTrace:
    """One layer, one sample. n: traced tokens (a uniform stride over the layer's visual tokens).

    keys: float16 [Hkv, n, d] post-RoPE; token: int32 [n] number of each among all visual tokens;
    mean: [Hkv, d]; covariance: [Hkv, d, d] over every visual token; queries: float16 [Hq, W, d].
    """

    keys: NDArray[np.float16]
    token: NDArray[np.int32]
    mean: Floats
    covariance: Floats
    queries: NDArray[np.float16]


@dataclass(frozen=True)
class HeadView:
    """Everything the figures of one (layer, head) show. Shapes in n traced tokens, d channels.

    raw, rotated: |K| [n, d] before and after the full rotation (channels by falling energy);
    think: [d] bool and spark: [n, d] bool, what those methods keep at this k; energy: [d], share of
    the (weighted) covariance inside the first 1..d rotated channels; spectrum: [d] eigenvalues as
    shares; k: kept channels; token: [n]; exact, approximate: [n] scores of the last prompt row
    before softmax, mean over the group; attention: [n] their softmax over the traced tokens;
    score_error: L2 of the difference over L2 of the exact scores' variation between tokens.
    """

    raw: Floats
    rotated: Floats
    think: NDArray[np.bool_]
    spark: NDArray[np.bool_]
    energy: Floats
    spectrum: Floats
    k: int
    token: NDArray[np.int32]
    exact: Floats
    approximate: Floats
    attention: Floats
    score_error: float


@dataclass(frozen=True)
class Trace:
    """A prefill as the figures need it. grids: (rows, columns) of each image's visual tokens."""

    layers: tuple[LayerTrace, ...]
    grids: tuple[tuple[int, int], ...]
    visual_tokens: int

    @property
    def shape(self) -> tuple[int, int]:
        """(layers, kv heads)."""
        return len(self.layers), self.layers[0].keys.shape[0] if self.layers else 0

    def head(self, layer: int, head: int, settings: Settings) -> HeadView:
        """Look at one head under `settings` (their weighting and kept channels)."""
        trace = self.layers[layer]
        keys, queries, sigma = _head_states(trace, head, settings)
        covariance = torch.from_numpy(trace.covariance[head])[None, None]
        k = channels_kept(keys.shape[-1], settings.keep_channels)
        basis, spectrum = rotation.full_basis(rotation.weighted(covariance, sigma))
        forward, back = basis, basis
        if settings.weighting == "consistent":
            forward, back = sigma[..., None] * basis, basis / sigma[..., None]
        mean = torch.from_numpy(trace.mean[head])
        rotated = (keys - mean) @ forward
        alive = torch.ones(1, queries.shape[2], dtype=torch.bool)
        lengths = torch.tensor([keys.shape[2]])
        scores = think_scores(keys, lengths, queries, alive)[0, 0]
        think = torch.zeros(keys.shape[-1], dtype=torch.bool)
        think[scores.topk(k).indices] = True
        spark = spark_mask(keys, channel_norms(queries, 1, alive), k)[0, 0]
        last = queries[0, :, -1]  # [G, d]
        scale = keys.shape[-1] ** -0.5
        exact = (last @ keys[0, 0].T) * scale  # [G, n]
        small = (last @ back[0, 0, :, :k]) @ rotated[0, 0, :, :k].T
        approximate = (small + (last @ mean)[:, None]) * scale
        total = spectrum[0, 0].sum().clamp(min=1e-30)
        return HeadView(
            raw=keys[0, 0].abs().numpy(),
            rotated=rotated[0, 0].abs().numpy(),
            think=think.numpy(),
            spark=spark.numpy(),
            energy=(spectrum[0, 0].cumsum(-1) / total).numpy(),
            spectrum=(spectrum[0, 0] / total).numpy(),
            k=k,
            token=trace.token,
            exact=exact.mean(0).numpy(),
            approximate=approximate.mean(0).numpy(),
            attention=exact.softmax(-1).mean(0).numpy(),
            score_error=_relative(approximate, exact),
        )

    def energy_map(self, settings: Settings) -> Floats:
        """Captured energy [layers, kv heads] at the settings' k, for the layer x head map."""
        rows = []
        for trace in self.layers:
            sigmas = [_head_states(trace, h, settings)[2] for h in range(trace.keys.shape[0])]
            covariance = torch.from_numpy(trace.covariance)[None]
            weighted = rotation.weighted(covariance, torch.cat(sigmas, 1))
            _, spectrum = rotation.full_basis(weighted)
            k = channels_kept(spectrum.shape[-1], settings.keep_channels)
            total = spectrum.sum(-1).clamp(min=1e-30)
            rows.append((spectrum[..., :k].sum(-1) / total)[0].numpy())
        return np.stack(rows)


def _head_states(trace: LayerTrace, head: int, settings: Settings) -> tuple[Tensor, Tensor, Tensor]:
    """Keys [1, 1, n, d], the group's queries [1, G, W, d] and sigma [1, 1, d], all float32."""
    group = trace.queries.shape[0] // trace.keys.shape[0]
    mine = trace.queries[head * group : (head + 1) * group].astype(np.float32)
    queries = torch.from_numpy(mine)[None]
    keys = torch.from_numpy(trace.keys[head].astype(np.float32))[None, None]
    if settings.weighting == "none":
        return keys, queries, torch.ones(1, 1, keys.shape[-1])
    sigma = rotation.query_weights(queries, 1)
    return keys, queries, sigma / sigma.mean(-1, keepdim=True)


def _relative(approximate: Tensor, exact: Tensor) -> float:
    """L2 of the difference over L2 of the exact scores' variation between tokens."""
    spread = (exact - exact.mean(-1, keepdim=True)).norm().clamp(min=1e-12)
    return float((approximate - exact).norm() / spread)


@dataclass
class TraceRecorder:
    """Collects a `Trace` of sample 0 while a cache fills; costs one covariance a layer."""

    limit: int
    layers: list[LayerTrace] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def record(self, prefill: Prefill) -> None:
        """Called by the cache, once a layer."""
        count = int(prefill.lengths[0])
        self.counts.append(count)
        step = max(1, -(-count // self.limit))
        token = torch.arange(0, count, step)
        mean, covariance = rotation.centred_covariance(prefill.keys[:1], prefill.lengths[:1])
        queries = prefill.queries[0][:, prefill.window_alive[0]]
        self.layers.append(
            LayerTrace(
                keys=_numpy(prefill.keys[0, :, token.to(prefill.keys.device)], torch.float16),
                token=token.to(torch.int32).numpy(),
                mean=_numpy(mean[0]),
                covariance=_numpy(covariance[0]),
                queries=_numpy(queries, torch.float16),
            )
        )

    def finish(
        self, grids: tuple[tuple[int, int], ...], visual_tokens: int, kept: NDArray[np.bool_] | None
    ) -> Trace:
        """The trace; kept [visual_tokens] names the tokens behind a pruner's rows."""
        layers = self.layers
        if kept is not None:
            numbers = np.flatnonzero(kept).astype(np.int32)
            layers = [
                replace(trace, token=numbers[trace.token]) if count == numbers.size else trace
                for trace, count in zip(self.layers, self.counts, strict=True)
            ]
        return Trace(tuple(layers), grids, visual_tokens)


def _numpy(tensor: Tensor, dtype: torch.dtype = torch.float32) -> NDArray:
    return tensor.detach().to("cpu", dtype).numpy().copy()
