"""The figure docs/frontier.svg: every method at its best, score over live bytes.

One chart a model, and in it a line a method: the settings that none of its others beats in fewer
live bytes, from the same records that open the page's Results tab.
"""

from collections.abc import Mapping
from math import floor, log2
from pathlib import Path
from typing import Any, Final

from docs.svg_chart import Axis, Chart, Line, picture
from rotatek.evaluation.cells import Results
from rotatek.page.results.overview_figure import bests, reference

ROOT: Final = Path(__file__).resolve().parent
DASHES: Final = {"solid": "", "dash": "8 4", "dot": "2 4", "dashdot": "8 3 2 3", "longdash": "14 5"}


def chart(results: Results, run: Mapping[str, Any]) -> Chart:
    """One model's results."""
    found = bests(results, run)
    cells = [cell for best in found for cell in best.cells]
    steps = max(1, -floor(log2(min((cell.live for cell in cells), default=0.5))))
    low = floor(10 * min((cell.score.mean for cell in cells), default=0.0)) / 10
    halves = [(-step, "all" if step == 0 else f"1/{2**step}") for step in range(steps + 1)]
    tens = [(tick / 100, str(tick)) for tick in range(round(100 * low), 101, 10)]
    lines = [
        Line(best.name, best.style.colour, DASHES.get(best.style.dash, ""),
             [(log2(cell.live), cell.score.mean) for cell in best.cells])
        for best in found
    ]  # fmt: skip
    title = f"{run['model']['name']} on {run['suite']['name']}: score over live bytes of the cache"
    axes = Axis(-steps, 0, halves), Axis(low, max(1, low + 0.1), tens)
    return Chart(title, lines, *axes, reference(results, run) or 1.0)


def drawn(results: Results) -> str:
    """The whole picture."""
    return picture([chart(results, run) for run in results.main], 330, 44)


def draw(results: Results) -> None:
    """Write the figure."""
    (ROOT / "frontier.svg").write_text(drawn(results), encoding="utf-8")
