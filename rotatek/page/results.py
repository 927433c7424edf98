"""The results tab: what the repository's committed measurements say, drawn from their files.

Everything is read from `assets/results`; a file that is not there takes its figures with it.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

import gradio as gr
import numpy as np

from rotatek.evaluation.tables import HEAD
from rotatek.page import cards, plots
from rotatek.page.wires import QUIET
from viz import Drawing, dots, frontier
from viz.theme import compose

FILES: Final = ("results", "kernels", "full_size", "efficiency")
EVERY: Final = "all"
SAME: Final = "agreement"
ORDER: Final = ("frontier", "channels", "budget", "beyond", "ablation")
MEASURES: Final = {"score": "score", SAME: "same answer as uncompressed"}
HEADINGS: Final = {
    "answers": ("Results", "What the embedded model answers under each method, on questions it was "
                "not trained on. Bytes are those of live tensors: text, bases and masks included."),
    "kernels": ("Kernels", "One decode step of attention on an H200, against the best dense kernel "
                "there is, and what the saved memory is worth."),
    "models": ("Full-size models", "The paper's two architectures with random weights on an H200: "
               "their speed and bytes are real, their answers mean nothing."),
    "efficiency": ("Efficiency", "Llama3-8B's shapes with random weights on an H200, over the "
                   "length of the prompt and the number of questions at once."),
}  # fmt: skip
MISSING: Final = (
    "There are no measurements in this copy of the repository; python -m rotatek evaluate makes "
    "them."
)

UNCOUNTED: Final = "This table was not counted in this way."

Drawings = dict[str, tuple[str, Drawing]]  # name -> title, figure
Files = Mapping[str, Any]


def load(folder: Path) -> dict[str, Any]:
    """The measurements that are there and can be read, by name."""
    found: dict[str, Any] = {}
    for name in FILES:
        path = folder / f"{name}.json"
        try:
            found[name] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
    return found


class Question(NamedTuple):
    """Which answers are counted, and how."""

    measure: str = "score"
    category: str = EVERY


def tables_of(files: Files) -> list[Mapping[str, Any]]:
    """The evaluation's tables of all questions; those of the pages alone repeat their rows."""
    tables = files.get("results", {"tables": []})["tables"]
    return [table for table in tables if not table["name"].endswith("-long")]


def categories(files: Files) -> list[str]:
    """Kinds of questions that every table scores on their own; none where there is one kind."""
    rows = [table["rows"][0] for table in tables_of(files) if table["rows"]]
    kinds = [list(row.get("by_category", {})) for row in rows]
    shared = [kind for kind in (kinds[0] if kinds else []) if all(kind in row for row in kinds)]
    return shared if len(shared) > 1 else []


def answers(files: Files, asked: Question) -> Drawings:
    """Figures of an evaluation: frontiers, channels kept, fixed budgets, beyond the paper."""
    drawn: Drawings = {}
    tables = tables_of(files)
    for table in sorted(tables, key=lambda table: ORDER.index(table["name"].partition("-")[0])):
        rows = [row for row in (_measured(r, asked) for r in table["rows"]) if row]
        kind = table["name"].partition("-")[0]
        if len(rows) < 2:
            continue
        if kind in ("frontier", "channels"):
            drawing = _lines(rows, kind == "channels", MEASURES[asked.measure])
        else:
            drawing = _rows(rows, MEASURES[asked.measure])
        title = table["title"].replace("Accuracy against the KV budget", "Answers against bytes")
        reading = f"{_counted(files, table, asked)} {drawing.reading}"
        drawn[table["name"]] = (title, drawing._replace(reading=reading))
    return drawn


def _counted(files: Files, table: Mapping[str, Any], asked: Question) -> str:
    """How many questions a figure rests on, and of which kinds."""
    whole = table["questions"] == table.get("of", table["questions"])
    one = asked.category if asked.category != EVERY and asked.measure == "score" else ""
    if one and whole:
        return f"{files['results']['suite']['categories'][one]:,} questions of {one}."
    if one:
        return f"Those of {one} among {table['questions']:,} questions."
    kinds = ", ".join(table["rows"][0].get("by_category", {}))
    return f"{table['questions']:,} questions{' of ' * bool(kinds)}{kinds}."


