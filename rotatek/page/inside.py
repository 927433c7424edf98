"""A trace as figures: which numbers go into which picture.

A trace holds ingredients, so everything here is redrawn at any channel width without the model.
Symbols as in `rotatek.trace`: n traced tokens, d channels, k kept ones.
"""

import zlib

import numpy as np
import torch

from rotatek import rotation
from rotatek.channels.rotatek import ADAPTIVE_CAP
from rotatek.channels.widths import allot
from rotatek.config import Settings, channels_kept
from rotatek.page.run import Run
from rotatek.trace import HeadView, LayerTrace, Trace
from viz import Drawing, budget, energy, headmap, keys, masks, picture, scores, spectrum

Drawings = dict[str, Drawing]


def head_drawings(run: Run, trace: Trace, layer: int, head: int, settings: Settings) -> Drawings:
    """Everything about one head at the settings' width."""
    view = trace.head(layer, head, settings)
    n, d = view.raw.shape
    tokens = int(view.token[-1]) + 1
    before, after = keys.draw_pair(view.raw, view.rotated, view.k, tokens=tokens)
    think = np.broadcast_to(view.think, (n, d))
    ours = np.broadcast_to(np.arange(d) < view.k, (n, d))
    curves = energy_curves(trace.layers[layer], head, view, settings)
    return {
        "raw": before,
        "rotated": after,
        "think": masks.draw(think, "think", tokens=tokens),
        "spark": masks.draw(view.spark, "spark", tokens=tokens),
        "rotatek": masks.draw(ours, "rotatek", tokens=tokens),
        "energy": energy.draw(curves, view.k),
        "spectrum": spectrum.draw(view.spectrum, view.k),
        "scores": scores.draw(view.exact, view.approximate, "rotatek"),
        "attention": _attention(run, trace, view),
    }


def energy_curves(
    layer: LayerTrace, head: int, view: HeadView, settings: Settings
) -> dict[str, np.ndarray]:
    """Share of the query-weighted variation that k channels hold, [d + 1] a method, k = 0 first.

    ThinK's channels in the order of their scores; SparK's in the order of each token's own.
    """
    squared = np.square(view.raw)
    sigma = query_weights(layer, head) if settings.weighting != "none" else np.ones(len(view.think))
    raw = layer.keys[head].astype(np.float32) - layer.mean[head]
    weighted = np.square(raw * sigma)
    shared = np.argsort(-(np.square(sigma) * squared.mean(axis=0)), kind="stable")
    own = np.argsort(-(squared * sigma), axis=1, kind="stable")
    total = max(float(weighted.sum()), 1e-30)
    held = {
        "rotatek": np.asarray(view.energy, dtype=np.float64),
        "think": np.cumsum(weighted.sum(axis=0)[shared]) / total,
        "spark": np.cumsum(np.take_along_axis(weighted, own, axis=1).sum(axis=0)) / total,
    }
    return {method: np.r_[0.0, np.clip(curve, 0.0, 1.0)] for method, curve in held.items()}


def query_weights(layer: LayerTrace, head: int) -> np.ndarray:
    """sigma [d]: L2 norm of each channel over the window's queries of the head's group."""
    group = layer.queries.shape[0] // layer.keys.shape[0]
    mine = layer.queries[head * group : (head + 1) * group].astype(np.float32)
    return np.sqrt(np.square(mine).sum(axis=(0, 1)))


def spectra(trace: Trace, weighting: str) -> np.ndarray:
    """Eigenvalues by falling size as shares of their sum, float32 [layers, heads, d]."""
    rows = []
    for layer in trace.layers:
        covariance = torch.from_numpy(layer.covariance)
        if weighting != "none":
            heads = range(layer.keys.shape[0])
            sigma = torch.from_numpy(np.stack([query_weights(layer, head) for head in heads]))
            covariance = rotation.weighted(covariance, sigma)
        values = torch.linalg.eigvalsh(covariance.double()).flip(-1).clamp(min=0)
        rows.append((values / values.sum(-1, keepdim=True).clamp(min=1e-300)).float().numpy())
    return np.stack(rows)


