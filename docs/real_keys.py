"""Tables and figures of `python -m benchmarks real-keys`, from the tidy tables that it wrote.

docs/real_keys.svg has a panel a model and context: divergence over live bytes, a line a method,
of those settings that none of the method's others beats in fewer bytes. docs/spectra.svg has the
Keys' and Values' effective rank and energy layer by layer, real models beside the embedded ones.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import log2, log10
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from benchmarks.key_spectra import Spectra
from rotatek.evaluation.real_keys import (
    REAL_KEYS,
    SPECTRA,
    Divergence,
    Spectrum,
    read,
    unbeaten,
)
from rotatek.evaluation.report import table_of
from rotatek.methods.channels import CHANNELS
from rotatek.methods.tokens import TOKENS

ROOT: Final = Path(__file__).resolve().parent
RESULTS: Final = ROOT.parent / "assets" / "results"
SIZES: Final = (3, 4, 5, 6, 8, 12, 16)  # times fewer bytes
SLACK: Final = 1.02  # of a size's bytes, which settings with steps may pass
FAMILIES: Final = ("RotateK", "KIVI", "TurboQuant", "VidKV", "SnapKV", "AdaKV")  # of the tables
WIDE, HIGH, LEFT, TOP, RIGHT, BELOW = 760, 270, 52, 34, 178, 40
INK, FAINT = "#667080", "#66708044"
HUES: Final = ("#0ca38a", "#d9780f", "#2b66d9", "#9c24fc", "#cc3024")
Points = Sequence[tuple[float, float]]


def figures() -> list[Divergence]:
    """Every model's, context's and setting's means."""
    return read(RESULTS / REAL_KEYS, Divergence)


def at_best(found: Iterable[Divergence], name: str, times: float) -> Divergence | None:
    """A method's setting of least divergence that holds no more than 1 / times of the bytes."""
    fits = [one for one in found if one.method == name and one.live * times <= SLACK]
    return min(fits, key=lambda one: one.kl, default=None)


def cases(found: Iterable[Divergence]) -> list[tuple[str, int, str]]:
    """Models, contexts and whether the question came later, in order."""
    return list(dict.fromkeys(one[:3] for one in found))


def sizes_table() -> str:
    """Divergence of every method's best setting at each size; the least of a row is bold."""
    every, body = figures(), []
    for case in cases(every):
        own = [one for one in every if one[:3] == case]
        for times in SIZES:
            best = [at_best(own, name, times) for name in FAMILIES]
            least = min((one.kl for one in best if one is not None), default=0.0)
            cells = [_cell(one, least) for one in best]
            body.append([case[0], f"{case[1]:,}", case[2], str(times), *cells])
    return table_of(["model", "tokens", "asked", "times smaller", *FAMILIES], body)


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


class Line(NamedTuple):
    """Points of one name, in its colour."""

    name: str
    colour: str
    dash: str
    points: Points


class Axis(NamedTuple):
    """Ends of an axis, its ticks with their words, and whether it is logarithmic."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    def share(self, value: float) -> float:
        """Where a value lies, 0 to 1."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


def panel(title: str, lines: Sequence[Line], x: Axis, y: Axis, top: int) -> Iterator[str]:
    """The lines of SVG of one chart, whose upper edge is at `top`."""
    across, down = WIDE - LEFT - RIGHT, HIGH - TOP - BELOW

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return LEFT + across * x.share(point[0]), top + TOP + down * (1 - y.share(point[1]))

    yield _text(LEFT, top + 18, title, size=14)
    for value, word in x.ticks:
        place = at((value, 0))[0]
        yield f'<path d="M{place:.1f} {top + TOP}v{down}" stroke="{FAINT}"/>'
        yield _text(place, top + HIGH - BELOW + 16, word, "middle")
    for value, word in y.ticks:
        place = at((0, value))[1]
        yield f'<path d="M{LEFT} {place:.1f}h{across}" stroke="{FAINT}"/>'
        yield _text(LEFT - 8, place + 4, word, "end")
    for number, line in enumerate(lines):
        points = [at(point) for point in line.points]
        path = "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        look = f'stroke="{line.colour}" stroke-width="2" stroke-dasharray="{line.dash}"'
        yield f'<path d="M{path}" fill="none" {look}/>'
        for px, py in points if len(points) < 12 else ():
            yield f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{line.colour}"/>'
        yield _text(WIDE - RIGHT + 16, top + TOP + 10 + 17 * number, line.name, ink=line.colour)