class Measured(NamedTuple):
    """One row of a table by the chosen measure: shares in [0, 1]."""

    label: str
    kv: float
    value: float
    low: float
    high: float


def _measured(row: Mapping[str, Any], asked: Question) -> Measured | None:
    """A row by a measure, or None where it does not have it."""
    source = row
    if asked.category != EVERY and asked.measure == "score":
        source = row.get("by_category", {}).get(asked.category, {})
    value = source.get(SAME if asked.measure == SAME else "score")
    if value is None:
        return None
    own = asked.measure != SAME  # the interval is the score's
    low, high = source.get("interval", (value, value)) if own else (value, value)
    return Measured(row["label"], row["actual_kv"], value, low, high)


def _lines(rows: Sequence[Measured], channels: bool, measure: str) -> Drawing:
    """A line a method: against the share of bytes, or of Key channels, that is kept."""
    grouped: dict[str, list[tuple[float, Measured]]] = {}
    for row in rows:
        name, _, last = row.label.rpartition(", ")
        if name:
            kept = float(last) / HEAD if channels else row.kv
            grouped.setdefault(name, []).append((kept, row))
    series = {
        name: frontier.Points(
            np.array([kept for kept, _ in points]),
            *(
                np.array([getattr(row, part) for _, row in points])
                for part in ("value", "low", "high")
            ),
        )
        for name, points in grouped.items()
    }
    whole = next((row.value for row in rows if row.label == "Uncompressed"), None)
    axes = frontier.Axes("of the Key channels" if channels else "of the cache's bytes", measure)
    return frontier.draw(series, whole, methods={n: method_of(n) for n in series}, axes=axes)


def _rows(rows: Sequence[Measured], measure: str) -> Drawing:
    """A row a setting, with the share of bytes that it really holds."""
    shown = [
        dots.Dot(
            f"{row.label}<br>in {100 * row.kv:.0f} % of the bytes",
            100 * row.value, 100 * row.low, 100 * row.high, method_of(row.label),
        )
        for row in rows
        if row.label != "Uncompressed"
    ]  # fmt: skip
    whole = next((row for row in rows if row.label == "Uncompressed"), None)
    rule = None if whole is None else (100 * whole.value, "uncompressed")
    return dots.draw(shown, dots.Scale(measure, ".1f", " %"), rule)


def method_of(label: str) -> str:
    """The method that gives a row its colour."""
    if label.startswith(("Keys", "k=", "bf16 k", "ours")) or "channels:" in label:
        return "rotatek"
    for name in ("RotateK", "ThinK", "SparK", "FastV", "VisionZip"):
        if name in label:
            return name.lower()
    return "full"


def kernels(files: Files) -> Drawings:
    """Figures of the kernels' measurements."""
    found = files.get("kernels", {})
    made = {"quant": _speed, "latency": _latency, "capacity": _capacity, "solver": _solver}
    return {name: draw(found[name]) for name, draw in made.items() if name in found}


def _speed(found: Mapping[str, Any]) -> tuple[str, Drawing]:
    speed = [
        dots.Dot(name, gain, gain, gain, method_of(name), _shape(row["shape"]))
        for row in found["rows"]
        for name, gain in row["over_best_dense"].items()
    ]
    scale = dots.Scale("times as fast as the best dense bf16 kernel", ".2f", "x")
    tokens = found["rows"][0]["shape"]["N"]
    drawing = dots.draw(speed, scale, (1, "dense"))
    return f"One layer's attention over {tokens:,} visual tokens", drawing


def _latency(found: Mapping[str, Any]) -> tuple[str, Drawing]:
    names = {"read only": "reading the bytes alone"}
    times = [
        dots.Dot(
            _shape(row["shape"], tokens=True), time["us"], time["low_us"], time["high_us"],
            "full" if name in names else "rotatek", names.get(name, name),
        )
        for row in found["rows"]
        for name, time in row["times"].items()
    ]  # fmt: skip
    scale = dots.Scale("microseconds a layer", ".2f", " us", more_is_better=False)
    return "One question alone, k = 32", dots.draw(times, scale)


