"""Look inside: which head, the frames of its figures, the answer to step through, and what moves
them."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

import gradio as gr

from rotatek.errors import SettingError
from rotatek.inspect.trace import Trace
from rotatek.methods.channels import CHANNELS
from rotatek.methods.tokens import TOKENS
from rotatek.page import markup
from rotatek.page.ask.widgets import slider
from rotatek.page.binding import AT_ONCE, DRAWING, QUIET, Shown, Widgets
from rotatek.page.inspect import drawings
from rotatek.page.inspect.drawings import Place, View, mask_frames
from rotatek.page.markup import message_box, rows_of, sheet
from rotatek.page.settings import settings_of
from rotatek.service.service import Run
from viz.head_heatmap import QUANTITIES

TITLES: Final = {  # beside the masks', which the methods bring
    "map": "Every layer and head",
    "raw": "Keys as the model makes them",
    "rotated": "The same Keys, rotated",
    "spectrum": "How fast it falls off",
    "scores": "Attention scores, exact and compressed",
    "kept": "What the model still sees",
    "attention": "Where this head looks",
    "compressed": "Where it looks when compressed",
}
OVER_IMAGE: Final = ("kept", "attention", "compressed")
BUDGET: Final = {"budget": "Where the bytes are"}


def titles() -> dict[str, str]:
    """The title of every figure of this part, by the element that shows it."""
    return {**TITLES, **mask_frames()}


def budget_part() -> gr.HTML:
    """The frame of the figure that shows where the bytes of every column are."""
    return sheet(BUDGET, [list(BUDGET)], "budget-sheet")


def add_inspection(widgets: Widgets) -> None:
    """The selected head, the frames of everything drawn of it, and the answer to step through.

    step is a recorded token of the answer and frame a picture, from 1. cell is where the browser
    writes which head was chosen. drawn, attention and overview are messages to
    `assets/figures.js`: one head, what it attends to, and what a new run changes.
    """
    with gr.Row(elem_id="lens"):
        widgets["layer"] = slider("Layer", "layer", 0, 5, 2, min_width=180)
        widgets["head"] = slider("KV head", "head", 0, 1, 0, min_width=180)
        widgets["map_shows"] = gr.Radio(
            [(q.title[0].upper() + q.title[1:], name) for name, q in QUANTITIES.items()],
            value="energy",
            label="Map shows",
            elem_id="quantity",
            min_width=200,
        )
    widgets["cell"] = gr.Textbox(
        elem_id="picked", label="Cell of the map", elem_classes="rk-unseen"
    )
    with gr.Row(visible=False, elem_id="damage-row") as widgets["damage_row"]:
        widgets["measure"] = gr.Button("Measure", size="sm", min_width=90, elem_id="measure")
        widgets["damage_stop"] = gr.Button(
            "Stop", size="sm", interactive=False, min_width=64, elem_id="damage-stop"
        )
    sheet(TITLES, [["map"]], "map-sheet")
    widgets["damage_said"] = gr.HTML("", js_on_load=None, elem_id="damage")
    with gr.Row(elem_id="what-if"):
        widgets["leave"] = gr.Button("Leave this head whole", size="sm", elem_id="what-leave")
        widgets["only"] = gr.Button("Compress only this head", size="sm", elem_id="what-only")
        widgets["what_if"] = gr.CheckboxGroup(
            [], label="A further column: what if", visible=False, elem_id="what-heads"
        )
    masks = rows_of(list(mask_frames()))
    sheet(titles(), [["raw", "rotated"], *masks, ["spectrum", "scores"]], "figures")
    with gr.Row(elem_id="scrub"):
        widgets["step"] = slider("Token of the answer", "step", 0, 1, 0, min_width=180)
        widgets["said"] = gr.HTML(marked_answer([], [0], 0), elem_id="said")
        widgets["frame"] = slider("Picture", "frame", 1, 2, 1, visible=False, min_width=180)
    sheet(TITLES, [list(OVER_IMAGE)], "look-figures")
    widgets["drawn"] = message_box("drawn")
    widgets["attention"] = message_box("attention-figures")
    widgets["overview"] = message_box("overview")


def marked_answer(pieces: Sequence[str], steps: Sequence[int], step: int) -> str:
    """The answer as HTML; the token that the selected query predicted is marked."""
    number = steps[step]
    before, token, after = pieces[:number], pieces[number : number + 1], pieces[number + 1 :]
    if token:
        what = f"token {number + 1} of {len(pieces)}"
    else:
        what = "the end of the answer" if pieces else "the last word of the question"
    marked = escape("".join(token)) if "".join(token).strip() else "\u00b7"
    mark = f"<mark>{marked}</mark>" if token else "<mark>\u25a0</mark>" if pieces else ""
    return (
        f'<p class="rk-step"><span class="rk-soft">The query that chose {what}</span><br>'
        f"{escape(''.join(before))}{mark}{escape(''.join(after))}</p>"
    )


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
        "overview": markup.payload(drawn, drawings.sent_once(run, trace)),
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
    return {"drawn": markup.payload(drawn)}


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
        "attention": markup.payload(drawn, under),
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
