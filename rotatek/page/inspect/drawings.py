"""A trace as figures: which numbers go into which picture.

A trace holds Keys, covariances and queries, so figures are redrawn at any channel width without the
model.
Symbols as in `rotatek.inspect.trace`: n traced tokens, d channels, k kept ones.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rotatek.inspect import trace_analysis
from rotatek.inspect.trace import Trace
from rotatek.methods.channels import ChannelMethod
from rotatek.methods.columns import reducers
from rotatek.service.run import Run
from viz import (
    Drawing,
    budget,
    head_heatmap,
    image_overlay,
    keys,
    masks,
    scores,
    spectrum,
)
from viz.theme import percent

Drawings = dict[str, Drawing]


class Place(NamedTuple):
    """The selection: a layer, one of its Key heads, a recorded token of the answer, and one of the
    pictures."""

    layer: int
    head: int
    step: int = 0
    grid: int = 0


@dataclass(frozen=True)
class View:
    """A place of a run's trace, and under which methods it is drawn.

    Args:
        run: whose memory keeps what is slow to work out.
        trace: the run's.
        at: the place.
        method: one that rotates, at the settings' width; weights and widths are its own.
        chosen: the visitor's own method, which may be another; the others have their defaults.
    """

    run: Run
    trace: Trace
    at: Place
    method: ChannelMethod
    chosen: ChannelMethod

    @property
    def k(self) -> int:
        """Channels that the head keeps."""
        return int(key_widths(self.run, self.trace, self.method)[self.at.layer, self.at.head])

    @property
    def methods(self) -> dict[str, ChannelMethod]:
        """What is compared, by name."""
        return trace_analysis.compared(self.chosen, self.method)


def head_drawings(view: View) -> Drawings:
    """Everything about one head at the settings' width."""
    at, k = view.at, view.k
    head = trace_analysis.head_view(view.trace, at.layer, at.head, view.method)
    energies = spectra(view.run, view.trace, view.method)
    level = trace_analysis.water_level(view.method, energies, at.layer, at.head)
    before, after = keys.draw_pair(head.raw, head.rotated, k, tokens=head.tokens)
    return {
        "raw": before,
        "rotated": after,
        **mask_drawings(view, k, head.tokens),
        "spectrum": spectrum.draw(head.spectrum, k, level=level),
    } | attention_drawings(view)


def mask_drawings(view: View, k: int, tokens: int) -> Drawings:
    """What every method that leaves channels out stores, under the names of `mask_frames`."""
    methods = view.methods
    drawn = trace_analysis.masks(view.trace, view.at.layer, view.at.head, methods, k)
    return {
        mask_frame(name): masks.draw(mask, methods[name], tokens=tokens)
        for name, mask in drawn.items()
    }


def mask_frame(name: str) -> str:
    """The element that shows a method's mask; a name may hold what an element's id may not."""
    return "mask-" + "".join(c if c.isalnum() or c in "-_" else "-" for c in name)


def mask_frames() -> Mapping[str, str]:
    """The title of every mask's figure, by `mask_frame`, the default method's last."""
    return {
        mask_frame(method.name): method.title or f"{method.label}: what it keeps"
        for method in reducers()
    }


def attention_drawings(view: View) -> Drawings:
    """The attention of one head while one token of the answer is chosen, exact and compressed."""
    at, trace = view.at, view.trace
    seen = trace_analysis.attention_view(trace, at.layer, at.head, view.method, at.step, view.k)
    under, token = _under(view.run, _shown(trace, at.grid)), trace.layers[at.layer].token
    drawn_scores = scores.draw(seen.exact, seen.approximate, view.method)
    if not trace.grids:
        plain = image_overlay.draw_plain(under)
        return {"attention": plain, "compressed": plain, "scores": drawn_scores}
    shared = float(np.minimum(seen.attention, seen.compressed).sum())
    exact = trace_analysis.on_grid(trace, token, seen.attention, at.grid)
    cells = trace_analysis.on_grid(trace, token, seen.compressed, at.grid)
    shares = [
        float(one.sum()) / max(float(whole.sum()), 1e-30)
        for one, whole in ((exact, seen.attention), (cells, seen.compressed))
    ]
    return {
        "attention": _named(image_overlay.draw_attention(under, exact), trace, at.grid, shares[0]),
        "compressed": _named(
            image_overlay.draw_attention(under, cells, shared), trace, at.grid, shares[1]
        ),
        "scores": drawn_scores,
    }


def answer_tokens(run: Run, trace: Trace) -> tuple[list[str], list[int]]:
    """The traced column's answer, token by token, and the numbers of those that can be selected.

    One more than there are tokens is the end of the answer.
    """
    columns = [c for c in run.columns.values() if c.finished and c.finished.trace is trace]
    return list(columns[0].pieces) if columns else [], list(trace.steps)


