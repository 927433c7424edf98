"""From a file of answers alone: records with intervals, tables in Markdown, and one figure."""

from collections.abc import Iterable, Sequence
from html import escape
from math import log2, nan
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rotatek.evaluation.answers import Answer, read
from rotatek.evaluation.metrics import Resampled
from rotatek.evaluation.tables import TABLES, UNCOMPRESSED

EVERY: Final = "all splits"
FIRST, LATER = "first", "later"  # questions: asked afresh, and on the cache that the first left
HEADS: Final = (
    "setting", "bytes", "later questions, %", "difference, points", "same answers, %",
    "first questions, %", "whole tokens", "KL, mean", "KL, median", "KL, 99 %",
    "same choices, %",
)  # fmt: skip
HOW_TO: Final = "There are no answers yet. `rotatek evaluate` makes them."


class Record(NamedTuple):
    """How one setting answered a split's first questions, or its later ones.

    Attributes:
        split: of the suite, or `EVERY` for all of them.
        setting: `UNCOMPRESSED` is what the others are paired with.
        turn: `FIRST` or `LATER` questions.
        questions: that were answered; pictures: they are about.
        score: the mean in [0, 1]; low, high: its 95 % interval, resampled by picture.
        difference: from the uncompressed cache on the same questions, with its own interval.
        same: share of answers that are the uncompressed cache's.
        bytes: mean share of an uncompressed cache's bytes.
        whole_tokens: mean of the visual tokens stored as they were.
        kl, kl_median, kl_99: over the answers where it was measured, in nats; same_choices: mean
            share of equal likeliest tokens. NaN elsewhere.
    """

    model: str
    split: str
    setting: str
    turn: str
    questions: int
    pictures: int
    score: float
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float
    same: float
    bytes: float
    whole_tokens: float
    kl: float
    kl_median: float
    kl_99: float
    same_choices: float


def rows(path: Path) -> list[Record]:
    """The records of a file of answers: all models, splits and settings, first and later turns."""
    groups: dict[tuple[str, str, str], dict[str, list[Answer]]] = {}
    splits: dict[str, set[str]] = {}
    for one in read(path):
        splits.setdefault(one.model, set()).add(one.split)
        turn = FIRST if one.turn == 1 else LATER
        for split in (one.split, EVERY):
            settings = groups.setdefault((one.model, split, turn), {})
            settings.setdefault(one.setting, []).append(one)
    found = []
    for (model, split, turn), settings in groups.items():
        if split == EVERY and len(splits[model]) == 1:
            continue
        whole = {one.question: one for one in settings.get(UNCOMPRESSED, ())}
        draws: dict[tuple[str, ...], Resampled] = {}  # most settings answer the same questions
        for setting, answers in settings.items():
            answers = sorted(answers, key=lambda one: one.question)
            paired, difference = [one for one in answers if one.question in whole], (nan,) * 3
            for some in (answers, paired):
                pictures = tuple(one.picture for one in some)
                if pictures and pictures not in draws:
                    draws[pictures] = Resampled(pictures)
            if paired:
                gaps = np.array([one.score - whole[one.question].score for one in paired])
                difference = float(gaps.mean()), *draws[pictures].interval(gaps)
            scores = np.array([one.score for one in answers])
            interval = draws[tuple(one.picture for one in answers)].score_interval(scores)
            kls = [one.kl for one in answers if one.kl is not None] or [nan]
            choices = [one.same_choices for one in answers if one.same_choices is not None]
            found.append(Record(
                model, split, setting, turn, len(answers), len({one.picture for one in answers}),
                float(scores.mean()), *interval, *difference,
                float(np.mean([one.same for one in answers])),
                float(np.mean([one.bytes / one.full_bytes for one in answers])),
                float(np.mean([one.whole_tokens for one in answers])),
                float(np.mean(kls)), float(np.median(kls)), float(np.quantile(kls, 0.99)),
                float(np.mean(choices or [nan])),
            ))  # fmt: skip
    return found


def markdown(records: Sequence[Record]) -> str:
    """A page: for each model the tables of `TABLES`, and one of all other settings.

    Scores are those of later questions but for the column of first ones; the columns behind are the
    splits' own scores of later questions.
    """
    parts = [] if records else [HOW_TO]
    for model in dict.fromkeys(one.model for one in records):
        mine = [one for one in records if one.model == model]
        settings = list(dict.fromkeys(one.setting for one in mine))
        named = {name for names in TABLES.values() for name in names}
        asked = next(o for o in mine if (o.setting, o.split) == (settings[0], _every(mine)))
        parts.append(
            f"# {model}\n\n{asked.pictures} pictures. Bytes are live, of each prompt for itself, "
            "text and bases counted, as a share of an uncompressed cache's. Later questions meet "
            "the cache that a picture's first question left; first ones have read full Keys. "
            "Intervals are 95 %, paired with the uncompressed cache, resampled by picture."
        )
        tables = {**TABLES, "other settings": [name for name in settings if name not in named]}
        for title, names in tables.items():
            shown = [name for name in settings if name in names and name != UNCOMPRESSED]
            if shown:
                body = table_of(mine, [UNCOMPRESSED, *shown])
                parts.append(f"## {title[:1].upper()}{title[1:]}\n\n{body}")
    return "\n\n".join(parts) + "\n"


