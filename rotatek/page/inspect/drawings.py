"""A trace as figures: which numbers go into which picture. Symbols as in `rotatek.inspect.trace`: n
traced tokens, d channels, k kept ones."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from PIL import Image

from rotatek.inspect import trace_analysis
from rotatek.inspect.trace import Trace
from rotatek.methods.channels import ChannelMethod
from rotatek.methods.settings import reducers
from rotatek.page import markup
from rotatek.service.service import Run
from viz import Drawing, budget, head_heatmap, image_overlay, keys
from viz.theme import percent

SIDE: Final = 448  # pixels of a picture under a figure
Drawings = dict[str, Drawing]


class Place(NamedTuple):
    """What is selected: a layer, its Key head, and numbers of a recorded token and a picture."""

    layer: int
    head: int
    step: int = 0
    grid: int = 0


@dataclass(frozen=True)
class View:
    """A place of a run's trace, and under which methods it is drawn.

    Args:
        method: one that rotates, at the settings' width; weights and widths are its own.
        chosen: the visitor's own method, which may be another; the others have their defaults.
    """

    run: Run
    trace: Trace
    at: Place
    method: ChannelMethod
    chosen: ChannelMethod

    @property
    def basis(self) -> ChannelMethod:
        """Equal for methods whose rotation and order of channels are the same at any width."""
        return self.method.for_figures().with_keep(1.0)

    @property
    def energies(self) -> np.ndarray:
        """Every head's eigenvalues [layers, heads, d] as the method weighs them."""
        basis = self.basis
        return self.run.remember(
            ("spectra", basis), lambda: trace_analysis.spectra(self.trace, basis)
        )

    @property
    def widths(self) -> np.ndarray:
        """Key channels that each head keeps, [layers, heads]."""
        return trace_analysis.key_widths(self.method, self.energies)

    @property
    def k(self) -> int:
        """Channels that the head keeps."""
        return int(self.widths[self.at.layer, self.at.head])

    @property
    def damage(self) -> np.ndarray:
        """KL of each head compressed alone, in nats a token, float [layers, heads] that a
        measurement fills; NaN where there is none yet."""
        empty = np.full(self.trace.shape, np.nan)
        return self.run.remember(("damage", self.method.of_paper()), lambda: empty)


def head_drawings(view: View) -> Drawings:
    """Everything about one head; a mask for every method that leaves channels out."""
    (layer, head, *_), k = view.at, view.k
    methods = trace_analysis.compared(view.chosen, view.method)
    seen = trace_analysis.head_view(view.trace, layer, head, view.method)
    level = trace_analysis.water_level(view.method, view.energies, layer, head)
    before, after = keys.draw_pair(seen.raw, seen.rotated, k, tokens=seen.tokens)
    kept = trace_analysis.masks(view.trace, layer, head, methods, k)
    return {
        "raw": before,
        "rotated": after,
        **{
            mask_frame(name): keys.draw_mask(mask, methods[name], tokens=seen.tokens)
            for name, mask in kept.items()
        },
        "spectrum": keys.draw_spectrum(seen.spectrum, k, level=level),
    } | attention_drawings(view)


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
    under, token = _under(view.run, trace, at.grid), trace.layers[at.layer].token
    drawn = {"scores": keys.draw_scores(seen.exact, seen.approximate, view.method)}
    if not trace.grids:
        return drawn | dict.fromkeys(("attention", "compressed"), image_overlay.draw_plain(under))
    shared = float(np.minimum(seen.attention, seen.compressed).sum())
    for name, weights, alike in (
        ("attention", seen.attention, None),
        ("compressed", seen.compressed, shared),
    ):
        cells = trace_analysis.on_grid(trace, token, weights, at.grid)
        share = float(cells.sum()) / max(float(weights.sum()), 1e-30)
        drawing = image_overlay.draw_attention(under, cells, alike)
        drawn[name] = _named(drawing, trace, at.grid, share)
    return drawn


def head_map(view: View, quantity: str) -> Drawing:
    """The layer x head map of a quantity of `head_heatmap.QUANTITIES` at the settings' width."""
    energies = view.energies
    if quantity == "energy":
        values = trace_analysis.energy_map(view.method, energies)
    elif quantity == "damage":
        known = view.damage.astype(np.float32)
        values = known / max(float(np.nansum(known)), 1e-30)
    else:
        values = view.run.remember(
            ("error", view.basis, view.widths.tobytes()),
            lambda: trace_analysis.score_errors(view.trace, view.method, energies),
        )
    own = np.where(trace_analysis.has_head(energies), values, np.nan)
    return head_heatmap.draw(own, quantity, view.at.layer, view.at.head)


def sent_once(run: Run, trace: Trace, grid: int = 0) -> dict[str, str]:
    """The picture that a grid lies on, encoded once, by the name by which figures refer to it."""
    number = trace.grids[grid].picture if trace.grids else 0

    def made() -> dict[str, str]:
        source = markup.as_uri(_picture(run, number), SIDE)
        return {f"{zlib.crc32(source.encode()):08x}": source}

    return run.remember(("picture", number), made)


def _picture(run: Run, number: int) -> Image.Image:
    return run.pictures[number] if run.pictures else Image.fromarray(run.pixels)


def _under(run: Run, trace: Trace, grid: int) -> image_overlay.Backdrop:
    """The picture by name."""
    (name,) = sent_once(run, trace, grid)
    size = _picture(run, trace.grids[grid].picture if trace.grids else 0).size
    return image_overlay.Backdrop(f"rk:{name}", size[1], size[0])


def kept_drawing(run: Run, trace: Trace, grid: int = 0) -> Drawing:
    """Which visual tokens the chosen settings kept, over one of the pictures."""
    under = _under(run, trace, grid)
    if not trace.grids:
        return image_overlay.draw_plain(under)
    every = np.ones(trace.visual_tokens, dtype=bool)
    cells, kept = trace.grids[grid].to_cells, every if run.chosen.kept is None else run.chosen.kept
    return _named(image_overlay.draw_kept(under, cells(kept), cells(every)), trace, grid)


def frames_of(trace: Trace) -> list[str]:
    """What can be chosen, where there are several pictures, or views of one."""
    of, names = [grid.picture for grid in trace.grids], []
    for number, shown in enumerate(of):
        views, view = of.count(shown), of[: number + 1].count(shown)
        name = f"picture {shown + 1}"
        whole = str(views) if views == len(of) else name
        names.append(name if views == 1 else f"view {view} of {whole}")
    return names if len(of) > 1 else []


def _named(drawn: Drawing, trace: Trace, grid: int, share: float | None = None) -> Drawing:
    """The same, saying which picture it shows, and its share of the attention."""
    names = frames_of(trace)
    if not names:
        return drawn
    part = "" if share is None else f", on which {percent(share)} of the attention falls"
    return drawn._replace(reading=f"Of {names[grid]}{part}: {drawn.reading}")


def budget_drawing(run: Run) -> Drawing:
    """Where the bytes of every finished column are, part by part."""
    done = {title: column.finished for title, column in run.columns.items()}
    return budget.draw({title: one.metrics["bytes"] for title, one in done.items() if one})