def _capacity(found: Mapping[str, Any]) -> tuple[str, Drawing]:
    rates = [
        dots.Dot(
            f"{row['model']}, {name}: {row['batch'][name]} at once", rate, rate, rate,
            "full" if name == "dense" else "rotatek",
        )
        for row in found["rows"]
        for name, rate in row["tokens_per_s"].items()
    ]  # fmt: skip
    scale = dots.Scale("tokens a second", ",.0f")
    memory = found["rows"][0]["kv_gib"]
    return f"What {memory:.0f} GiB of KV memory can serve", dots.draw(rates, scale)


def _solver(found: Mapping[str, Any]) -> tuple[str, Drawing]:
    count = found["matrices"]
    took = [
        dots.Dot(name, ms, ms, ms, method_of(name))
        for name, ms in found["ms"].items()
        if "one layer" not in name
    ]
    scale = dots.Scale("milliseconds", ".2f", " ms", log=True, more_is_better=False)
    return f"Finding {count} rotations", dots.draw(took, scale)


def _shape(shape: Mapping[str, Any], tokens: bool = False) -> str:
    heads = f"{shape['Hq']}/{shape['Hkv']} heads"
    return f"{heads}, {shape['N']:,} tokens" if tokens else f"{heads}, batch {shape['B']}"


def models(files: Files) -> Drawings:
    """Figures of whole models: milliseconds a step, bytes of the cache."""
    drawn: Drawings = {}
    for family in files.get("full_size", {}).get("families", []):
        name = family["model"].partition(" ")[0]
        key = name.partition("-")[0].replace(".", "")
        at = f"{name}, {family['visual_tokens']:,} visual tokens"
        drawn[f"step-{key}"] = (f"A step: {at}", _steps(family["rows"]))
        drawn[f"held-{key}"] = (f"The cache: {at}", _held(family["rows"]))
    return drawn


def _steps(rows: Mapping[str, Mapping[str, Any]]) -> Drawing:
    ways = {"graph_ms": "captured as a graph", "decode_ms": "step by step"}
    steps = [
        dots.Dot(label, row[key], row[key], row[key], method_of(label), way)
        for label, row in rows.items()
        for key, way in ways.items()
        if row[key]
    ]
    return dots.draw(steps, dots.Scale("milliseconds a token", ".1f", " ms", more_is_better=False))


def _held(rows: Mapping[str, Mapping[str, Any]]) -> Drawing:
    held = [
        dots.Dot(label, row["kv_mib"], row["kv_mib"], row["kv_mib"], method_of(label))
        for label, row in rows.items()
    ]
    return dots.draw(held, dots.Scale("MiB of KV cache", ".1f", " MiB", more_is_better=False))


EFFICIENCY: Final = {  # column: title of its figure, scale
    "decode_ms": ("A whole decode step", dots.Scale("milliseconds", ".2f", " ms", True, False)),
    "attention_ms": ("Its attention", dots.Scale("milliseconds", ".3f", " ms", True, False)),
    "tokens_per_s": ("Throughput", dots.Scale("tokens a second", ",.0f", "", True)),
    "kv_mib": ("The cache", dots.Scale("MiB", ",.0f", " MiB", True, False)),
    "prefill_ms": ("Prefill", dots.Scale("milliseconds", ",.1f", " ms", True, False)),
    "compress_ms": (
        "Compressing a layer at a time, at worst",
        dots.Scale("milliseconds", ".2f", " ms", more_is_better=False),
    ),
}


def efficiency_rows(files: Files) -> list[Mapping[str, Any]]:
    """The rows of the efficiency measurement, as the kernels' bench writes them."""
    found = files.get("efficiency", {})
    found = found.get("efficiency", found) if isinstance(found, dict) else {}
    return [row for row in found.get("rows", []) if isinstance(row, dict)]


