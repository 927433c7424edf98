"""What makes the figures of Look inside change: a new run, a slider, a cell of the map."""

from collections.abc import Iterable, Mapping
from typing import Any

import gradio as gr

from rotatek.errors import SettingError
from rotatek.inspect.trace import Trace
from rotatek.methods.channels import CHANNELS
from rotatek.methods.tokens import TOKENS
from rotatek.page import plot_transport
from rotatek.page.binding import AT_ONCE, DRAWING, QUIET, Shown, Widgets
from rotatek.page.inspect import drawings
from rotatek.page.inspect.drawings import Place, View
from rotatek.page.inspect.widgets import marked_answer
from rotatek.page.settings import settings_of
from rotatek.service.run import Run


def overview(run: Run | None) -> Shown:
    """What a new run changes: the ends of the sliders, the bytes, the kept tokens, the image."""
    trace = None if run is None else run.trace
    if run is None or trace is None:
        return {}
    layers, heads = trace.shape
    drawn = {"budget": drawings.budget_drawing(run), "kept": drawings.kept_drawing(run, trace)}
    return {
        "layer": gr.update(maximum=layers - 1),
        "head": gr.update(maximum=max(1, heads - 1)),
        "step": gr.update(maximum=max(1, len(trace.steps) - 1), value=0),
        "frame": frame_slider(trace),
        "overview": plot_transport.payload(drawn, drawings.sent_once(run, trace)),
    }


def frame_slider(trace: Trace) -> Any:
    """The first picture again, of as many as there are now."""
    several = len(drawings.frames_of(trace))
    one = len({grid.picture for grid in trace.grids}) == 1
    label = "View of the picture" if one else "Picture"
    return gr.update(maximum=max(2, several), value=1, label=label, visible=several > 1)


def redraw(
    run: Run | None, map_shows: str, layer: float, head: float, step: float, frame: float = 1,
    **form: Any,
) -> Shown:  # fmt: skip
    """One head, at the width that the settings ask for."""
    view = view_of(run, (layer, head, step, frame), form)
    if view is None:
        return {}
    drawn = drawings.head_drawings(view) | {"map": drawings.head_map(view, map_shows)}
    return {"drawn": plot_transport.payload(drawn)}


def step_through(
    run: Run | None, layer: float, head: float, step: float, frame: float = 1, **form: Any
) -> Shown:
    """Another token of the answer, or another picture."""
    view = view_of(run, (layer, head, step, frame), form)
    if view is None:
        return {}
    run, trace, at = view.run, view.trace, view.at
    drawn, under = drawings.attention_drawings(view), {}
    if drawings.frames_of(trace):
        drawn["kept"] = drawings.kept_drawing(run, trace, at.grid)
        under = drawings.sent_once(run, trace, at.grid)
    traced = (c for c in run.columns.values() if c.finished and c.finished.trace is trace)
    pieces = next((column.pieces for column in traced), [])
    return {
        "attention": plot_transport.payload(drawn, under),
        "said": marked_answer(pieces, trace.steps, at.step),
    }


def view_of(run: Run | None, place: tuple[float, ...], form: Mapping[str, Any]) -> View | None:
    """The selected view; None while there is no trace.

    Where the chosen method does not rotate, the default one's rotation is drawn, with what the
    widgets say of it.

    Args:
        run: whose trace is drawn.
        place: values of the sliders: layer, head, step, and frame from 1; clamped to the trace.
        form: the settings.

    Raises:
        SettingError: for a head that this layer lacks, where others have it.
    """
    trace = None if run is None else run.trace
    if run is None or trace is None:
        return None
    layer, head, step, frame = (*place, 1)[:4]
    (layers, heads), stand = trace.shape, (layer, head, step, frame - 1)
    tops = (layers - 1, heads - 1, len(trace.steps) - 1, max(len(trace.grids) - 1, 0))
    at = Place(*(min(max(int(v), 0), top) for v, top in zip(stand, tops, strict=True)))
    own = trace.heads(at.layer)
    if at.head >= own:
        known = f"a number below {own}, as layer {at.layer} has as many Key heads"
        raise SettingError("head", known, at.head)
    form = {**form, "tokens": TOKENS.default.name}
    method = chosen = settings_of(form).channels
    if not chosen.rotates:
        method = settings_of({**form, "channels": CHANNELS.default.name}).channels
    return View(run, trace, at, method, chosen)


def choose_cell(cell: str) -> Shown:
    """A click on the map, as "layer,head,time"."""
    parts = cell.split(",")
    if len(parts) != 3 or not all(part.isdecimal() and len(part) < 16 for part in parts):
        return {}
    return {"layer": int(parts[0]), "head": int(parts[1])}


def wire_inspect(widgets: Widgets, finished: Iterable[Any]) -> None:
    """Figures follow their widgets, also while these are dragged: one redraw at a time, the last
    one always.

    Args:
        widgets: of the page.
        finished: events after which a run is complete.
    """
    w = widgets
    channels = [name for name in w.groups["form"] if name in {"channels", *CHANNELS.options()}]
    moved = [w[name].change for name in ("run", "layer", "head", "map_shows", *channels)]
    w.listen(moved, redraw, "drawn", **DRAWING)
    stepped = [w[name].change for name in ("run", "step", "frame")]
    w.listen(stepped, step_through, "attention said", **DRAWING)
    w.listen(w["cell"].change, choose_cell, "layer head", **AT_ONCE)
    for event in finished:
        w.listen(event.then, overview, "layer head step frame overview", **QUIET)
