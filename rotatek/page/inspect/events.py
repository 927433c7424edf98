"""Look inside: which head, the frames of its figures, the answer to step through, and what moves
them; which heads did the harm, and what if one was left whole."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any, Final

import gradio as gr
import numpy as np

from rotatek import errors
from rotatek.engine.damage import damages
from rotatek.engine.engine import Engine
from rotatek.errors import SettingError
from rotatek.inputs.request import make_request
from rotatek.methods.channels import CHANNELS, RotateK
from rotatek.methods.tokens import TOKENS
from rotatek.page import markup
from rotatek.page.ask.widgets import slider
from rotatek.page.binding import AT_ONCE, DRAWING, MODEL_WORK, QUIET, Shown, Widgets
from rotatek.page.inspect import drawings
from rotatek.page.inspect.drawings import Place, View, mask_frames
from rotatek.page.markup import message_box, rows_of, sheet
from rotatek.page.page_context import PageContext
from rotatek.page.settings import MOST_HEADS, boxes, settings_of
from rotatek.service.service import Run
from viz.head_heatmap import QUANTITIES
from viz.theme import percent

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
MOST_TOKENS: Final = 128  # of an answer that are read again behind every head
WORST: Final = 5  # heads that have a button
LEAST_SHARE: Final = 1e-3  # of one that has
MOST_SHARE: Final = 0.8  # of all damage: what "n heads carry" means
HARMLESS: Final = 1e-5  # nats a token
UNMEASURED: Final = "Each head is compressed alone, all others whole. Press Measure."


def add_inspection(widgets: Widgets) -> None:
    """step is a recorded token of the answer and frame a picture, from 1. cell is where the browser
    writes which head was chosen. drawn, attention and overview are messages to
    `assets/figures.js`: one head, what it attends to, and what a new run changes."""
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
    masks = mask_frames()
    rows = [["raw", "rotated"], *rows_of(list(masks)), ["spectrum", "scores"]]
    sheet(TITLES | dict(masks), rows, "figures")
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
    several, pictures = len(drawings.frames_of(trace)), {grid.picture for grid in trace.grids}
    label = "View of the picture" if len(pictures) == 1 else "Picture"
    return {
        "layer": gr.update(maximum=layers - 1),
        "head": gr.update(maximum=max(1, heads - 1)),
        "step": gr.update(maximum=max(1, len(trace.steps) - 1), value=0),
        "frame": gr.update(maximum=max(2, several), value=1, label=label, visible=several > 1),
        "overview": markup.payload(drawn, drawings.sent_once(run, trace)),
    }


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
    """The selected view; None while there is no trace. Where the chosen method does not rotate, the
    default one's rotation is drawn, with what the widgets say of it.

    Args:
        place: values of the sliders: layer, head, step, and frame from 1; clamped to the trace.

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
    """Figures follow their widgets, also while these are dragged, and the events after which a run
    is `finished`."""
    w = widgets
    channels = [name for name in w.groups["form"] if name in {"channels", *CHANNELS.options()}]
    moved = [w[name].change for name in ("run", "layer", "head", "map_shows", *channels)]
    w.listen(moved, redraw, "drawn", **DRAWING)
    stepped = [w[name].change for name in ("run", "step", "frame")]
    w.listen(stepped, step_through, "attention said", **DRAWING)
    w.listen(w["cell"].change, choose_cell, "layer head", **AT_ONCE)
    for event in finished:
        w.listen(event.then, overview, "layer head step frame overview", **QUIET)


class HeadEvents:
    """Damage of a run's heads, and columns of what-ifs, for one page."""

    def __init__(self, context: PageContext) -> None:
        self.context = context

    def measure(
        self,
        run: Run | None,
        map_shows: str,
        layer: float,
        head: float,
        session: str = "",
        **form: Any,
    ) -> Iterator[Shown]:
        """Measure every head's damage, layer by layer, unless it is known; shown on the map."""
        view = view_of(run, (layer, head, 0, 1), form)
        if view is None or map_shows != "damage":
            yield {"damage_row": gr.update(visible=map_shows == "damage"), "damage_said": ""}
            return
        layers = range(len(view.trace.layers))
        found, total = view.damage, sum(map(view.trace.heads, layers))
        said = ""
        if int(np.isfinite(found).sum()) < total:
            yield {
                "damage_row": gr.update(visible=True), "measure": gr.update(interactive=False),
                "damage_stop": gr.update(interactive=True), "damage_said": _progress(0, total),
            }  # fmt: skip
            try:
                for one, count in self._heads(view, session):
                    found[one.layer, one.head] = one.kl
                    if one.head + 1 == view.trace.heads(one.layer) and count < total:
                        yield shown_damage(view, _progress(count, total))
            except Exception as error:
                said = markup.line(errors.public_message(error), whole=True)
        yield shown_damage(view, said) | {
            "measure": gr.update(interactive=True), "damage_stop": gr.update(interactive=False)
        }  # fmt: skip

    def _heads(self, view: drawings.View, session: str) -> Iterator[tuple[Any, int]]:
        """Each head's damage, and how many are known with it."""
        first, method = view.run.turns[0], view.method.of_paper()
        engine = self.context.service.engine(first.model)
        if type(engine) is not Engine or not isinstance(method, RotateK):
            raise errors.DamageElsewhere
        request = make_request(first.pictures, first.question)
        with self.context.service.stoppable(engine, f"{session}/damage") as stop:
            measured = damages(engine, request, method, first.reference.ids[:MOST_TOKENS], stop)
            yield from zip(measured, itertools.count(1))

    def stop(self, session: str = "") -> None:
        """End the measurement within one head."""
        self.context.service.stop(f"{session}/damage")


