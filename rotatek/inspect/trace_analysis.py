"""The data of the figures of a trace: the methods' own functions, run on its ingredients.

Symbols: n traced tokens, d channels, k stored ones, G query heads that read a Key head.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rotatek.inspect.trace import Floats, Trace
from rotatek.methods.channels import CHANNELS, ChannelMethod
from rotatek.methods.channels.base import Axes
from rotatek.methods.shares import channels_kept

BEYOND: Final = -1.0  # where a layer has fewer heads than another, or its heads fewer channels


@dataclass(frozen=True)
class AttentionView:
    """The attention of one query. Over n traced tokens, means over the group's query heads.

    Args:
        exact: scores before softmax [n], from full Keys.
        approximate: the same from compressed Keys.
        attention: softmax [n] of `exact` over the traced tokens.
        compressed: softmax [n] of `approximate`.
        score_error: L2 of the difference over L2 of the exact scores' variation between tokens.
    """

    exact: Floats
    approximate: Floats
    attention: Floats
    compressed: Floats
    score_error: float


@dataclass(frozen=True)
class HeadView:
    """One kv head under a method that rotates.

    Args:
        raw: |K| [n, d] as the model makes them.
        rotated: |K| [n, d] after the full rotation, channels by falling energy.
        spectrum: [d] eigenvalues as shares.
        k: kept channels.
        token: [n] number of each among all visual tokens.
    """

    raw: Floats
    rotated: Floats
    spectrum: Floats
    k: int
    token: NDArray[np.int32]

    @property
    def tokens(self) -> int:
        """Visual tokens that the rows stand for."""
        return int(self.token[-1]) + 1


def compared(*own: ChannelMethod) -> dict[str, ChannelMethod]:
    """Every registered method that leaves channels out, by name, in the order of the registry.

    Args:
        own: methods whose options are used as given; the others have their defaults.
    """
    every = {name: kind() for name, kind in CHANNELS.items()} | {one.name: one for one in own}
    return {name: one for name, one in every.items() if one.drops_channels}


def head_view(
    trace: Trace, layer: int, head: int, method: ChannelMethod, k: int | None = None
) -> HeadView:
    """One head at the method's width, or at `k` channels."""
    states, axes = trace.head(layer, head), _axes(trace, layer, head, method)
    total = axes.spectrum.sum().clamp(min=1e-30)
    return HeadView(
        raw=states.keys.abs().numpy(),
        rotated=((states.keys - states.mean) @ axes.basis).abs().numpy(),
        spectrum=(axes.spectrum / total).numpy(),
        k=channels_kept(len(axes.spectrum), method.key_share) if k is None else k,
        token=trace.layers[layer].token,
    )


def masks(
    trace: Trace, layer: int, head: int, methods: Mapping[str, ChannelMethod], k: int
) -> dict[str, NDArray[np.bool_]]:
    """By the names of `methods`: which numbers of each token they store at k, [n, d] bool."""
    states = trace.head(layer, head)
    return {name: one.mask(states, k).numpy() for name, one in methods.items()}


def attention_view(
    trace: Trace, layer: int, head: int, method: ChannelMethod, step: int, k: int | None = None
) -> AttentionView:
    """The attention of the query that chose token `trace.steps[step]` of the answer."""
    states, axes = trace.head(layer, head), _axes(trace, layer, head, method)
    k = channels_kept(len(axes.spectrum), method.key_share) if k is None else k
    query, scale = trace.query(layer, head, step), states.keys.shape[-1] ** -0.5  # [G, d]
    exact = (query @ states.keys.T) * scale  # [G, n]
    kept = (states.keys - states.mean) @ axes.basis[:, :k]  # [n, k]
    small = (query @ axes.basis[:, :k]) @ kept.T
    approximate = (small + (query @ states.mean)[:, None]) * scale
    spread = (exact - exact.mean(-1, keepdim=True)).norm().clamp(min=1e-12)
    return AttentionView(
        exact=exact.mean(0).numpy(),
        approximate=approximate.mean(0).numpy(),
        attention=exact.softmax(-1).mean(0).numpy(),
        compressed=approximate.softmax(-1).mean(0).numpy(),
        score_error=float((approximate - exact).norm() / spread),
    )


def _axes(trace: Trace, layer: int, head: int, method: ChannelMethod) -> Axes:
    """The rotated channels of a method that has them."""
    axes = method.axes(trace.head(layer, head))
    if axes is None:
        raise ValueError(f"{method.label} does not rotate")
    return axes


