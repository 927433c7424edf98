"""Accuracy and confidence of a pocket model's answers.

Exact match with 95 % Wilson intervals by kind, size and renderer, the error rate of transcriptions
(edit distance over length), and whether the model's confidence tells right from wrong.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pocket.questions.declining import DECLINED
from rotatek.evaluation.metrics import edit_distance, wilson

Z: Final = 1.96  # of 95 %, as all recorded tables have it


@dataclass
class Answered:
    """One question and its answer."""

    split: str
    renderer: str
    size: str
    kind: str
    question: str
    truth: str
    answer: str = ""
    error: float = 0.0
    confidence: float = 0.0


Pair = tuple[np.ndarray, Answered]


def note(pairs: list[Pair], answers: list[tuple[str, float]]) -> None:
    """Fill in what was answered to each item."""
    for (_, item), (text, confidence) in zip(pairs, answers, strict=True):
        item.answer, item.confidence = text, round(confidence, 4)
        item.error = edit_distance(text, item.truth) / max(1, len(item.truth))


def summary(items: Iterable[Answered]) -> dict[str, Any]:
    """Exact match with its interval, and the transcription error, of some items."""
    items = list(items)
    hits = sum(i.answer == i.truth for i in items)
    low, high = wilson(hits, len(items), Z)
    out = {"n": len(items), "exact": hits / max(1, len(items)), "low": low, "high": high}
    pages = [i for i in items if i.kind == "transcribe"]
    if pages:
        written = sum(len(i.truth) for i in pages)
        out["transcription_error"] = sum(i.error * len(i.truth) for i in pages) / written
        out["runaway"] = sum(i.error > 1 for i in pages)  # more wrong characters than there are
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in out.items()}


def report(items: list[Answered]) -> dict[str, Any]:
    """All tables: per split, and within each split per kind, size and renderer."""
    out: dict[str, Any] = {}
    for split in dict.fromkeys(i.split for i in items):
        mine = [i for i in items if i.split == split]
        table: dict[str, Any] = {"all": summary(mine)}
        table["short"] = summary(i for i in mine if i.kind != "transcribe")
        table["transcription"] = summary(i for i in mine if i.kind == "transcribe")
        for field in ("kind", "size", "renderer"):
            names = sorted({getattr(i, field) for i in mine})
            table[field] = {n: summary(i for i in mine if getattr(i, field) == n) for n in names}
        out[split] = table
    out["calibration"] = calibration(items)
    return out


def declined_shares(items: list[Answered]) -> dict[str, float]:
    """Of each split, the share of questions that were declined."""
    out = {}
    for split in dict.fromkeys(i.split for i in items):
        mine = [i.answer == DECLINED for i in items if i.split == split]
        out[split] = round(sum(mine) / len(mine), 4)
    return out


def calibration(items: list[Answered]) -> dict[str, Any]:
    """Does the confidence know? Share right per confidence bin, and the area under the ROC."""
    scores = np.array([i.confidence for i in items])
    right = np.array([i.answer == i.truth for i in items])
    edges = (0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.01)
    bins = []
    for low, high in zip(edges, edges[1:], strict=False):
        inside = (scores >= low) & (scores < high)
        if inside.any():
            share = float(right[inside].mean())
            bins.append({"from": low, "n": int(inside.sum()), "exact": round(share, 4)})
    order = scores.argsort()
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    good, bad = int(right.sum()), int((~right).sum())
    area = (ranks[right].sum() - good * (good + 1) / 2) / max(1, good * bad)
    return {"bins": bins, "auroc": round(float(area), 4)}


def markdown(tables: dict[str, Any]) -> str:
    """The report as Markdown tables."""
    lines = [
        "| split | group | n | exact | 95 % | transcription error |",
        "|---|---|---|---|---|---|",
    ]
    for split, table in tables.items():
        if split in ("calibration", "declined"):
            continue
        rows = {name: table[name] for name in ("all", "short", "transcription")}
        for field in ("kind", "size", "renderer"):
            rows |= {f"{field}: {name}": row for name, row in table[field].items()}
        for name, r in rows.items():
            error = f"{r['transcription_error']:.3f}" if "transcription_error" in r else ""
            lines.append(
                f"| {split} | {name} | {r['n']} | {r['exact']:.3f} "
                f"| {r['low']:.3f}-{r['high']:.3f} | {error} |"
            )
    return "\n".join(lines)