def table_of(records: Sequence[Record], settings: Iterable[str]) -> str:
    """One model's settings as a table in Markdown; values that there are not are left empty."""
    found = {(one.setting, one.split, one.turn): one for one in records}
    every = _every(records)
    splits = [name for name in dict.fromkeys(one.split for one in records) if name != EVERY]
    splits = splits if len(splits) > 1 else []
    lines = []
    for name in settings:
        later, first = (found.get((name, every, turn)) for turn in (LATER, FIRST))
        main = later or first
        if main is None:
            continue
        lines.append([
            name, f"{main.bytes:.3f}",
            "" if later is None else f"{100 * later.score:.1f}",
            "" if later is None or name == UNCOMPRESSED else _difference(later),
            "" if later is None else f"{100 * later.same:.1f}",
            "" if first is None else f"{100 * first.score:.1f}",
            f"{main.whole_tokens:.0f}",
            *(f"{value:.4f}" for value in (main.kl, main.kl_median, main.kl_99)),
            f"{100 * main.same_choices:.1f}",
            *("" if one is None else f"{100 * one.score:.1f}"
              for one in (found.get((name, split, LATER)) for split in splits)),
        ])  # fmt: skip
    return table([[*HEADS, *splits], *lines])


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells in Markdown, heads first; "nan" is left empty."""
    rows = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    cells = (["" if cell.strip("+") == "nan" else cell for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _every(records: Sequence[Record]) -> str:
    """The split that has all questions."""
    splits = [one.split for one in records]
    return EVERY if EVERY in splits else splits[0]


def _difference(one: Record) -> str:
    mean, low, high = (
        round(100 * value, 1) + 0.0  # adding zero turns -0.0 into 0.0
        for value in (one.difference, one.difference_low, one.difference_high)
    )
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"


WIDTH, HEIGHT, MARGIN = 400, 360, 44  # of a panel
LEAST, SHARES = 0.2, (0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)  # lowest score, and ticks of the bytes
SERIES: Final = {  # what has a colour; all else is grey
    "RotateK, smaller": "#0ca38a", "RotateK, channels": "#2f6fd0",
    "FastV and RotateK, budget": "#9c24fc", "FastV only, budget": "#d0408f",
    "KIVI, bits": "#b8860b", "TurboQuant, bits": "#cc3024", "OSCAR, bits": "#111827",
    "OScaR, bits": "#e07b00", "ThinK, channels": "#6d4c41", "SparK, channels": "#5b8c00",
}  # fmt: skip


def figure(records: Sequence[Record]) -> str:
    """An SVG, a panel a model: the score of later questions against the share of all bytes.
    Settings that differ in their last word alone are joined by a line."""
    models = list(dict.fromkeys(one.model for one in records))
    panels = [
        f'<g transform="translate({WIDTH * number},0)">{_panel(records, model)}</g>'
        for number, model in enumerate(models)
    ]
    right = WIDTH * len(models)
    for number, (name, colour) in enumerate(SERIES.items()):
        panels.append(_text(right, MARGIN + 20 * number, name, "start", colour, "bold"))
    panels.append(_text(right, MARGIN + 20 * len(SERIES), "other settings", "start", "#999"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + 190} {HEIGHT}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(panels)}</svg>\n"
    )


def _panel(records: Sequence[Record], model: str) -> str:
    split = _every([one for one in records if one.model == model])
    mine = [one for one in records if (one.model, one.split, one.turn) == (model, split, LATER)]

    def place(share: float, score: float) -> tuple[float, float]:
        x = log2(max(share, SHARES[0]) / SHARES[0]) / -log2(SHARES[0])
        y = (max(score, LEAST) - LEAST) / (1 - LEAST)
        across, down = WIDTH - 1.4 * MARGIN, HEIGHT - 2 * MARGIN
        return round(MARGIN + x * across, 1), round(HEIGHT - MARGIN - y * down, 1)

    drawn = [
        _text(WIDTH / 2, 22, f"{model}: follow-up scores over bytes", "middle", "#111", "bold")
    ]
    for share in SHARES:
        x, y = place(share, LEAST)
        drawn.append(_text(x, y + 18, f"{share:.0%}", "middle"))
    for score in range(20, 101, 20):
        x, y = place(SHARES[0], score / 100)
        drawn.append(_text(x - 6, y + 4, f"{score} %", "end"))
        drawn.append(f'<path d="M{x},{y}H{place(1, 0)[0]}" stroke="#ddd"/>')
    lines: dict[str, list[Record]] = {}
    for one in sorted(mine, key=lambda one: one.bytes):
        if one.setting == UNCOMPRESSED:
            (x, y), end = place(SHARES[0], one.score), place(1, 0)[0]
            drawn.append(f'<path d="M{x},{y}H{end}" stroke="#111" stroke-dasharray="2 4"/>')
        else:
            lines.setdefault(one.setting.rpartition(" ")[0], []).append(one)
    for name in sorted(lines, key=lambda name: name in SERIES):  # grey lies below
        colour = SERIES.get(name, "#bbb")
        points = [place(one.bytes, one.score) for one in lines[name]]
        if name in SERIES:
            path = " ".join(f"{x},{y}" for x, y in points)
            drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
        for one, (x, y) in zip(lines[name], points, strict=True):
            told = escape(f"{one.setting}: {100 * one.score:.1f} at {one.bytes:.3f}")
            dot = f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}">'
            drawn.append(f"{dot}<title>{told}</title></circle>")
    return "".join(drawn)


def _text(
    x: float, y: float, words: str, anchor: str, colour: str = "#333", weight: str = "normal"
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
    return f'<text {place} fill="{colour}">{escape(words)}</text>'
