"""Tables and figures of `python -m benchmarks real-keys` and `stored-keys`, from the tidy tables
that they wrote.

docs/real_keys.svg has a panel a model and context: divergence over live bytes, a line a method,
of those settings that none of the method's others beats in fewer bytes. docs/spectra.svg has the
Keys' and Values' effective rank and energy layer by layer, real models beside the embedded ones.
"""

from collections.abc import Iterable, Sequence
from math import log2, log10
from pathlib import Path
from typing import Final

from benchmarks.key_spectra import Spectra
from docs.svg_chart import Axis, Chart, Line, picture
from rotatek.evaluation.cells import pareto_front
from rotatek.evaluation.real_keys import (
    REAL_KEYS,
    SPECTRA,
    STORED,
    Divergence,
    Spectrum,
    read,
)
from rotatek.evaluation.report import table_of
from rotatek.methods.channels import CHANNELS
from rotatek.methods.tokens import TOKENS

ROOT: Final = Path(__file__).resolve().parent
RESULTS: Final = ROOT.parent / "assets" / "results"
SIZES: Final = (3, 4, 5, 6, 8, 12, 16)  # times fewer bytes
STORED_SIZES: Final = (*SIZES, 24, 32)
SLACK: Final = 1.02  # of a size's bytes, which settings with steps may pass
FAMILIES: Final = ("RotateK", "KIVI", "TurboQuant", "VidKV", "SnapKV", "AdaKV")  # of the tables
STORED_FAMILIES: Final = ("RotateK", "KIVI", "TurboQuant", "KVTC")
FEW: Final = 12  # layers, each of which has a dot
HIGH, BELOW = 270, 40  # pixels of a chart, and of its lower margin
HUES: Final = ("#0ca38a", "#d9780f", "#2b66d9", "#9c24fc", "#cc3024")


def figures(table: str = REAL_KEYS) -> list[Divergence]:
    """Every model's, context's and setting's means."""
    return read(RESULTS / table, Divergence)


def at_best(found: Iterable[Divergence], name: str, times: float) -> Divergence | None:
    """A method's setting of least divergence that holds no more than 1 / times of the bytes."""
    fits = [one for one in found if one.method == name and one.live * times <= SLACK]
    return min(fits, key=lambda one: one.kl, default=None)


def cases(found: Iterable[Divergence]) -> list[tuple[str, int, str]]:
    """Models, contexts and whether the question came later, in order."""
    return list(dict.fromkeys(one[:3] for one in found))


def sizes_table() -> str:
    """Divergence of every method's best setting at each size; the least of a row is bold."""
    return _at_sizes(figures(), SIZES, FAMILIES)


def stored_table() -> str:
    """The same of bytes in files."""
    return _at_sizes(figures(STORED), STORED_SIZES, STORED_FAMILIES)


def _at_sizes(every: Sequence[Divergence], sizes: Sequence[int], methods: Sequence[str]) -> str:
    body = []
    for case in cases(every):
        own = [one for one in every if one[:3] == case]
        for times in sizes:
            best = [at_best(own, name, times) for name in methods]
            least = min((one.kl for one in best if one is not None), default=0.0)
            cells = [_cell(one, least) for one in best]
            body.append([case[0], f"{case[1]:,}", case[2], str(times), *cells])
    return table_of(["model", "tokens", "asked", "times smaller", *methods], body)


def _cell(one: Divergence | None, least: float) -> str:
    if one is None:
        return ""
    return f"**{one.kl:.4f}**" if one.kl == least else f"{one.kl:.4f}"


def settings_table(context: int, asked: str) -> str:
    """Every setting: live bytes, nats and divergence, by model."""
    every = [one for one in figures() if one[1:3] == (context, asked)]
    models = list(dict.fromkeys(one.model for one in every))
    body = []
    for arm in dict.fromkeys(one.arm for one in every):
        line = [arm]
        for model in models:
            mine = [one for one in every if (one.model, one.arm) == (model, arm)]
            for one in mine:
                spread = f" ± {one.spread:.4f}" if one.segments > 1 else ""
                line += [f"{one.live:.3f}", f"{one.nats:+.3f}", f"{one.kl:.4f}{spread}"]
            line += [] if mine else [""] * 3
        body.append(line)
    heads = [f"{model}: {what}" for model in models for what in ("bytes", "nats", "KL")]
    return table_of(["setting", *heads], body)


def spectra_table() -> str:
    """Means over layers of what `benchmarks.key_spectra` measures."""
    tables = Spectra.load(RESULTS / SPECTRA).tables()["spectra"]
    body = [[name, *(f"{value:g}" for value in row.values())] for name, row in tables.items()]
    heads = list(next(iter(tables.values()))) if tables else []
    return table_of(["", *heads], body)


# --- Figures -----------------------------------------------------------------------------------


def front_of(found: Sequence[Divergence], name: str) -> list[tuple[float, float]]:
    """(log2 of live bytes, log10 of divergence) of a method's settings that none other beats."""
    own = (one for one in found if one.method == name)
    front = pareto_front(own, lambda one: one.live, lambda one: -one.kl)
    return [(log2(one.live), log10(max(one.kl, 1e-6))) for one in front]


def divergences() -> str:
    """docs/real_keys.svg."""
    every = figures()
    styles = {kind.label: kind for kind in (*TOKENS.own.values(), *CHANNELS.own.values())}
    names = [name for name in styles if any(one.method == name for one in every)]
    x = Axis(-6, 0, [(-n, "all" if n == 0 else f"1/{2**n}") for n in range(6, -1, -1)])
    y = Axis(-3.5, 0.5, [(n, f"{10.0**n:g}") for n in range(-3, 1)])
    made = []
    for case in cases(every):
        own = [one for one in every if one[:3] == case]
        lines = [
            Line(name, styles[name].colour, "", points)
            for name in names
            if (points := front_of(own, name))
        ]
        title = f"{case[0]}, {case[1]:,} tokens, asked {case[2]}: KL over live bytes"
        made.append(Chart(title, lines, x, y))
    return picture(made, HIGH, BELOW)


def spectra() -> str:
    """docs/spectra.svg."""
    rows = Spectra.load(RESULTS / SPECTRA).rows
    least = {one.model: min(r.tokens for r in rows if r.model == one.model) for one in rows}
    rows = [one for one in rows if one.tokens == least[one.model]]
    depth = Axis(0, 1, [(0, "first layer"), (0.5, "half"), (1, "last layer")])
    share = Axis(0, 1, [(n / 4, f"{n / 4:g}") for n in range(5)])
    made = []
    for field, title in {
        "rank": "effective rank over d (lines: Keys; dashes: Values)",
        "quarter": "share of the energy in d/4 channels (lines: Keys; dashes: Values)",
    }.items():
        lines = [
            Line(model if part == "keys" else "", HUES[i % len(HUES)], dash, _by_depth(own, field),
                 dots=len(own) < FEW)
            for part, dash in (("keys", ""), ("values", "3 4"))
            for i, model in enumerate(least)
            if (own := [one for one in rows if (one.model, one.part) == (model, part)])
        ]  # fmt: skip
        made.append(Chart(title, lines, depth, share))
    return picture(made, HIGH, BELOW)


def _by_depth(own: Sequence[Spectrum], field: str) -> list[tuple[float, float]]:
    last = max(one.layer for one in own) or 1
    return [(one.layer / last, float(getattr(one, field))) for one in own]


def draw() -> None:
    """Write both figures."""
    (ROOT / "real_keys.svg").write_text(divergences(), encoding="utf-8")
    (ROOT / "spectra.svg").write_text(spectra(), encoding="utf-8")