def width_range(run: Run, trace: Trace, keep_channels: float) -> tuple[int, int]:
    """The fewest and the most Key channels that adaptive widths give a head of this image."""
    d = trace.layers[0].covariance.shape[-1]
    energies = run.remember(("energies",), lambda: [_energies(la) for la in trace.layers])
    k = channels_kept(d, keep_channels)
    cap = min(d, ADAPTIVE_CAP * k)
    widths = torch.cat(allot([energy[..., :cap] for energy in energies], k), 1)
    return int(widths.min()), int(widths.max())


def _energies(layer: LayerTrace) -> torch.Tensor:
    """Eigenvalues [1, heads, d] by falling size in the consistent metric, which heads share."""
    heads = range(layer.keys.shape[0])
    sigma = torch.from_numpy(np.stack([query_weights(layer, head) for head in heads]))
    sigma = sigma / sigma.mean(-1, keepdim=True)
    weighted = rotation.weighted(torch.from_numpy(layer.covariance), sigma)
    return torch.linalg.eigvalsh(weighted.double()).flip(-1).clamp(min=0).float()[None]


def head_map(
    run: Run, trace: Trace, quantity: str, layer: int, head: int, settings: Settings
) -> Drawing:
    """The layer x head map of `quantity` ("energy" or "error") at the settings' width."""
    if quantity == "energy":
        shares = run.remember(
            ("spectra", settings.weighting), lambda: spectra(trace, settings.weighting)
        )
        k = channels_kept(shares.shape[-1], settings.keep_channels)
        return headmap.draw(shares[..., :k].sum(axis=-1), quantity, layer, head)
    layers, heads = trace.shape
    errors = run.remember(
        ("error", settings.weighting, settings.keep_channels),
        lambda: np.array(
            [
                [trace.head(row, column, settings).score_error for column in range(heads)]
                for row in range(layers)
            ]
        ),
    )
    return headmap.draw(errors, quantity, layer, head)


def backdrop(run: Run) -> picture.Backdrop:
    """The run's image, shrunk and encoded once."""
    return run.remember("backdrop", lambda: picture.backdrop(run.pixels))


def pictures(run: Run) -> dict[str, str]:
    """The image under the name by which every later figure of the run refers to it."""
    source = backdrop(run).source
    return {f"{zlib.crc32(source.encode()):08x}": source}


def _under(run: Run) -> picture.Backdrop:
    """The run's image by name: it is sent once, with the overview."""
    (name,) = pictures(run)
    return backdrop(run)._replace(source=f"rk:{name}")


def _attention(run: Run, trace: Trace, view: HeadView) -> Drawing:
    """Where the last word of the question looks, over the image."""
    rows, columns = trace.grids[0]
    mass = np.zeros(rows * columns, dtype=np.float64)
    inside = view.token < len(mass)
    mass[view.token[inside]] = view.attention[inside]
    return picture.draw_attention(_under(run), mass.reshape(rows, columns))


def kept_drawing(run: Run, trace: Trace) -> Drawing:
    """Which visual tokens the chosen settings kept, over the image."""
    rows, columns = trace.grids[0]
    kept = run.chosen.kept
    if kept is None:
        kept = np.ones(rows * columns, dtype=bool)
    return picture.draw_kept(_under(run), kept[: rows * columns].reshape(rows, columns))


def budget_drawing(run: Run) -> Drawing:
    """Where the bytes of every finished column are."""
    parts = {
        title: _parts(column.finished.metrics["bytes"], column.method, run.full_visual_bytes)
        for title, column in run.columns.items()
        if column.finished is not None
    }
    return budget.draw(parts)


def _parts(measured: dict[str, int], method: str, full_visual: int) -> dict[str, int]:
    """The plain cache holds visual and text tokens in one tensor: tell them apart."""
    if method != "full":
        return measured
    visual = min(full_visual // 2, measured["text"] // 2)
    return measured | {
        "visual_keys": visual,
        "visual_values": visual,
        "text": measured["text"] - 2 * visual,
    }
