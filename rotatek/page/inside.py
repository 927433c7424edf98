"""A trace as figures: which numbers go into which picture.

A trace holds ingredients, so everything here is redrawn at any channel width without the model.
Symbols as in `rotatek.trace`: n traced tokens, d channels, k kept ones.
"""

import zlib
from typing import NamedTuple

import numpy as np

from rotatek.page.run import Run
from rotatek.settings import Settings
from rotatek.trace import HeadView, LayerTrace, Trace
from viz import Drawing, budget, energy, headmap, keys, masks, picture, scores, spectrum

Drawings = dict[str, Drawing]


class Place(NamedTuple):
    """What is looked at: a layer, one of its kv heads, and a recorded token of the answer."""

    layer: int
    head: int
    step: int = 0


def head_drawings(run: Run, trace: Trace, at: Place, settings: Settings) -> Drawings:
    """Everything about one head at the settings' width."""
    k = int(widths(run, trace, settings)[at.layer, at.head])
    view = trace.head(at.layer, at.head, settings, k)
    n, d = view.raw.shape
    tokens = int(view.token[-1]) + 1
    before, after = keys.draw_pair(view.raw, view.rotated, view.k, tokens=tokens)
    think = np.broadcast_to(view.think, (n, d))
    ours = np.broadcast_to(np.arange(d) < view.k, (n, d))
    curves = energy_curves(trace.layers[at.layer], at.head, view, settings)
    return {
        "raw": before,
        "rotated": after,
        "think": masks.draw(think, "think", tokens=tokens),
        "spark": masks.draw(view.spark, "spark", tokens=tokens),
        "rotatek": masks.draw(ours, "rotatek", tokens=tokens),
        "energy": energy.draw(curves, view.k),
        "spectrum": spectrum.draw(view.spectrum, view.k),
    } | look_drawings(run, trace, at, settings)


def look_drawings(run: Run, trace: Trace, at: Place, settings: Settings) -> Drawings:
    """Where one head looks while one token of the answer is chosen, exactly and compressed."""
    k = int(widths(run, trace, settings)[at.layer, at.head])
    look = trace.look(at.layer, at.head, settings, at.step, k)
    token = trace.layers[at.layer].token
    exact = picture.draw_attention(_under(run), on_grid(trace, token, look.attention))
    cells = on_grid(trace, token, look.compressed)
    shared = float(np.minimum(look.attention, look.compressed).sum())
    return {
        "attention": exact,
        "compressed": picture.draw_attention(_under(run), cells, shared),
        "scores": scores.draw(look.exact, look.approximate, "rotatek"),
    }


def on_grid(trace: Trace, token: np.ndarray, attention: np.ndarray) -> np.ndarray:
    """Attention [n] of the traced tokens on the first image's grid [rows, columns]."""
    rows, columns = trace.grids[0]
    mass = np.zeros(rows * columns, dtype=np.float64)
    inside = token < len(mass)
    mass[token[inside]] = attention[inside]
    return mass.reshape(rows, columns)


def answer_tokens(run: Run, trace: Trace) -> tuple[list[str], list[int]]:
    """The traced column's answer, token by token, and the numbers of those with a look of their
    own. One more than there are tokens is the end of the answer."""
    columns = [c for c in run.columns.values() if c.finished and c.finished.trace is trace]
    return list(columns[0].pieces) if columns else [], list(trace.steps)


def energy_curves(
    layer: LayerTrace, head: int, view: HeadView, settings: Settings
) -> dict[str, np.ndarray]:
    """Share of the query-weighted variation between tokens that survives with k channels,
    [d + 1] a method, k = 0 first.

    ThinK's channels in the order of their scores; SparK with what it puts in pruned channels'
    place.
    """
    squared = np.square(view.raw)
    sigma = query_weights(layer, head) if settings.weighting != "none" else np.ones(len(view.think))
    raw = layer.keys[head].astype(np.float32)
    weighted = np.square((raw - layer.mean[head]) * sigma)
    shared = np.argsort(-(np.square(sigma) * squared.mean(axis=0)), kind="stable")
    total = max(float(weighted.sum()), 1e-30)
    norms = group_norms(layer, head)
    held = {
        "rotatek": np.r_[0.0, np.asarray(view.energy, dtype=np.float64)],
        "think": np.r_[0.0, np.cumsum(weighted.sum(axis=0)[shared]) / total],
        "spark": spark_curve(raw, norms, sigma, view.k),
    }
    return {method: np.clip(curve, 0.0, 1.0) for method, curve in held.items()}


