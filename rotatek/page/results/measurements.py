"""Figures of measured speed and memory: the kernels', whole models', and efficiency at length."""

from collections.abc import Mapping
from typing import Any, Final

from rotatek.methods.channels import CHANNELS
from rotatek.page.results.files import Drawings, Files, efficiency_rows
from rotatek.page.results.styles import style_of
from viz import Drawing, dot_plot
from viz.theme import NEUTRAL

OURS: Final = ("k=", "bf16 k", "ours")  # how the kernels' measurements name rotated Keys


def kernels(files: Files) -> Drawings:
    """Figures of the kernels' measurements."""
    found = files.get("kernels", {})
    made = {"quant": _speed, "latency": _latency, "capacity": _capacity, "solver": _solver}
    return {name: draw(found[name]) for name, draw in made.items() if name in found}


def _speed(found: Mapping[str, Any]) -> tuple[str, Drawing]:
    speed = [
        dot_plot.Dot(name, gain, gain, gain, _kernel_colour(name), _shape(row["shape"]))
        for row in found["rows"]
        for name, gain in row["over_best_dense"].items()
    ]
    scale = dot_plot.Scale("times as fast as the best dense bf16 kernel", ".2f", "x")
    tokens = found["rows"][0]["shape"]["N"]
    drawing = dot_plot.draw(speed, scale, (1, "dense"))
    return f"One layer's attention over {tokens:,} visual tokens", drawing


def _latency(found: Mapping[str, Any]) -> tuple[str, Drawing]:
    names = {"read only": "reading the bytes alone"}
    times = [
        dot_plot.Dot(
            _shape(row["shape"], tokens=True), time["us"], time["low_us"], time["high_us"],
            NEUTRAL if name in names else CHANNELS.default.colour, names.get(name, name),
        )
        for row in found["rows"]
        for name, time in row["times"].items()
    ]  # fmt: skip
    scale = dot_plot.Scale("microseconds a layer", ".2f", " us", more_is_better=False)
    return "One question alone, k = 32", dot_plot.draw(times, scale)


def _capacity(found: Mapping[str, Any]) -> tuple[str, Drawing]:
    rates = [
        dot_plot.Dot(
            f"{row['model']}, {name}: {row['batch'][name]} at once", rate, rate, rate,
            NEUTRAL if name == "dense" else CHANNELS.default.colour,
        )
        for row in found["rows"]
        for name, rate in row["tokens_per_s"].items()
    ]  # fmt: skip
    scale = dot_plot.Scale("tokens a second", ",.0f")
    memory = found["rows"][0]["kv_gib"]
    return f"What {memory:.0f} GiB of KV memory can serve", dot_plot.draw(rates, scale)


def _solver(found: Mapping[str, Any]) -> tuple[str, Drawing]:
    count = found["matrices"]
    took = [
        dot_plot.Dot(name, ms, ms, ms, _kernel_colour(name))
        for name, ms in found["ms"].items()
        if "one layer" not in name
    ]
    scale = dot_plot.Scale("milliseconds", ".2f", " ms", log=True, more_is_better=False)
    return f"Finding {count} rotations", dot_plot.draw(took, scale)


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
        dot_plot.Dot(label, row[key], row[key], row[key], style_of(label).colour, way)
        for label, row in rows.items()
        for key, way in ways.items()
        if row[key]
    ]
    return dot_plot.draw(
        steps, dot_plot.Scale("milliseconds a token", ".1f", " ms", more_is_better=False)
    )


def _held(rows: Mapping[str, Mapping[str, Any]]) -> Drawing:
    held = [
        dot_plot.Dot(label, row["kv_mib"], row["kv_mib"], row["kv_mib"], style_of(label).colour)
        for label, row in rows.items()
    ]
    return dot_plot.draw(
        held, dot_plot.Scale("MiB of KV cache", ".1f", " MiB", more_is_better=False)
    )


EFFICIENCY: Final = {  # column: title of its figure, scale
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


def efficiency(files: Files) -> Drawings:
    """A figure a column and model: every length and batch is a row, every method a symbol."""
    rows = [row for row in efficiency_rows(files) if "batch" in row and "visual_tokens" in row]
    drawn: Drawings = {}
    for column, (title, scale) in EFFICIENCY.items():
        for model in dict.fromkeys(row.get("model", "") for row in rows):
            mine = [row for row in rows if row.get("model", "") == model and row.get(column)]
            if column == "prefill_ms":  # before any method compresses: the same for all
                mine = [{**row, "method": ""} for row in mine if row["method"] == mine[0]["method"]]
            if mine:
                key = f"eff-{column}-{model}".rstrip("-").lower().replace("_", "-")
                whose = f"{title}: {model}" if model else title
                drawing = dot_plot.draw([_dot(row, column) for row in mine], scale)
                drawn[key.replace(".", "")] = whose, drawing
    return drawn


def _dot(row: Mapping[str, Any], column: str) -> dot_plot.Dot:
    """A measurement at its batch and length, in its method's colour."""
    place, method = f"{row['batch']} x {row['visual_tokens']:,} tokens", row["method"]
    return dot_plot.Dot(place, *(row[column],) * 3, style_of(method).colour, method)


def _kernel_colour(name: str) -> str:
    """Rotated Keys in the colour of the method that made them."""
    return CHANNELS.default.colour if name.startswith(OURS) else NEUTRAL
