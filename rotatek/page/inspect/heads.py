"""Which heads did the harm, and what if one was left whole: the questions that Look inside asks."""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from html import escape
from typing import Any, Final

import gradio as gr
import numpy as np

from rotatek import errors
from rotatek.engine.damage import damages
from rotatek.engine.engine import Engine
from rotatek.inputs.request import make_request
from rotatek.methods.channels import RotateK
from rotatek.page import markup
from rotatek.page.binding import AT_ONCE, MODEL_WORK, QUIET, Shown, Widgets
from rotatek.page.inspect import drawings
from rotatek.page.inspect.events import view_of
from rotatek.page.page_context import PageContext
from rotatek.page.settings import MOST_HEADS, boxes
from rotatek.service.service import Run
from viz.theme import percent

TOKENS: Final = 128  # of an answer that are read again behind every head
WORST: Final = 5  # heads that have a button
LEAST_SHARE: Final = 1e-3  # of one that has
MOST_SHARE: Final = 0.8  # of all damage: what "n heads carry" means
HARMLESS: Final = 1e-5  # nats a token
UNMEASURED: Final = "Each head is compressed alone, all others whole. Press Measure."


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
            measured = damages(engine, request, method, first.reference.ids[:TOKENS], stop)
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
    """One sentence, and the worst heads as buttons, as HTML.

    Args:
        damage: nats a token, [layers, heads]; NaN where there is no such head.
        kept: channels of a compressed head.
    """
    flat = np.nan_to_num(damage, nan=-1.0).ravel()
    order = [int(at) for at in np.argsort(-flat, kind="stable") if flat[at] >= 0]
    total = float(flat[order].sum())
    if not order:
        return markup.line(UNMEASURED)
    shares = flat[order] / max(total, 1e-30)
    few = int(np.searchsorted(shares.cumsum(), MOST_SHARE)) + 1
    few = min(few, len(order))
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
    buttons = "".join(
        f'<button type="button" data-head="{at // damage.shape[1]},{at % damage.shape[1]}">'
        f"Layer {at // damage.shape[1]}, head {at % damage.shape[1]}: "
        f"<b>{percent(float(share))}</b></button>"
        for at, share in list(zip(order, shares, strict=True))[:WORST]
        if share >= LEAST_SHARE
    )
    return f'<p class="rk-see">{escape(line)}</p><div class="rk-worst">{buttons}</div>'


def wire_heads(events: HeadEvents, widgets: Widgets) -> list[Any]:
    """Damage is measured, and stopped; heads are chosen for a column of their own.

    Returns:
        listeners to what changes the columns.
    """
    w, shown = widgets, "drawn damage_row damage_said measure damage_stop"
    asked = [w["map_shows"].input, w["measure"].click]
    w.listen(asked, events.measure, shown, **QUIET, **MODEL_WORK)
    w.listen(w["damage_stop"].click, events.stop, **AT_ONCE)
    chosen = [
        w.listen(w[kind].click, partial(choose_head, kind), "what_if", **AT_ONCE)
        for kind in ("leave", "only")
    ]
    return [*(event.then for event in chosen), w["what_if"].input]
