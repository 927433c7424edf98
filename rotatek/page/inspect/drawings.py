"""A trace as figures: which numbers go into which picture.

A trace holds ingredients, so everything here is redrawn at any channel width without the model.
Symbols as in `rotatek.trace`: n traced tokens, d channels, k kept ones.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rotatek import analysis
from rotatek.channels import ChannelMethod
from rotatek.compare.columns import reducers
from rotatek.page.state import Run
from rotatek.trace import Trace
from viz import Drawing, bits, budget, energy, headmap, keys, masks, picture, scores, spectrum

Drawings = dict[str, Drawing]


class Place(NamedTuple):
    """What is looked at: a layer, one of its kv heads, and a recorded token of the answer."""

    layer: int
    head: int
    step: int = 0


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
        return analysis.compared(self.chosen, self.method)


def head_drawings(view: View) -> Drawings:
    """Everything about one head at the settings' width."""
    at, k = view.at, view.k
    head = analysis.head_view(view.trace, at.layer, at.head, view.method, k)
    before, after = keys.draw_pair(head.raw, head.rotated, k, tokens=head.tokens)
    return {
        "raw": before,
        "rotated": after,
        **mask_drawings(view, k, head.tokens),
        "energy": energy.draw(energy_curves(view, k), k),
        **bit_drawings(view, head.spectrum, k),
    } | attention_drawings(view)


def bit_drawings(view: View, shares: np.ndarray, k: int) -> Drawings:
    """The spectrum of one head, as `shares` of its energy, and the bits that its channels get."""
    at, energies = view.at, spectra(view.run, view.trace, view.method)
    level = analysis.water_level(view.method, energies, at.layer, at.head)
    depths = analysis.key_bits(view.trace, view.method, energies)[at.layer, at.head]
    return {"spectrum": spectrum.draw(shares, k, level=level), "bits": bits.draw(depths)}


def mask_drawings(view: View, k: int, tokens: int) -> Drawings:
    """What every method that leaves channels out stores, under the names of `mask_frames`."""
    methods = view.methods
    drawn = analysis.masks(view.trace, view.at.layer, view.at.head, methods, k)
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


def energy_curves(view: View, k: int) -> list[energy.Curve]:
    """A line a method. Kept in the run's memory: they do not change with what else is set."""
    return [energy.Curve(method, _held(view, method, k)) for method in view.methods.values()]


def _held(view: View, method: ChannelMethod, k: int) -> np.ndarray:
    """A method's curve, [d + 1]."""
    at, weighing = view.at, basis_of(view.method)
    return view.run.remember(
        ("curve", at.layer, at.head, basis_of(method), weighing, k),
        lambda: analysis.energy_curve(view.trace, at.layer, at.head, method, view.method, k),
    )


def attention_drawings(view: View) -> Drawings:
    """Where one head looks while one token of the answer is chosen, exactly and compressed."""
    at, trace = view.at, view.trace
    seen = analysis.attention_view(trace, at.layer, at.head, view.method, at.step, view.k)
    under, token = _under(view.run), trace.layers[at.layer].token
    drawn_scores = scores.draw(seen.exact, seen.approximate, view.method)
    if not trace.grids:
        plain = picture.draw_plain(under)
        return {"attention": plain, "compressed": plain, "scores": drawn_scores}
    shared = float(np.minimum(seen.attention, seen.compressed).sum())
    exact = analysis.on_grid(trace, token, seen.attention)
    cells = analysis.on_grid(trace, token, seen.compressed)
    return {
        "attention": _named(picture.draw_attention(under, exact), trace),
        "compressed": _named(picture.draw_attention(under, cells, shared), trace),
        "scores": drawn_scores,
    }


def answer_tokens(run: Run, trace: Trace) -> tuple[list[str], list[int]]:
    """The traced column's answer, token by token, and the numbers of those that can be looked at.

    One more than there are tokens is the end of the answer.
    """
    columns = [c for c in run.columns.values() if c.finished and c.finished.trace is trace]
    return list(columns[0].pieces) if columns else [], list(trace.steps)


def basis_of(method: ChannelMethod) -> ChannelMethod:
    """Equal for methods whose rotation and whose order of channels are the same at any width."""
    return method.for_figures().at(1.0)


def spectra(run: Run, trace: Trace, method: ChannelMethod) -> np.ndarray:
    """Every head's eigenvalues [layers, heads, d] as `method` weighs them, computed once a run."""
    basis = basis_of(method)
    return run.remember(("spectra", basis), lambda: analysis.spectra(trace, basis))


def key_widths(run: Run, trace: Trace, method: ChannelMethod) -> np.ndarray:
    """Key channels that each head keeps under a method that rotates, [layers, heads]."""
    return analysis.key_widths(method, spectra(run, trace, method))


def head_map(view: View, quantity: str) -> Drawing:
    """The layer x head map of `quantity` (a key of `headmap.QUANTITIES`) at the settings' width."""
    run, trace, method = view.run, view.trace, view.method
    energies = spectra(run, trace, method)
    if quantity == "energy":
        values = analysis.energy_map(method, energies)
    elif quantity == "bytes":
        values = analysis.bytes_map(trace, method, energies).astype(np.float64)
    else:
        widths = analysis.key_widths(method, energies)
        values = run.remember(
            ("error", basis_of(method), widths.tobytes()),
            lambda: analysis.score_errors(trace, method, energies),
        )
    return headmap.draw(values, quantity, view.at.layer, view.at.head)


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
    if not trace.grids:
        return picture.draw_plain(_under(run))
    every = np.ones(trace.visual_tokens, dtype=bool)
    grid, kept = trace.grids[0], every if run.chosen.kept is None else run.chosen.kept
    return _named(picture.draw_kept(_under(run), grid.lay(kept), grid.lay(every)), trace)


def _named(drawn: Drawing, trace: Trace) -> Drawing:
    """The same, saying which frame of a clip it shows."""
    label = trace.grids[0].label
    if not label:
        return drawn
    return drawn._replace(reading=f"Of {label}, the first of the clip: {drawn.reading}")


def budget_drawing(run: Run) -> Drawing:
    """Where the bytes of every finished column are."""
    return budget.draw(parts_of(run))


def parts_of(run: Run) -> dict[str, dict[str, int]]:
    """The bytes of every finished column, part by part."""
    return {
        title: _parts(column.finished.metrics["bytes"], whole=column.settings.is_baseline, run=run)
        for title, column in run.columns.items()
        if column.finished is not None
    }


def _parts(measured: dict[str, int], *, whole: bool, run: Run) -> dict[str, int]:
    """The plain cache holds visual and text tokens in one tensor: tell them apart."""
    if not whole:
        return measured
    visual = min(run.full_visual_bytes // 2, measured["text"] // 2)
    return measured | {
        "visual_keys": visual,
        "visual_values": visual,
        "text": measured["text"] - 2 * visual,
    }
