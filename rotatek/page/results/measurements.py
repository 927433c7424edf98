"""Figures of measured speed and memory: the kernels', whole models', and efficiency at length."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from rotatek.evaluation.speed_claims import MODELS, Speed
from rotatek.page.results.files import Drawings, Files
from rotatek.page.results.real_keys import real_keys
from rotatek.page.results.styles import style_named
from viz import dot_plot
from viz.theme import NEUTRAL

Words = Callable[[Speed], str]


class Figure(NamedTuple):
    """How the values of one benchmark are drawn.

    Attributes:
        title: of the figure.
        quantity: that it shows.
        scale: of its values.
        row, series: the words beside a value, and those of its symbol.
        rule: what all are measured against.
    """

    title: str
    quantity: str
    scale: dot_plot.Scale
    row: Words
    series: Words = lambda one: ""
    rule: tuple[float, str] | None = None


KERNELS: Final = {
    "quant": Figure(
        "One layer's attention over 16,384 visual tokens", "times the best dense",
        dot_plot.Scale("times as fast as the best dense bf16 kernel", ".2f", "x"),
        lambda one: one.method, lambda one: f"{one.model}, batch {one.batch}", (1, "dense"),
    ),
    "latency": Figure(
        "One question alone, k = 32", "us",
        dot_plot.Scale("microseconds a layer", ".2f", " us", more_is_better=False),
        lambda one: f"{one.model}, {one.tokens:,} tokens", lambda one: one.method,
    ),
    "capacity": Figure(
        "What equal KV memory can serve", "tokens_per_s",
        dot_plot.Scale("tokens a second", ",.0f"),
        lambda one: f"{one.model}, {one.method}: {one.batch} at once",
    ),
    "solver": Figure(
        "Finding 256 rotations", "ms",
        dot_plot.Scale("milliseconds", ".2f", " ms", log=True, more_is_better=False),
        lambda one: one.method,
    ),
}  # fmt: skip
WAYS: Final = {"graph_ms": "captured as a graph", "decode_ms": "step by step"}
STEP: Final = dot_plot.Scale("milliseconds a token", ".1f", " ms", more_is_better=False)
HELD: Final = dot_plot.Scale("MiB of KV cache", ".1f", " MiB", more_is_better=False)
EFFICIENCY: Final = {  # quantity: title of its figure, scale
    "decode_ms": ("A whole decode step", dot_plot.Scale("milliseconds", ".2f", " ms", True, False)),
    "attention_ms": ("Its attention", dot_plot.Scale("milliseconds", ".3f", " ms", True, False)),
    "recovery_ms": (
        "Rebuilding full-width Keys, of the attention",
        dot_plot.Scale("milliseconds", ".3f", " ms", True, False),
    ),
    "join_ms": (
        "Joining them to the text's",
        dot_plot.Scale("milliseconds", ".3f", " ms", True, False),
    ),
    "tokens_per_s": ("Throughput", dot_plot.Scale("tokens a second", ",.0f", "", True)),
    "kv_mib": ("The cache", dot_plot.Scale("MiB", ",.0f", " MiB", True, False)),
    "prefill_ms": (
        "A prefill, before any method compresses",
        dot_plot.Scale("milliseconds", ",.1f", " ms", True, False),
    ),
    "compress_ms": (
        "Compressing a layer at a time, at worst",
        dot_plot.Scale("milliseconds", ".2f", " ms", more_is_better=False),
    ),
}


def measurements(files: Files) -> dict[str, Drawings]:
    """Every figure of measured values, by the group of the tab that holds it."""
    return {
        "real": real_keys(files), "kernels": kernels(files), "models": models(files),
        "efficiency": efficiency(files),
    }  # fmt: skip


def kernels(files: Files) -> Drawings:
    """Figures of the kernels' measurements."""
    drawn: Drawings = {}
    for bench, figure in KERNELS.items():
        found = [one for one in files.speeds
                 if (one.bench, one.quantity) == (bench, figure.quantity)]  # fmt: skip
        if found:
            made = (_dot(one, figure.row(one), figure.series(one)) for one in found)
            drawn[bench] = figure.title, dot_plot.draw(list(made), figure.scale, figure.rule)
    return drawn


def models(files: Files) -> Drawings:
    """Figures of whole models: milliseconds a step, bytes of the cache."""
    drawn: Drawings = {}
    for model in MODELS.values():
        mine = [one for one in files.speeds if (one.bench, one.model) == ("full_size", model)]
        if mine:
            key = model.partition("-")[0].replace(".", "")
            at = f"{model}, {mine[0].tokens:,} visual tokens"
            steps = [_dot(one, one.method, WAYS[one.quantity])
                     for one in mine if one.quantity in WAYS]  # fmt: skip
            held = [_dot(one, one.method) for one in mine if one.quantity == "kv_mib"]
            drawn[f"step-{key}"] = f"A step: {at}", dot_plot.draw(steps, STEP)
            drawn[f"held-{key}"] = f"The cache: {at}", dot_plot.draw(held, HELD)
    return drawn


def efficiency(files: Files) -> Drawings:
    """A figure a quantity and model: every length and batch is a row, every method a symbol."""
    found = [one for one in files.speeds if one.bench == "efficiency" and one.value]
    drawn: Drawings = {}
    for quantity, (title, scale) in EFFICIENCY.items():
        for model in dict.fromkeys(one.model for one in found):
            mine = [one for one in found if (one.model, one.quantity) == (model, quantity)]
            if quantity == "prefill_ms":  # before any method compresses: the same for all
                mine = [one._replace(method="") for one in mine if one.method == mine[0].method]
            if mine:
                key = f"eff-{quantity}-{model}".lower().replace("_", "-").replace(".", "")
                dots = [_dot(one, f"{one.batch} x {one.tokens:,} tokens", one.method)
                        for one in mine]  # fmt: skip
                drawn[key] = f"{title}: {model}", dot_plot.draw(dots, scale)
    return drawn


def _dot(one: Speed, row: str, series: str = "") -> dot_plot.Dot:
    """A value with its quartiles, in its method's colour."""
    colour = style_named(one.drawn).colour if one.drawn else NEUTRAL
    low = one.value if one.low is None else one.low
    return dot_plot.Dot(row, one.value, low, one.high or one.value, colour, series)


def efficiency_rows(files: Files) -> list[dict[str, Any]]:
    """The efficiency measurement as lines of a table, a column a quantity."""
    lines: dict[tuple[str, str, int, int], dict[str, Any]] = {}
    for one in files.speeds:
        if one.bench == "efficiency":
            key = one.model, one.method, one.batch, one.tokens
            names = "model", "method", "batch", "visual_tokens"
            line = lines.setdefault(key, dict(zip(names, key, strict=True)))
            line[one.quantity] = one.value
    return list(lines.values())
