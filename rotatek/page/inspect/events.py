"""What makes the figures of Look inside change: a new run, a slider, a cell of the map."""

from collections.abc import Iterable, Mapping
from typing import Any

import gradio as gr

from rotatek.errors import SettingError
from rotatek.inspect.trace import Trace
from rotatek.methods.channels import CHANNELS, ChannelMethod
from rotatek.methods.tokens import TOKENS
from rotatek.page import plot_transport
from rotatek.page.binding import DRAWING, QUIET, listen
from rotatek.page.form import settings_of
from rotatek.page.inspect import drawings
from rotatek.page.inspect.drawings import Place, View
from rotatek.page.inspect.widgets import InspectWidgets, marked_answer
from rotatek.page.user_errors import refusing
from rotatek.service.run import Run

Shown = dict[str, Any]


@refusing
def overview(run: Run | None) -> Shown:
    """What a new run changes: the ends of the sliders, the bytes, the kept tokens, the image."""
    trace = None if run is None else run.trace
    if run is None or trace is None:
        return {}
    layers, heads = trace.shape
    drawn = {
        "budget": drawings.budget_drawing(run),
        "kept": drawings.kept_drawing(run, trace),
    }
    return {
        "layer": gr.update(maximum=layers - 1),
        "head": gr.update(maximum=max(1, heads - 1)),
        "step": gr.update(maximum=max(1, len(trace.steps) - 1), value=0),
        "frame": frame_slider(trace),
        "overview": plot_transport.payload(drawn, drawings.pictures(run)),
    }


def frame_slider(trace: Trace) -> Any:
    """The first picture again, of as many as there are now."""
    several = len(drawings.frames_of(trace))
    one = len({grid.picture for grid in trace.grids}) == 1
    label = "View of the picture" if one else "Picture"
    return gr.update(maximum=max(2, several), value=1, label=label, visible=several > 1)


@refusing
def redraw(
    run: Run | None,
    map_shows: str,
    at_layer: float,
    at_head: float,
    at_step: float,
    at_frame: float = 1,
    **form: Any,
) -> Shown:
    """One head, at the width that the settings ask for. Changes: drawn."""
    view = view_of(run, (at_layer, at_head, at_step, at_frame), form)
    if view is None:
        return {}
    drawn = drawings.head_drawings(view) | {"map": drawings.head_map(view, map_shows)}
    return {"drawn": plot_transport.payload(drawn)}


@refusing
def step_through(
    run: Run | None,
    at_layer: float,
    at_head: float,
    at_step: float,
    at_frame: float = 1,
    **form: Any,
) -> Shown:
    """Another token of the answer, or another picture. Changes: attention, answer."""
    view = view_of(run, (at_layer, at_head, at_step, at_frame), form)
    if view is None:
        return {}
    tokens = drawings.answer_tokens(view.run, view.trace)
    drawn, under = drawings.attention_drawings(view), {}
    if drawings.frames_of(view.trace):
        drawn["kept"] = drawings.kept_drawing(view.run, view.trace, view.at.grid)
        under = drawings.pictured(view.run, view.trace, view.at.grid)
    return {
        "attention": plot_transport.payload(drawn, under),
        "answer": marked_answer(*tokens, view.at.step),
    }


def view_of(run: Run | None, place: tuple[float, ...], form: Mapping[str, Any]) -> View | None:
    """The selected view; None while there is no trace."""
    trace = None if run is None else run.trace
    if run is None or trace is None:
        return None
    return View(run, trace, place_in(trace, *place), *shown_methods(form))


def place_in(trace: Trace, layer: float, head: float, step: float, frame: float = 1) -> Place:
    """The selection of the sliders, clamped to the trace; frame: from 1.

    Raises:
        SettingError: for a head that this layer lacks, where others have it.
    """
    layers, heads = trace.shape
    tops = (layers - 1, heads - 1, len(trace.steps) - 1, max(len(trace.grids) - 1, 0))
    stand = (layer, head, step, frame - 1)
    at = Place(*(min(max(int(v), 0), top) for v, top in zip(stand, tops, strict=True)))
    own = trace.heads(at.layer)
    if at.head >= own:
        known = f"a number below {own}, as layer {at.layer} has as many Key heads"
        raise SettingError("head", known, at.head)
    return at


def shown_methods(form: Mapping[str, Any]) -> tuple[ChannelMethod, ChannelMethod]:
    """The method whose rotation is drawn, and the chosen one.

    Where the chosen one does not rotate, the default method does, with what the widgets say of it.
    """
    form = {**form, "tokens": TOKENS.default.name}
    chosen = settings_of(form).channels
    if chosen.rotates:
        return chosen, chosen
    return settings_of({**form, "channels": CHANNELS.default.name}).channels, chosen


@refusing
def choose_cell(cell: str) -> Shown:
    """A click on the map, as "layer,head,time". Changes: layer, head."""
    parts = cell.split(",")
    if len(parts) != 3 or not all(part.isdecimal() and len(part) < 16 for part in parts):
        return {}
    return {"layer": int(parts[0]), "head": int(parts[1])}


def wire_inspect(
    widgets: InspectWidgets, settings: Mapping[str, Any], run: gr.State, finished: Iterable[Any]
) -> None:
    """Figures follow their widgets, also while these are dragged: one redraw at a time, the last
    one always.

    Args:
        widgets: of this part.
        settings: the widgets of the settings, by the names that `form.settings_of` takes; those of
            the channel method are followed.
        run: the run that is shown.
        finished: events after which it is complete.
    """
    at = {
        "at_layer": widgets.layer, "at_head": widgets.head, "at_step": widgets.step,
        "at_frame": widgets.frame,
    }  # fmt: skip
    own = {"channels", *CHANNELS.options()}
    channels = {name: widget for name, widget in settings.items() if name in own}
    seen = {"run": run, **at, **channels}
    quantity = {"map_shows": widgets.quantity}
    moved = [run, widgets.layer, widgets.head, widgets.quantity, *channels.values()]
    listen(
        [widget.change for widget in moved],
        redraw,
        seen | quantity,
        {"drawn": widgets.drawn},
        **DRAWING,
    )
    listen(
        [run.change, widgets.step.change, widgets.frame.change],
        step_through,
        seen,
        {"attention": widgets.attention, "answer": widgets.answer},
        **DRAWING,
    )
    place = {"layer": widgets.layer, "head": widgets.head}
    listen(widgets.cell.change, choose_cell, {"cell": widgets.cell}, place, queue=False, **QUIET)
    changed = {
        **place, "step": widgets.step, "frame": widgets.frame, "overview": widgets.overview,
    }  # fmt: skip
    for event in finished:
        listen(event.then, overview, {"run": run}, changed, **QUIET)
