"""The figure docs/frontier.svg: every method at its best, score over live bytes.

One panel a model, and in it a line a method: the settings that none of its others beats in fewer
live bytes, from the same records that open the page's Results tab.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import floor, log2
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from rotatek.evaluation.cells import Results
from rotatek.page.results.overview_figure import Best, bests, reference

ROOT: Final = Path(__file__).resolve().parent
WIDE, HIGH, LEFT, TOP, RIGHT, BELOW = 760, 330, 52, 34, 178, 44
INK, FAINT = "#667080", "#66708044"
DASHES: Final = {"solid": "", "dash": "8 4", "dot": "2 4", "dashdot": "8 3 2 3", "longdash": "14 5"}


def panel(results: Results, run: Mapping[str, Any], top: int) -> Iterator[str]:
    """The lines of SVG of one model's results.

    Args:
        results: that hold it.
        run: the model's.
        top: where the panel begins.
    """
    lines, whole = bests(results, run), reference(results, run) or 1.0
    cells = [cell for line in lines for cell in line.cells]
    least = min((cell.live for cell in cells), default=0.5)
    steps = max(1, -floor(log2(least)))
    floor_score = floor(10 * min((cell.score.mean for cell in cells), default=0.0)) / 10
    across, down = WIDE - LEFT - RIGHT, HIGH - TOP - BELOW

    def x(share: float) -> float:
        return LEFT + across * (1 + log2(min(share, 1.0)) / steps)

    def y(score: float) -> float:
        return top + TOP + down * (1 - (score - floor_score) / max(1 - floor_score, 0.1))

    title = f"{run['model']['name']} on {run['suite']['name']}: score over live bytes of the cache"
    yield _text(LEFT, top + 18, title, size=14)
    for step in range(steps + 1):
        place = x(2.0**-step)
        yield f'<path d="M{place:.1f} {top + TOP}v{down}" stroke="{FAINT}"/>'
        share = "all" if step == 0 else f"1/{2**step}"
        yield _text(place, top + HIGH - BELOW + 16, share, "middle")
    for tick in range(round(100 * floor_score), 101, 10):
        yield f'<path d="M{LEFT} {y(tick / 100):.1f}h{across}" stroke="{FAINT}"/>'
        yield _text(LEFT - 8, y(tick / 100) + 4, str(tick), "end")
    yield f'<path d="M{LEFT} {y(whole):.1f}h{across}" stroke="{INK}" stroke-dasharray="2 4"/>'
    for number, line in enumerate(lines):
        yield from _line(line, [(x(cell.live), y(cell.score.mean)) for cell in line.cells])
        down_to = top + TOP + 10 + 17 * number
        yield _text(WIDE - RIGHT + 16, down_to, line.name, ink=line.style.colour)


def _line(line: Best, points: Sequence[tuple[float, float]]) -> Iterator[str]:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dash, colour = DASHES.get(line.style.dash, ""), line.style.colour
    look = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
    yield f'<path d="M{path}" fill="none" {look}/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'


def _text(
    x: float, y: float, said: str, anchor: str = "start", ink: str = INK, size: int = 12
) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {where} fill="{ink}">{escape(said)}</text>'


def drawn(results: Results) -> str:
    """The whole picture."""
    runs = results.main
    body = [part for number, run in enumerate(runs) for part in panel(results, run, number * HIGH)]
    size = f'width="{WIDE}" height="{HIGH * len(runs)}"'
    view = f'viewBox="0 0 {WIDE} {HIGH * len(runs)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} font-family="sans-serif">'
    return "\n".join([head, *body, "</svg>"]) + "\n"


def draw(results: Results) -> None:
    """Write the figure."""
    (ROOT / "frontier.svg").write_text(drawn(results), encoding="utf-8")
