"""The data of the figures of a trace: the methods' own functions, run on its ingredients.

n traced tokens, d channels, k stored ones, G query heads of a Key head; energies of `spectra`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rotatek.inspect.trace import Floats, Trace
from rotatek.methods.channels import CHANNELS, ChannelMethod
from rotatek.methods.channels.base import Axes

BEYOND: Final = -1.0  # where a layer has fewer heads than another, or its heads fewer channels


class AttentionView(NamedTuple):
    """The attention of one query over n traced tokens, means over the group's query heads.

    exact: scores before softmax [n], from full Keys; approximate: the same from compressed Keys;
    attention, compressed: their softmax [n]; score_error: L2 of the difference over L2 of the exact
    scores' variation between tokens.
    """

    exact: Floats
    approximate: Floats
    attention: Floats
    compressed: Floats
    score_error: float


class HeadView(NamedTuple):
    """One Key head under a method that rotates. raw: |K| [n, d] as the model makes them; rotated:
    the same after the full rotation, channels by falling energy; spectrum: [d] eigenvalues as
    shares; tokens: visual ones that the rows stand for."""

    raw: Floats
    rotated: Floats
    spectrum: Floats
    tokens: int


def compared(*own: ChannelMethod) -> dict[str, ChannelMethod]:
    """Every registered method that leaves channels out, by name, in the order of the registry. own:
    methods whose options are used as given; the others have their defaults."""
    every = {name: kind() for name, kind in CHANNELS.items()} | {one.name: one for one in own}
    return {name: one for name, one in every.items() if one.drops_channels}


def head_view(trace: Trace, layer: int, head: int, method: ChannelMethod) -> HeadView:
    """One head in the method's axes."""
    states, axes = trace.head(layer, head), _axes(trace, layer, head, method)
    total = axes.spectrum.sum().clamp(min=1e-30)
    return HeadView(
        raw=states.keys.abs().numpy(),
        rotated=((states.keys - states.mean) @ axes.basis).abs().numpy(),
        spectrum=(axes.spectrum / total).numpy(),
        tokens=int(trace.layers[layer].token[-1]) + 1,
    )


def masks(
    trace: Trace, layer: int, head: int, methods: Mapping[str, ChannelMethod], k: int
) -> dict[str, NDArray[np.bool_]]:
    """By the names of `methods`: which numbers of each token they store at k, [n, d] bool."""
    states = trace.head(layer, head)
    return {name: one.mask(states, k).numpy() for name, one in methods.items()}


def attention_view(
    trace: Trace, layer: int, head: int, method: ChannelMethod, step: int, k: int
) -> AttentionView:
    """The attention of the query that chose token `trace.steps[step]` of the answer, exact and at
    k channels."""
    states, axes = trace.head(layer, head), _axes(trace, layer, head, method)
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
    width = max(layer.keys.shape[-1] for layer in trace.layers)
    found = np.full((*trace.shape, width), BEYOND, dtype=np.float32)
    for number, layer in enumerate(trace.layers):
        for head in range(trace.heads(number)):
            own = _axes(trace, number, head, method).spectrum / max(1, layer.count)
            found[number, head, : len(own)] = own.numpy()
    return found


def has_head(energies: Floats) -> NDArray[np.bool_]:
    """[layers, kv heads]: which heads a layer has."""
    found: NDArray[np.bool_] = energies[..., 0] != BEYOND
    return found


def key_widths(method: ChannelMethod, energies: Floats) -> NDArray[np.int32]:
    """Key channels that each head keeps, [layers, kv heads]."""
    return method.key_widths(torch.from_numpy(energies)).numpy()


def water_level(method: ChannelMethod, energies: Floats, layer: int, head: int) -> float | None:
    """Share of one head's energy below which a channel gets no bits."""
    level = method.water_level(torch.from_numpy(energies))
    total = max(float(energies[layer, head].clip(0).sum()), 1e-30)
    return None if level is None else level / total


def energy_map(method: ChannelMethod, energies: Floats) -> Floats:
    """Captured energy [layers, kv heads] at the method's widths."""
    inside = np.arange(energies.shape[-1]) < key_widths(method, energies)[..., None]
    energies = energies.clip(0)
    total = np.maximum(energies.sum(-1), 1e-30)
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
