"""The first figure of Results: the score of every method's best settings over their bytes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rotatek.compare.columns import UNCOMPRESSED
from rotatek.evaluation.cells import Cell, Results, pareto_front
from rotatek.evaluation.chains import SECOND
from rotatek.page.results.answers import name_of, points_of
from rotatek.page.results.files import Drawings, Files
from rotatek.page.results.styles import style_of
from viz import frontier
from viz.theme import UNCOMPRESSED as WHOLE
from viz.theme import Style, percent

TITLE: Final = "Every method at its best"
READING: Final = (
    "Each line joins the settings of one method, out of all tables below, that no other of its "
    "settings beats in fewer bytes; bands are 95 % intervals."
)
OPENING: Final = "opening"  # how the names of these figures begin
NEARLY: Final = 0.85  # of the most questions: a run that was cut short asked tables unequally
NEAR: Final = 0.02  # of the uncompressed score, which counts as keeping it
OTHERS: Final = "questions.jsonl"  # the suite of pages by other hands
AGAIN_TITLE: Final = (
    "Asked again about pages by other hands: percent right, each method's best within so many of "
    "the bytes"
)
AGAIN: Final = (1 / 3, 1 / 5)  # of the bytes, at most


class Best(NamedTuple):
    """A method's settings that no other of its settings beats in fewer bytes.

    Attributes:
        name: of the line.
        style: the method's.
        cells: of the tables, by rising share of live bytes.
    """

    name: str
    style: Style
    cells: Sequence[Cell]

    def nearest(self, score: float) -> Cell | None:
        """The cell with the fewest bytes whose score is at least `score`."""
        return next((cell for cell in self.cells if cell.score.mean >= score), None)


def opening(files: Files) -> tuple[str, Drawings]:
    """A sentence and a figure for every model; none where nothing was measured."""
    told, drawn, models = [], Drawings(), files.results.main
    for run in models:
        found, whole = bests(files.results, run), reference(files.results, run)
        if not found or whole is None:
            continue
        name = run["model"]["name"] if len(models) > 1 else ""
        lines = [
            frontier.Line(best.name, best.style, points_of(
                [cell.live for cell in best.cells], [cell.score for cell in best.cells]))
            for best in found
        ]  # fmt: skip
        axes = frontier.Axes("of the cache's live bytes", "score")
        drawing = frontier.draw(lines, whole, axes)._replace(reading=READING + _measured(run))
        told.append(f"{name}: {sentence(found, whole)}" if name else sentence(found, whole))
        title = f"{TITLE}: {name}" if name else TITLE
        drawn[name_of(OPENING, files, run)] = title, drawing
    return "\n".join(told), drawn


def _measured(run: Mapping[str, Any]) -> str:
    """On how many questions, with which weights, in what type and where."""
    model, most = run["model"], max(table["questions"] for table in run["tables"])
    where = f", on {run['ran_on']['device']}" if "ran_on" in run else ""
    return f" Up to {most:,} questions; weights {model['weights'][:8]}, {model['dtype']}{where}."


def _large(results: Results, run: Mapping[str, Any]) -> list[Cell]:
    """Cells of the tables that asked the most questions, or nearly as many."""
    cells = results.of(run)
    most = max((table["questions"] for table in run["tables"]), default=0)
    names = [table["name"] for table in run["tables"] if table["questions"] >= NEARLY * most]
    return [cell for name in names for cell in cells[name]]


def reference(results: Results, run: Mapping[str, Any]) -> float | None:
    """The uncompressed model's score, on the questions that most tables ask."""
    cells = _large(results, run)
    return next((cell.score.mean for cell in cells if cell.row == UNCOMPRESSED), None)


def bests(results: Results, run: Mapping[str, Any]) -> list[Best]:
    """A line a method, over the tables that asked the most questions, or nearly as many."""
    cells: dict[str, list[Cell]] = {}
    styles: dict[str, Style] = {}
    for cell in _large(results, run):
        style = style_of(cell)
        if style is not WHOLE:
            styles[style.label] = style
            cells.setdefault(style.label, []).append(cell)
    names = {label: label if isinstance(style, type) else f"{label} alone"
             for label, style in styles.items()}  # fmt: skip
    fronts = {
        label: pareto_front(mine, lambda cell: cell.live, lambda cell: cell.score.mean)
        for label, mine in cells.items()
    }
    return [Best(names[label], styles[label], front) for label, front in fronts.items()]


def asked_again(results: Results) -> list[dict[str, str]]:
    """Second questions about pages by other hands: a row a method, with its best score in percent
    under each model and within each share of bytes. Empty where none was asked.

    A first question says less: its first answer token is computed before compression.
    """
    columns: dict[str, dict[str, float]] = {}
    for run in results.conversations:
        cells = {cell.row: cell for cell in results.of(run)["second"]}
        if (run["ask"], run["suite"]["name"]) != (SECOND, OTHERS) or UNCOMPRESSED not in cells:
            continue
        whole = cells.pop(UNCOMPRESSED).score.mean
        for most in AGAIN:
            best = {UNCOMPRESSED: whole}
            for cell in cells.values():
                name = style_of(cell).label
                if cell.live <= most:
                    best[name] = max(best.get(name, 0.0), cell.score.mean)
            columns[f"{run['model']['name']}, {percent(most)}"] = best
    names = dict.fromkeys(name for best in columns.values() for name in best)
    means = {name: sum(best.get(name, 0.0) for best in columns.values()) for name in names}
    return [
        {"": name} | {title: f"{100 * best[name]:.1f}" if name in best else ""
                      for title, best in columns.items()}
        for name in sorted(names, key=lambda one: (one != UNCOMPRESSED, -means[one]))
    ]  # fmt: skip


def sentence(found: Sequence[Best], whole: float) -> str:
    """What each method needs to stay within `NEAR` of the uncompressed score."""
    near = {best.name: best.nearest(whole - NEAR) for best in found}
    reached = sorted((cell.live, name, cell.row) for name, cell in near.items() if cell)
    missed = [name for name, cell in near.items() if cell is None]
    parts = [f"{name} {percent(share)}" for share, name, _ in reached]
    if reached:
        share, name, words = reached[0]
        parts[0] = f"{name} needs {percent(share)} of the live bytes ({words})"
    told = f"Within two points of the uncompressed {100 * whole:.1f} %, {', '.join(parts)}"
    return told + (f"; {' and '.join(missed)} do not get there." if missed else ".")
