"""The first figure of Results: the score of every method's best settings over their bytes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rotatek.compare.columns import UNCOMPRESSED
from rotatek.evaluation.cells import SUITES, Cell, Results, pareto_front
from rotatek.evaluation.chains import NEUTRAL, SECOND
from rotatek.page.results.answers import name_of, points_of
from rotatek.page.results.files import Drawings, Files
from rotatek.page.results.styles import style_of
from viz import frontier
from viz.theme import UNCOMPRESSED as WHOLE
from viz.theme import Style, percent

TITLE: Final = "Every method at its best"
READING: Final = (
    "Each method's settings that none of its others beats in fewer bytes, with 95 % intervals."
)
OPENING: Final = "opening"  # how the names of these figures begin
NEARLY: Final = 0.85  # of the most questions: a run that was cut short asked tables unequally
NEAR: Final = 0.02  # of the uncompressed score, which counts as keeping it
AGAIN: Final = ((NEUTRAL, "pocket-unseen (seed 0)"), (SECOND, "questions.jsonl"))  # ask, suite
BYTES: Final = (1 / 3, 1 / 5)  # at most
AGAIN_TITLE: Final = (
    f"Asked again: percent right, each method at its best within {' / '.join(map(percent, BYTES))} "
    "of the bytes"
)


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
    """A sentence on second questions, then one and a figure for every model; none where nothing
    was measured."""
    told, drawn, models = [second_sentence(files.results)], Drawings(), files.results.main
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
    return "\n".join(filter(None, told)), drawn


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


def second_sentence(results: Results) -> str:
    """How bits compare with every rival in second questions; empty where none were asked."""
    better, worse, count = results.against_rivals
    if not count:
        return ""
    return (
        f"Asked again, RotateK's bits beat others at their own bytes in {better} of {count} "
        f"comparisons and lose in {worse}."
    )


def asked_again(results: Results) -> list[dict[str, str]]:
    """Answers on a cache that an earlier question has left: a row a method, a column a model and
    run of `AGAIN`, in percent. Empty where none was asked.

    A first question says less: its first answer token is computed before compression.
    """
    columns: dict[str, dict[str, str]] = {}
    for ask, suite in AGAIN:
        for run in results.conversations:
            if (run["ask"], run["suite"]["name"]) == (ask, suite):
                (count,) = (one["questions"] for one in run["tables"] if one["name"] == SECOND)
                title = f"{SUITES[suite]}: {run['model']['name']} ({count})"
                columns[title] = _within_bytes(results.of(run)[SECOND])
    names = dict.fromkeys(name for scores in columns.values() for name in scores)
    return [
        {"": name} | {title: scores.get(name, "") for title, scores in columns.items()}
        for name in names
    ]


def _within_bytes(cells: Sequence[Cell]) -> dict[str, str]:
    """The uncompressed score, then every method's best one within each share of `BYTES`."""
    whole = {c.row: f"{100 * c.score.mean:.1f}" for c in cells if c.row == UNCOMPRESSED}
    best: dict[str, list[float]] = {}
    for cell in cells:
        for number, most in enumerate(BYTES):
            if cell.live <= most:
                scores = best.setdefault(style_of(cell).label, [0.0] * len(BYTES))
                scores[number] = max(scores[number], 100 * cell.score.mean)
    ordered = sorted(best.items(), key=lambda one: -sum(one[1]))
    said = {name: " / ".join(f"{s:.1f}" if s else "-" for s in scores) for name, scores in ordered}
    return whole | said


def sentence(found: Sequence[Best], whole: float) -> str:
    """What each method needs to stay within `NEAR` of the uncompressed score."""
    near = {best.name: best.nearest(whole - NEAR) for best in found}
    reached = sorted((cell.live, name) for name, cell in near.items() if cell)
    missed = [name for name, cell in near.items() if cell is None]
    parts = [f"{name} {percent(share)}" for share, name in reached]
    if reached:
        share, name = reached[0]
        parts[0] = f"{name} needs {percent(share)} of the live bytes"
    told = f"Within two points of the uncompressed {100 * whole:.1f} %, {', '.join(parts)}"
    return told + (f"; {', '.join(missed)} do not get there." if missed else ".")