def _text(
    x: float, y: float, said: str, anchor: str = "start", ink: str = INK, size: int = 12
) -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {where} fill="{ink}">{escape(said)}</text>'


def _picture(panels: Sequence[Iterator[str]]) -> str:
    size = f'width="{WIDE}" height="{HIGH * len(panels)}"'
    view = f'viewBox="0 0 {WIDE} {HIGH * len(panels)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} font-family="sans-serif">'
    return "\n".join([head, *(part for one in panels for part in one), "</svg>"]) + "\n"


def front(found: Sequence[Divergence], name: str) -> list[tuple[float, float]]:
    """(log2 of live bytes, log10 of divergence) of a method's settings that none other beats."""
    own = unbeaten(one for one in found if one.method == name)
    return [(log2(one.live), log10(max(one.kl, 1e-6))) for one in own]


def divergences() -> str:
    """docs/real_keys.svg."""
    every = figures()
    styles = {kind.label: kind for kind in (*TOKENS.own.values(), *CHANNELS.own.values())}
    names = [name for name in styles if any(one.method == name for one in every)]
    x = Axis(-6, 0, [(-n, "all" if n == 0 else f"1/{2**n}") for n in range(6, -1, -1)])
    y = Axis(-3.5, 0.5, [(n, f"{10.0**n:g}") for n in range(-3, 1)])
    made = []
    for number, case in enumerate(cases(every)):
        own = [one for one in every if one[:3] == case]
        lines = [
            Line(name, styles[name].colour, "", points)
            for name in names
            if (points := front(own, name))
        ]
        title = f"{case[0]}, {case[1]:,} tokens, asked {case[2]}: KL over live bytes"
        made.append(panel(title, lines, x, y, number * HIGH))
    return _picture(made)


def spectra() -> str:
    """docs/spectra.svg."""
    rows = Spectra.load(RESULTS / SPECTRA).rows
    least = {one.model: min(r.tokens for r in rows if r.model == one.model) for one in rows}
    rows = [one for one in rows if one.tokens == least[one.model]]
    depth = Axis(0, 1, [(0, "first layer"), (0.5, "half"), (1, "last layer")])
    share = Axis(0, 1, [(n / 4, f"{n / 4:g}") for n in range(5)])
    made = []
    for number, (field, title) in enumerate(
        {
            "rank": "effective rank over d (lines: Keys; dashes: Values)",
            "quarter": "share of the energy in d/4 channels (lines: Keys; dashes: Values)",
        }.items()
    ):
        lines = [
            Line(model if part == "keys" else "", HUES[i % len(HUES)], dash, _by_depth(own, field))
            for part, dash in (("keys", ""), ("values", "3 4"))
            for i, model in enumerate(least)
            if (own := [one for one in rows if (one.model, one.part) == (model, part)])
        ]
        made.append(panel(title, lines, depth, share, number * HIGH))
    return _picture(made)


def _by_depth(own: Sequence[Spectrum], field: str) -> list[tuple[float, float]]:
    last = max(one.layer for one in own) or 1
    return [(one.layer / last, float(getattr(one, field))) for one in own]


def draw() -> None:
    """Write both figures."""
    (ROOT / "real_keys.svg").write_text(divergences(), encoding="utf-8")
    (ROOT / "spectra.svg").write_text(spectra(), encoding="utf-8")
