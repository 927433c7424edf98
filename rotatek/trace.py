"""What one layer and head looked like: capped numpy, enough to redraw every figure.

A trace keeps ingredients (Keys, covariances, queries of the window and of the answer), not
pictures; `Trace.head` and `Trace.look` run the product's own methods on them for whatever settings
the sliders hold. Its size is capped: at most `limit` Keys a head, and `MAX_STEPS` answer tokens.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rotatek import rotation
from rotatek.channels import Prefill
from rotatek.channels.rotatek import ADAPTIVE_CAP
from rotatek.channels.spark import channel_norms, spark_mask
from rotatek.channels.think import think_scores
from rotatek.channels.widths import allot
from rotatek.config import Settings, channels_kept

MAX_STEPS = 64  # answer tokens whose queries are kept: every second, fourth... of a longer answer

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class LayerTrace:
    """One layer, one sample. n: traced tokens (a uniform stride over the layer's visual tokens).

    keys: float16 [Hkv, n, d] post-RoPE; token: int32 [n] number of each among all visual tokens;
    mean: [Hkv, d]; covariance: [Hkv, d, d] over every visual token; queries: float16 [Hq, W, d];
    value_energy: eigenvalues [Hkv, d] of the Values' covariance, in the output metric where the
    run's settings knew it; count: the layer's visual tokens; answer: float16 [S, Hq, d], the query
    that chose each recorded token of the answer.
    """

    keys: NDArray[np.float16]
    token: NDArray[np.int32]
    mean: Floats
    covariance: Floats
    queries: NDArray[np.float16]
    value_energy: Floats
    count: int
    answer: NDArray[np.float16]


@dataclass(frozen=True)
class Look:
    """Where one query looks. Over n traced tokens, means over the group's query heads.

    exact, approximate: scores before softmax [n], from full and from compressed Keys; attention,
    compressed: their softmax [n] over the traced tokens; score_error: L2 of the difference over L2
    of the exact scores' variation between tokens.
    """

    exact: Floats
    approximate: Floats
    attention: Floats
    compressed: Floats
    score_error: float


@dataclass(frozen=True)
class HeadView:
    """What the figures of one (layer, head) show. Shapes in n traced tokens, d channels.

    raw, rotated: |K| [n, d] before and after the full rotation (channels by falling energy);
    think: [d] bool and spark: [n, d] bool, what those methods keep at this k; energy: [d], share of
    the (weighted) covariance inside the first 1..d rotated channels; spectrum: [d] eigenvalues as
    shares; k: kept channels; token: [n]; look: that of the last prompt row.
    """

    raw: Floats
    rotated: Floats
    think: NDArray[np.bool_]
    spark: NDArray[np.bool_]
    energy: Floats
    spectrum: Floats
    k: int
    token: NDArray[np.int32]
    look: Look


@dataclass(frozen=True)
class Trace:
    """A prefill and its answer as the figures need them.

    grids: (rows, columns) of each image's visual tokens; steps: the number of each recorded answer
    token, 0 being the one that the prompt's last row chose; itemsize: bytes of a cached number.
    """

    layers: tuple[LayerTrace, ...]
    grids: tuple[tuple[int, int], ...]
    visual_tokens: int
    steps: tuple[int, ...] = (0,)
    itemsize: int = 2

    @property
    def shape(self) -> tuple[int, int]:
        """(layers, kv heads)."""
        return len(self.layers), self.layers[0].keys.shape[0] if self.layers else 0

    @property
    def nbytes(self) -> int:
        """What the trace weighs."""
        parts = [vars(layer).values() for layer in self.layers]
        return sum(p.nbytes for part in parts for p in part if isinstance(p, np.ndarray))

    def head(self, layer: int, head: int, settings: Settings, k: int | None = None) -> HeadView:
        """Look at one head under `settings`.

        k: its kept channels where widths adapt (`widths`); else the settings' share of d.
        """
        axes = _Axes.of(self.layers[layer], head, settings, k)
        trace, keys, k = self.layers[layer], axes.keys, axes.k
        queries = axes.queries
        alive = torch.ones(1, queries.shape[2], dtype=torch.bool)
        scores = think_scores(keys, torch.tensor([keys.shape[2]]), queries, alive)[0, 0]
        think = torch.zeros(keys.shape[-1], dtype=torch.bool)
        think[scores.topk(k).indices] = True
        spark = spark_mask(keys, channel_norms(queries, 1, alive), k)[0, 0]
        total = axes.spectrum.sum().clamp(min=1e-30)
        return HeadView(
            raw=keys[0, 0].abs().numpy(),
            rotated=axes.rotated.abs().numpy(),
            think=think.numpy(),
            spark=spark.numpy(),
            energy=(axes.spectrum.cumsum(-1) / total).numpy(),
            spectrum=(axes.spectrum / total).numpy(),
            k=k,
            token=trace.token,
            look=axes.look(queries[0, :, -1]),
        )

    def look(
        self, layer: int, head: int, settings: Settings, step: int, k: int | None = None
    ) -> Look:
        """Where the query that chose token `steps[step]` of the answer looks."""
        trace = self.layers[layer]
        axes = _Axes.of(trace, head, settings, k)
        if self.steps[step] == 0:
            return axes.look(axes.queries[0, :, -1])
        row = trace.answer[step - len(self.steps)].astype(np.float32)  # `steps` begins with 0
        group = row.shape[0] // trace.keys.shape[0]
        return axes.look(torch.from_numpy(row[head * group : (head + 1) * group]))

    def spectra(self, weighting: str) -> Floats:
        """Eigenvalues of every head's (weighted) covariance, falling, [layers, kv heads, d]."""
        rows = []
        for trace in self.layers:
            heads = range(trace.keys.shape[0])
            sigma = torch.cat([_sigma(_queries(trace, h), weighting) for h in heads], 1)
            covariance = torch.from_numpy(trace.covariance)[None]
            rows.append(rotation.full_basis(rotation.weighted(covariance, sigma))[1][0].numpy())
        return np.stack(rows)

    def widths(self, settings: Settings, spectra: Floats | None = None) -> NDArray[np.int32]:
        """Key channels that each head keeps, [layers, kv heads].

        spectra: `self.spectra(settings.weighting)`, where it is at hand.
        """
        d = self.layers[0].keys.shape[-1]
        k = channels_kept(d, settings.keep_channels)
        if settings.widths == "uniform":
            return np.full(self.shape, k, dtype=np.int32)
        return _allotted(self.spectra(settings.weighting) if spectra is None else spectra, k)

    def value_widths(self, settings: Settings) -> NDArray[np.int32]:
        """Value channels that each head keeps, [layers, kv heads]."""
        d = self.layers[0].keys.shape[-1]
        r = channels_kept(d, settings.keep_values) if settings.values == "rotate" else d
        if settings.widths == "uniform" or settings.values == "full":
            return np.full(self.shape, r, dtype=np.int32)
        return _allotted(np.stack([layer.value_energy for layer in self.layers]), r)

    def energy_map(self, settings: Settings, spectra: Floats | None = None) -> Floats:
        """Captured energy [layers, kv heads] at the settings' widths."""
        spectra = self.spectra(settings.weighting) if spectra is None else spectra
        widths = self.widths(settings, spectra)
        inside = np.arange(spectra.shape[-1]) < widths[..., None]
        total = np.maximum(spectra.sum(-1), 1e-30)
        return (np.where(inside, spectra, 0.0).sum(-1) / total).astype(np.float32)

    def bytes_map(self, settings: Settings, spectra: Floats | None = None) -> NDArray[np.int64]:
        """KV bytes [layers, kv heads] that RotateK holds for this run's visual tokens: Keys,
        Values, bases, means, scales; where widths adapt, also where each head's block begins."""
        d, eight = self.layers[0].keys.shape[-1], settings.cache_dtype != "model"
        size = 1 if eight else self.itemsize
        count = np.array([[layer.count] for layer in self.layers])
        adaptive = settings.widths == "adaptive"
        keys, values = self.widths(settings, spectra), self.value_widths(settings)
        total = size * count * (keys.astype(np.int64) + values)
        for widths, rotated in ((keys, True), (values, settings.values == "rotate")):
            if rotated:  # a layer's bases are as wide as its widest head
                total += self.itemsize * d * widths.max(axis=1, keepdims=True) + 4 * d
                total += 4 + 8 if adaptive else 0
        if eight:  # a scale for each Key channel, each token's Values, and the head
            total += 4 * keys.max(axis=1, keepdims=True) + 2 * count + 4
        return total


@dataclass(frozen=True)
class _Axes:
    """One head in its rotated axes: keys [1, 1, n, d], queries [1, G, W, d], rotated [n, d], back
    [d, d] (what turns a query), mean and spectrum [d]."""

    keys: Tensor
    queries: Tensor
    rotated: Tensor
    back: Tensor
    mean: Tensor
    spectrum: Tensor
    k: int

    @classmethod
    def of(cls, trace: LayerTrace, head: int, settings: Settings, k: int | None) -> "_Axes":
        keys = torch.from_numpy(trace.keys[head].astype(np.float32))[None, None]
        queries = _queries(trace, head)
        sigma = _sigma(queries, settings.weighting)
        covariance = torch.from_numpy(trace.covariance[head])[None, None]
        basis, spectrum = rotation.full_basis(rotation.weighted(covariance, sigma))
        forward, back = basis[0, 0], basis[0, 0]
        if settings.weighting == "consistent":
            weights = sigma[0, 0, :, None]
            forward, back = weights * forward, back / weights
        mean = torch.from_numpy(trace.mean[head])
        rotated = (keys[0, 0] - mean) @ forward
        k = channels_kept(keys.shape[-1], settings.keep_channels) if k is None else k
        return cls(keys, queries, rotated, back, mean, spectrum[0, 0], k)

    def look(self, query: Tensor) -> Look:
        """Scores of query rows [G, d] against this head's Keys."""
        scale = self.keys.shape[-1] ** -0.5
        exact = (query @ self.keys[0, 0].T) * scale  # [G, n]
        small = (query @ self.back[:, : self.k]) @ self.rotated[:, : self.k].T
        approximate = (small + (query @ self.mean)[:, None]) * scale
        return Look(
            exact=exact.mean(0).numpy(),
            approximate=approximate.mean(0).numpy(),
            attention=exact.softmax(-1).mean(0).numpy(),
            compressed=approximate.softmax(-1).mean(0).numpy(),
            score_error=_relative(approximate, exact),
        )


def _queries(trace: LayerTrace, head: int) -> Tensor:
    """The window's queries of one head's group, [1, G, W, d] float32."""
    group = trace.queries.shape[0] // trace.keys.shape[0]
    mine = trace.queries[head * group : (head + 1) * group].astype(np.float32)
    return torch.from_numpy(mine)[None]


def _sigma(queries: Tensor, weighting: str) -> Tensor:
    """sigma [1, 1, d] of one head, of mean one."""
    if weighting == "none":
        return torch.ones(1, 1, queries.shape[-1])
    sigma = rotation.query_weights(queries, 1)
    return sigma / sigma.mean(-1, keepdim=True)


def _allotted(energies: Floats, budget: int) -> NDArray[np.int32]:
    """Adaptive widths [layers, kv heads] from energies [layers, kv heads, d] in falling order."""
    cap = min(energies.shape[-1], ADAPTIVE_CAP * budget)
    parts = allot([torch.from_numpy(layer[None, :, :cap].copy()) for layer in energies], budget)
    return torch.cat(parts).numpy()


def _relative(approximate: Tensor, exact: Tensor) -> float:
    """L2 of the difference over L2 of the exact scores' variation between tokens."""
    spread = (exact - exact.mean(-1, keepdim=True)).norm().clamp(min=1e-12)
    return float((approximate - exact).norm() / spread)


@dataclass
class TraceRecorder:
    """Collects a `Trace` of sample 0 while a cache fills and answers; one covariance a layer, two
    matrix products and, for each answer token, one copied query row."""

    limit: int
    layers: list[LayerTrace] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)  # covariances [Hkv, d, d], on the device
    answer: list[list[Tensor]] = field(default_factory=list)  # per layer: rows [Hq, d]
    numbers: list[int] = field(default_factory=list)  # of the answer tokens behind those rows
    token: int = 0
    stride: int = 1
    itemsize: int = 2
    done: bool = False

    def record(self, prefill: Prefill) -> None:
        """Called by the cache, once a layer."""
        count = int(prefill.lengths[0])
        step = max(1, -(-count // self.limit))
        token = torch.arange(0, count, step)
        mean, covariance = rotation.centred_covariance(prefill.keys[:1], prefill.lengths[:1])
        queries = prefill.queries[0][:, prefill.window_alive[0]]
        self.values.append(_value_covariance(prefill))
        self.itemsize = prefill.keys.element_size()
        self.answer.append([])
        self.layers.append(
            LayerTrace(
                keys=_numpy(prefill.keys[0, :, token.to(prefill.keys.device)], torch.float16),
                token=token.to(torch.int32).numpy(),
                mean=_numpy(mean[0]),
                covariance=_numpy(covariance[0]),
                queries=_numpy(queries, torch.float16),
                value_energy=np.zeros(mean.shape[1:], dtype=np.float32),
                count=count,
                answer=np.zeros((0, *prefill.queries.shape[1::2]), dtype=np.float16),
            )
        )

    def step(self, layer: int, query: Tensor) -> None:
        """Called by the cache once a layer for each answer token: query [B, Hq, 1, d].

        What follows the answer, a conversation's next question, is not recorded.
        """
        if self.done or layer >= len(self.answer):
            return
        if layer == 0:
            self.token += 1
            if self.token % self.stride == 0:
                self.numbers.append(self.token)
        if self.token % self.stride == 0:
            self.answer[layer].append(query[0, :, -1].to(torch.float16, copy=True))
        if layer == len(self.layers) - 1 and len(self.numbers) > MAX_STEPS:
            self._thin()

    def _thin(self) -> None:
        """Keep every second recorded token, and record half as many from here on."""
        self.stride *= 2
        keep = [i for i, number in enumerate(self.numbers) if number % self.stride == 0]
        self.answer = [[rows[i] for i in keep] for rows in self.answer]
        self.numbers = [self.numbers[i] for i in keep]

    def finish(
        self, grids: tuple[tuple[int, int], ...], visual_tokens: int, kept: NDArray[np.bool_] | None
    ) -> Trace:
        """The trace; kept [visual_tokens] names the tokens behind a pruner's rows."""
        whole = min(len(rows) for rows in self.answer)  # a stopped answer may end inside a step
        energies = _eigenvalues(torch.stack(self.values))
        self.done = True
        layers = []
        for trace, rows, energy in zip(self.layers, self.answer, energies, strict=True):
            token = trace.token
            if kept is not None and trace.count == int(kept.sum()):
                token = np.flatnonzero(kept).astype(np.int32)[token]
            answer = _numpy(torch.stack(rows[:whole]), torch.float16) if whole else trace.answer
            layers.append(replace(trace, token=token, value_energy=energy, answer=answer))
        self.values.clear()
        self.answer.clear()
        steps = (0, *self.numbers[:whole])
        return Trace(tuple(layers), grids, visual_tokens, steps, self.itemsize)


def _value_covariance(prefill: Prefill) -> Tensor:
    """[Hkv, d, d] of sample 0's Values, in the output metric where it is known."""
    _, covariance = rotation.centred_covariance(prefill.values[:1], prefill.lengths[:1])
    if prefill.value_metric is None:
        return covariance[0]
    root = prefill.value_metric[0]
    return root @ covariance[0] @ root


def _eigenvalues(covariance: Tensor) -> Floats:
    """Falling eigenvalues of [..., d, d], on the CPU: a GPU takes such matrices one by one."""
    values = torch.linalg.eigvalsh(covariance.double().cpu()).flip(-1)
    return values.clamp(min=0).float().numpy()


def _numpy(tensor: Tensor, dtype: torch.dtype = torch.float32) -> NDArray:
    return tensor.detach().to("cpu", dtype).numpy().copy()