def choose_head(kind: str, layer: float, head: float, what_if: Sequence[str]) -> Shown:
    """A column where this head is left whole ("leave"), or it alone is compressed ("only"), with
    those of its kind that were chosen before."""
    code = f"{kind}:{int(layer)}.{int(head)}"
    codes = [one for one in what_if if one.startswith(f"{kind}:") and one != code]
    return {"what_if": boxes([*codes, code][-MOST_HEADS:])}


def _progress(count: int, total: int) -> str:
    share = 100 * count / max(total, 1)
    return (
        f'<p class="rk-status" role="status">{count} of {total} heads…</p><div class="rk-bar" '
        f'aria-hidden="true"><i style="width:{share:.0f}%"></i></div>'
    )


def shown_damage(view: drawings.View, said: str = "") -> Shown:
    """The map, and below it `said`, or what is known of all heads."""
    drawn = {"map": drawings.head_map(view, "damage")}
    return {
        "drawn": markup.payload(drawn), "damage_row": gr.update(visible=True),
        "damage_said": said or summary(view.damage, view.k),
    }  # fmt: skip


def summary(damage: np.ndarray, kept: int) -> str:
    """One sentence, and the worst heads as buttons, as HTML; damage: nats a token, [layers, heads],
    NaN where there is no such head; kept: channels of a compressed head."""
    flat = np.nan_to_num(damage, nan=-1.0).ravel()
    order = [int(at) for at in np.argsort(-flat, kind="stable") if flat[at] >= 0]
    if not order:
        return markup.line(UNMEASURED)
    total = float(flat[order].sum())
    shares = flat[order] / max(total, 1e-30)
    few = min(int(np.searchsorted(shares.cumsum(), MOST_SHARE)) + 1, len(order))
    if flat[order[0]] < HARMLESS:
        line = (
            "No head does harm by itself: with one compressed, to "
            f"{kept} channels, the answer changes by {flat[order[0]]:.1g} nats a token at most. "
            "Drop more channels, or ask for more."
        )
        return f'<p class="rk-see">{escape(line)}</p>'
    carried = percent(float(shares[:few].sum()))
    line = (
        f"{few} of {len(order)} heads {'carries' if few == 1 else 'carry'} {carried} of the "
        f"damage. Each was compressed alone, to {kept} channels, every token kept: "
        f"{flat[order[0]]:.2g} nats a token at most, {total / len(order):.2g} on average."
    )
    places = [divmod(at, damage.shape[1]) for at in order]
    buttons = "".join(
        f'<button type="button" data-head="{layer},{head}">Layer {layer}, head {head}: '
        f"<b>{percent(float(share))}</b></button>"
        for (layer, head), share in list(zip(places, shares, strict=True))[:WORST]
        if share >= LEAST_SHARE
    )
    return f'<p class="rk-see">{escape(line)}</p><div class="rk-worst">{buttons}</div>'


def wire_heads(events: HeadEvents, widgets: Widgets) -> list[Any]:
    """Damage is measured, and stopped; heads are chosen for a column of their own. Returns
    listeners to what changes the columns."""
    w, shown = widgets, "drawn damage_row damage_said measure damage_stop"
    asked = [w["map_shows"].input, w["measure"].click]
    w.listen(asked, events.measure, shown, **QUIET, **MODEL_WORK)
    w.listen(w["damage_stop"].click, events.stop, **AT_ONCE)
    chosen = [
        w.listen(w[kind].click, partial(choose_head, kind), "what_if", **AT_ONCE)
        for kind in ("leave", "only")
    ]
    return [*(event.then for event in chosen), w["what_if"].input]