def efficiency(files: Files) -> Drawings:
    """A figure a column: every length and batch is a row, every method a symbol."""
    rows = efficiency_rows(files)
    drawn: Drawings = {}
    for column, (title, scale) in EFFICIENCY.items():
        found = [
            dots.Dot(
                f"{row['batch']} x {row['visual_tokens']:,} tokens",
                *(row[column],) * 3,
                method_of(row["method"]),
                row["method"],
            )
            for row in rows
            if row.get(column) and "batch" in row and "visual_tokens" in row
        ]
        if found:
            drawn[f"eff-{column.replace('_', '-')}"] = (title, dots.draw(found, scale))
    return drawn


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of named columns as an HTML table; numbers with at most four digits."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f'<th scope="col">{escape(name.replace("_", " "))}</th>' for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(row.get(name)))}</td>" for name in names) + "</tr>"
        for row in rows
    )
    return (
        '<details class="rk-table"><summary>The same as a table</summary>'
        '<div tabindex="0" role="region" aria-label="Efficiency">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


class Results(NamedTuple):
    """The tab's widgets."""

    files: dict[str, Any]
    measure: gr.Radio
    category: gr.Dropdown
    drawn: gr.HTML


def part(folder: Path) -> Results:
    """The tab: a sentence where nothing was measured, else frames for what was."""
    files = load(folder)
    drawn = {
        "answers": answers(files, Question()),
        "kernels": kernels(files),
        "models": models(files),
        "efficiency": efficiency(files),
    }
    with gr.Row(visible="results" in files, elem_id="measures"):
        measure = gr.Radio(
            [(label.capitalize(), name) for name, label in MEASURES.items()],
            value="score",
            label="Counted by",
            elem_id="measure",
        )
        category = gr.Dropdown(
            [("all questions", EVERY), *categories(files)],
            value=EVERY,
            label="Questions (scores only)",
            visible=bool(categories(files)),
            elem_id="category",
        )
    if not any(drawn.values()):
        gr.HTML(cards.section("Results", MISSING), js_on_load=None)
    for name, found in drawn.items():
        if found:
            gr.HTML(cards.section(*HEADINGS[name]), js_on_load=None)
            titles = {key: title for key, (title, _) in found.items()}
            plots.sheet(titles, _pairs(found), f"{name}-results")
    rows = efficiency_rows(files)
    if rows:
        gr.HTML(table(rows), js_on_load=None)
    return Results(files, measure, category, plots.box("results-drawn"))


def _pairs(found: Drawings) -> list[list[str]]:
    """Two figures a row where they are about as tall; one alone where its neighbour is not."""
    rows: list[list[str]] = []
    for name, (_, drawing) in found.items():
        last = found[rows[-1][0]][1] if rows and len(rows[-1]) == 1 else None
        if last and 0.8 < last.figure.layout["height"] / drawing.figure.layout["height"] < 1.25:
            rows[-1].append(name)
        else:
            rows.append([name])
    return rows


def every(files: Files) -> Drawings:
    """Every figure that any way of counting draws."""
    found: Drawings = {}
    for measure in reversed(MEASURES):
        found |= answers(files, Question(measure))
    return found


def draw(files: Files, measure: str | None, category: str | None) -> str:
    """The payload of every figure of the tab; one that cannot be counted so says so."""
    asked = Question(measure or "score", category or EVERY)
    blank = Drawing(compose([], 120, x={"visible": False}, y={"visible": False}), UNCOUNTED, "")
    empty = {name: (title, blank) for name, (title, _) in every(files).items()}
    found = empty | answers(files, asked) | kernels(files) | models(files) | efficiency(files)
    return plots.payload({name: drawing for name, (_, drawing) in found.items()})


def wire(results: Results, tab: gr.Tab) -> None:
    """Drawn when the tab is opened, and when something else is to be counted."""
    gr.on(
        [tab.select, results.measure.input, results.category.input],
        lambda measure, category: draw(results.files, measure, category),
        [results.measure, results.category],
        results.drawn,
        queue=False,
        **QUIET,
    )