def spectra(trace: Trace, method: ChannelMethod) -> Floats:
    """Eigenvalues of every head's (weighted) covariance a token, falling, [layers, kv heads, d];
    `BEYOND` behind those of narrower heads than others' d, and for heads that a layer lacks."""
    rows = [
        torch.stack([
            _axes(trace, number, head, method).spectrum / max(1, layer.count)
            for head in range(trace.heads(number))
        ])
        for number, layer in enumerate(trace.layers)
    ]  # fmt: skip
    return _joined([row.numpy() for row in rows])


def _joined(rows: Sequence[NDArray[np.floating]]) -> NDArray[np.floating]:
    """Values [kv heads, d] of each layer as one array [layers, kv heads, d]."""
    heads, width = (max(row.shape[axis] for row in rows) for axis in (0, 1))
    missing = [((0, heads - row.shape[0]), (0, width - row.shape[1])) for row in rows]
    padded = [np.pad(r, m, constant_values=BEYOND) for r, m in zip(rows, missing, strict=True)]
    return np.stack(padded)


def has_head(energies: Floats) -> NDArray[np.bool_]:
    """[layers, kv heads]: which heads a layer has; energies: `spectra`."""
    found: NDArray[np.bool_] = energies[..., 0] != BEYOND
    return found


def _forms(energies: Floats) -> NDArray[np.int64]:
    """[layers, 2]: heads of each layer and their width; energies: of `_joined`."""
    inside = energies != BEYOND
    return np.stack([inside[..., 0].sum(-1), inside[:, 0].sum(-1)], -1)


def _by_form(energies: Floats, work: Callable[[Tensor], Tensor]) -> NDArray:
    """Results [layers, ...] of layers with as many heads of one width after another, `BEYOND` left
    out: 0 there.

    Args:
        energies: of `_joined`.
        work: takes the energies of some layers.
    """
    forms = _forms(energies)
    made = {}
    for heads, width in {(int(h), int(w)) for h, w in forms}:
        mine = (forms == (heads, width)).all(-1)
        made[heads, width] = mine, work(torch.from_numpy(energies[mine, :heads, :width]))
    first = next(iter(made.values()))[1].numpy()
    whole = np.zeros(energies.shape[: first.ndim], first.dtype)
    for mine, part in made.values():
        inner = tuple(slice(length) for length in part.shape[1:])
        whole[(mine, *inner)] = part.numpy()
    return whole


def key_widths(method: ChannelMethod, energies: Floats) -> NDArray[np.int32]:
    """Key channels that each head keeps, [layers, kv heads]; energies: `spectra`."""
    if method.times_smaller is not None:  # all heads share a budget
        return method.key_widths(torch.from_numpy(energies)).numpy()
    return _by_form(energies, method.key_widths)


def key_bits(trace: Trace, method: ChannelMethod, energies: Floats) -> NDArray[np.int32]:
    """Bits of every rotated Key channel, [layers, kv heads, d]; energies: `spectra`."""
    depths = method.key_bits(torch.from_numpy(energies))
    if depths is not None:
        return depths.numpy().astype(np.int32)
    inside = np.arange(energies.shape[-1]) < key_widths(method, energies)[..., None]
    return np.where(inside, 8 * trace.itemsize, 0).astype(np.int32)


def water_level(method: ChannelMethod, energies: Floats, layer: int, head: int) -> float | None:
    """Share of one head's energy below which a channel gets no bits; energies: `spectra`."""
    level = method.water_level(torch.from_numpy(energies))
    total = max(float(energies[layer, head].clip(0).sum()), 1e-30)
    return None if level is None else level / total


def energy_map(method: ChannelMethod, energies: Floats) -> Floats:
    """Captured energy [layers, kv heads] at the method's widths; energies: `spectra`."""
    inside = np.arange(energies.shape[-1]) < key_widths(method, energies)[..., None]
    total = np.maximum(np.where(energies == BEYOND, 0.0, energies).sum(-1), 1e-30)
    return (np.where(inside, energies, 0.0).sum(-1) / total).astype(np.float32)


def score_errors(trace: Trace, method: ChannelMethod, energies: Floats) -> Floats:
    """Every head's score error for the prompt's last row, [layers, kv heads]; 0 for heads that a
    layer lacks."""
    kept = key_widths(method, energies)
    errors = np.zeros(trace.shape, dtype=np.float32)
    for row, head in np.argwhere(has_head(energies)):
        view = attention_view(trace, row, head, method, 0, int(kept[row, head]))
        errors[row, head] = view.score_error
    return errors


def on_grid(
    trace: Trace, token: NDArray[np.int32], attention: Floats, grid: int = 0
) -> NDArray[np.float64]:
    """Attention [n] of the traced tokens on one of the images' grids [rows, columns]."""
    mass = np.zeros(trace.visual_tokens, dtype=np.float64)
    mass[token] = attention
    return trace.grids[grid].to_cells(mass)