def spark_curve(raw: np.ndarray, norms: np.ndarray, sigma: np.ndarray, k: int) -> np.ndarray:
    """What SparK with sign recovery keeps of the variation of Keys `raw` [n, d], [d + 1].

    norms [d]: its channel weights; sigma [d]: those of the variation. Worked out at k and at
    sixteen other widths, and straight in between.
    """
    d = raw.shape[1]
    score = np.square(raw) * norms
    order = np.argsort(-score, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(d), order.shape), axis=1)
    scale = np.sign(raw) / np.sqrt(np.maximum(norms, 1e-30))
    total = max(float(np.square((raw - raw.mean(axis=0)) * sigma).sum()), 1e-30)
    points = {0: 0.0, d: 1.0}
    for kept in {k, *np.linspace(1, d - 1, 16).astype(int).tolist()} - {d}:
        pruned = rank >= kept
        level = np.sqrt((score * pruned).sum(axis=1, keepdims=True) / (d - kept))
        error = np.where(pruned, scale * level - raw, 0.0)
        lost = np.square((error - error.mean(axis=0)) * sigma).sum()
        points[kept] = 1.0 - float(lost) / total
    widths_at = sorted(points)
    return np.interp(np.arange(d + 1), widths_at, [points[width] for width in widths_at])


def group_norms(layer: LayerTrace, head: int) -> np.ndarray:
    """SparK's channel weights [d]: norm over the window of the group's mean query."""
    group = layer.queries.shape[0] // layer.keys.shape[0]
    mine = layer.queries[head * group : (head + 1) * group].astype(np.float32)
    return np.sqrt(np.square(mine.mean(axis=0)).sum(axis=0))


def query_weights(layer: LayerTrace, head: int) -> np.ndarray:
    """sigma [d]: L2 norm of each channel over the window's queries of the head's group."""
    group = layer.queries.shape[0] // layer.keys.shape[0]
    mine = layer.queries[head * group : (head + 1) * group].astype(np.float32)
    return np.sqrt(np.square(mine).sum(axis=(0, 1)))


def spectra(run: Run, trace: Trace, settings: Settings) -> np.ndarray:
    """Every head's eigenvalues under the settings' weighting, computed once a run."""
    weighting = settings.weighting
    return run.remember(("spectra", weighting), lambda: trace.spectra(weighting))


def widths(run: Run, trace: Trace, settings: Settings) -> np.ndarray:
    """Key channels that each head keeps, [layers, heads]."""
    return trace.widths(settings, spectra(run, trace, settings))


def head_map(run: Run, trace: Trace, quantity: str, at: Place, settings: Settings) -> Drawing:
    """The layer x head map of `quantity` (a key of `headmap.QUANTITIES`) at the settings' width."""
    shares = spectra(run, trace, settings)
    if quantity == "energy":
        values = trace.energy_map(settings, shares)
    elif quantity == "bytes":
        values = trace.bytes_map(settings, shares).astype(np.float64)
    else:
        values = run.remember(
            ("error", settings.weighting, settings.keep_channels, settings.widths),
            lambda: score_errors(run, trace, settings),
        )
    return headmap.draw(values, quantity, at.layer, at.head)


def score_errors(run: Run, trace: Trace, settings: Settings) -> np.ndarray:
    """Every head's score error for the prompt's last row, [layers, heads]."""
    kept = widths(run, trace, settings)
    layers, heads = trace.shape
    return np.array([
        [trace.look(row, head, settings, 0, int(kept[row, head])).score_error
         for head in range(heads)]
        for row in range(layers)
    ])  # fmt: skip


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


def kept_drawing(run: Run, trace: Trace) -> Drawing:
    """Which visual tokens the chosen settings kept, over the image."""
    rows, columns = trace.grids[0]
    kept = run.chosen.kept
    if kept is None:
        kept = np.ones(rows * columns, dtype=bool)
    return picture.draw_kept(_under(run), kept[: rows * columns].reshape(rows, columns))


def budget_drawing(run: Run) -> Drawing:
    """Where the bytes of every finished column are."""
    return budget.draw(parts_of(run))


def parts_of(run: Run) -> dict[str, dict[str, int]]:
    """The bytes of every finished column, part by part."""
    return {
        title: _parts(column.finished.metrics["bytes"], column.method, run.full_visual_bytes)
        for title, column in run.columns.items()
        if column.finished is not None
    }


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