def basis_of(method: ChannelMethod) -> ChannelMethod:
    """Equal for methods whose rotation and whose order of channels are the same at any width."""
    return method.for_figures().with_keep(1.0)


def spectra(run: Run, trace: Trace, method: ChannelMethod) -> np.ndarray:
    """Every head's eigenvalues [layers, heads, d] as `method` weighs them, computed once a run."""
    basis = basis_of(method)
    return run.remember(("spectra", basis), lambda: trace_analysis.spectra(trace, basis))


def key_widths(run: Run, trace: Trace, method: ChannelMethod) -> np.ndarray:
    """Key channels that each head keeps under a method that rotates, [layers, heads]."""
    return trace_analysis.key_widths(method, spectra(run, trace, method))


def head_map(view: View, quantity: str) -> Drawing:
    """The layer x head map of a quantity of `head_heatmap.QUANTITIES` at the settings' width."""
    run, trace, method = view.run, view.trace, view.method
    energies = spectra(run, trace, method)
    if quantity == "energy":
        values = trace_analysis.energy_map(method, energies)
    elif quantity == "damage":
        known = damage_of(view).astype(np.float32)
        values = known / max(float(np.nansum(known)), 1e-30)
    else:
        widths = trace_analysis.key_widths(method, energies)
        values = run.remember(
            ("error", basis_of(method), widths.tobytes()),
            lambda: trace_analysis.score_errors(trace, method, energies),
        )
    own = np.where(trace_analysis.has_head(energies), values, np.nan)
    return head_heatmap.draw(own, quantity, view.at.layer, view.at.head)


def damage_of(view: View) -> np.ndarray:
    """KL of each head compressed alone, in nats a token, float [layers, heads] that a measurement
    fills; NaN where there is none yet."""
    empty = np.full(view.trace.shape, np.nan)
    return view.run.remember(("damage", view.method.of_paper()), lambda: empty)


def backdrop(run: Run, number: int = 0) -> image_overlay.Backdrop:
    """One of the run's pictures, shrunk and encoded once."""

    def made() -> image_overlay.Backdrop:
        held = number < len(run.pictures)
        return image_overlay.backdrop(np.asarray(run.pictures[number]) if held else run.pixels)

    return run.remember(("backdrop", number), made)


def pictures(run: Run, number: int = 0) -> dict[str, str]:
    """A picture under the name by which every later figure of the run refers to it."""
    source = backdrop(run, number).source
    return {f"{zlib.crc32(source.encode()):08x}": source}


def pictured(run: Run, trace: Trace, grid: int) -> dict[str, str]:
    """`pictures`, of the one that a grid lies on."""
    return pictures(run, _shown(trace, grid))


def _shown(trace: Trace, grid: int) -> int:
    """The number of the picture that a grid lies on."""
    return trace.grids[grid].picture if trace.grids else 0


def _under(run: Run, number: int) -> image_overlay.Backdrop:
    """A picture of the run by name: it is sent once, when it is first shown."""
    (name,) = pictures(run, number)
    return backdrop(run, number)._replace(source=f"rk:{name}")


def kept_drawing(run: Run, trace: Trace, number: int = 0) -> Drawing:
    """Which visual tokens the chosen settings kept, over one of the pictures."""
    under = _under(run, _shown(trace, number))
    if not trace.grids:
        return image_overlay.draw_plain(under)
    every = np.ones(trace.visual_tokens, dtype=bool)
    grid, kept = trace.grids[number], every if run.chosen.kept is None else run.chosen.kept
    return _named(
        image_overlay.draw_kept(under, grid.to_cells(kept), grid.to_cells(every)), trace, number
    )


def frames_of(trace: Trace) -> list[str]:
    """What can be chosen, where there are several pictures, or views of one."""
    if len(trace.grids) < 2:
        return []
    of = [grid.picture for grid in trace.grids]
    names = []
    for number, grid in enumerate(trace.grids):
        name = f"picture {grid.picture + 1}"
        views, view = of.count(grid.picture), of[: number + 1].count(grid.picture)
        whole = str(views) if views == len(of) else name
        names.append(name if views == 1 else f"view {view} of {whole}")
    return names


def _named(drawn: Drawing, trace: Trace, number: int, share: float | None = None) -> Drawing:
    """The same, saying which picture it shows, and its share of the attention."""
    names = frames_of(trace)
    if not names:
        return drawn
    part = "" if share is None else f", on which {percent(share)} of the attention falls"
    return drawn._replace(reading=f"Of {names[number]}{part}: {drawn.reading}")


def budget_drawing(run: Run) -> Drawing:
    """Where the bytes of every finished column are."""
    return budget.draw(parts_of(run))


def parts_of(run: Run) -> dict[str, dict[str, int]]:
    """The bytes of every finished column, part by part."""
    return {
        title: column.finished.metrics["bytes"]
        for title, column in run.columns.items()
        if column.finished is not None
    }
