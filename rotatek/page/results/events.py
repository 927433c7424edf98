"""What happens on the Results tab: figures come when it is opened, or counted in another way."""

from typing import Final

import gradio as gr

from rotatek.page import plot_transport
from rotatek.page.binding import AT_ONCE, listen
from rotatek.page.results.answers import answers
from rotatek.page.results.files import EVERY, MEASURES, Asked, Drawings, Files
from rotatek.page.results.measurements import measurements
from rotatek.page.results.overview_figure import opening
from rotatek.page.results.widgets import ResultsWidgets
from rotatek.page.user_errors import refusing
from viz import Drawing
from viz.theme import compose

UNCOUNTED: Final = "This table was not counted in this way."


def every(files: Files) -> Drawings:
    """Every figure that any way of counting draws."""
    found: Drawings = {}
    for measure in reversed(MEASURES):
        found |= answers(files, Asked(measure))
    return found


def draw(files: Files, measure: str | None, category: str | None) -> str:
    """The payload of every figure of the tab; one that cannot be counted so says so."""
    asked = Asked(measure or "score", category or EVERY)
    blank = Drawing(compose([], 120, x={"visible": False}, y={"visible": False}), UNCOUNTED, "")
    empty = {name: (title, blank) for name, (title, _) in every(files).items()}
    found = empty | opening(files)[1] | answers(files, asked)
    for drawn in measurements(files).values():
        found |= drawn
    return plot_transport.payload({name: drawing for name, (_, drawing) in found.items()})


def wire_results(widgets: ResultsWidgets, tab: gr.Tab) -> None:
    """Drawn when the tab is opened, and when something else is to be counted."""

    def counted(measure: str | None, category: str | None) -> dict[str, str]:
        return {"drawn": draw(widgets.files, measure, category)}

    listen(
        [tab.select, widgets.measure.input, widgets.category.input],
        refusing(counted),
        {"measure": widgets.measure, "category": widgets.category},
        {"drawn": widgets.drawn},
        **AT_ONCE,
    )
