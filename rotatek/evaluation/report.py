"""From a journal's answers to tables with intervals, as JSON and as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rotatek.evaluation.journal import Answer, setting_id
from rotatek.evaluation.metrics import error_rate, exact_match, interval, paired_interval
from rotatek.evaluation.suite import Item
from rotatek.evaluation.tables import Claim, Row, Table
from rotatek.evaluation.tables import asked as asked_of
from rotatek.settings import BASELINE

ABOUT: Final = 0.02  # "about as good": within two points

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Answered:
    """One row's answers to the items of its table, in their order.

    Args:
        row: of the table.
        answers: to each item.
        score: [n] in [0, 1], by each item's own metric.
        exact: [n], 1 where an answer is an accepted one.
    """

    row: Row
    answers: tuple[Answer, ...]
    score: Floats
    exact: Floats


def build(
    tables: Sequence[Table],
    items: Sequence[Item],
    answers: Mapping[tuple[str, str], Answer],
    header: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything the results file holds.

    A table compares the questions that all its rows answered; rows without any answer are left out,
    so an interrupted run reports what it has.

    Args:
        tables: what to compare.
        items: the suite's questions.
        answers: by setting and item.
        header: what the answers belong to, and where they were made.
    """
    made = [_table(table, items, answers) for table in tables]
    return {**header, "tables": [table for table in made if table["rows"]]}


def _table(
    table: Table, items: Sequence[Item], answers: Mapping[tuple[str, str], Answer]
) -> dict[str, Any]:
    asked = asked_of(table.scope, items)
    total = len(asked)
    answered_by = {name for name, _ in answers}
    owed = {setting_id(s) for s in (BASELINE, *(row.settings for row in table.rows))} & answered_by
    asked = [item for item in asked if all((name, item.name) in answers for name in owed)]
    groups = np.array([item.document for item in asked], dtype=np.int64)
    rows: dict[str, Answered] = {}
    for row in table.rows:
        answered = _answered(row, asked, answers)
        if answered is not None:
            rows[row.label] = answered
    reference = _answered(Row("", BASELINE), asked, answers)
    return {
        "name": table.name,
        "title": table.title,
        "questions": len(asked),
        "of": total,
        "documents": len(np.unique(groups)),
        "rows": [_row(answered, asked, groups, reference) for answered in rows.values()],
        "claims": [
            _claim(claim, rows, groups)
            for claim in table.claims
            if claim.first in rows and claim.second in rows
        ],
    }


def _answered(
    row: Row, items: Sequence[Item], answers: Mapping[tuple[str, str], Answer]
) -> Answered | None:
    """A row's answers, or None unless every item has one."""
    name = setting_id(row.settings)
    found = [answers.get((name, item.name)) for item in items]
    given = tuple(answer for answer in found if answer is not None)
    if not given or len(given) < len(items):
        return None
    pairs = list(zip(items, given, strict=True))
    return Answered(
        row,
        given,
        np.array([item.score(answer.answer) for item, answer in pairs]),
        np.array([exact_match(answer.answer, item.accepted) for item, answer in pairs]),
    )


def _row(
    answered: Answered,
    items: Sequence[Item],
    groups: NDArray[np.int64],
    reference: Answered | None,
) -> dict[str, Any]:
    """One line: score with its interval, by category, bytes, and how it differs from the whole."""
    out: dict[str, Any] = {
        "label": answered.row.label,
        "settings": answered.row.settings.as_dict(),
        "nominal_kv": round(answered.row.settings.nominal_kv, 6),
        "actual_kv": _mean([answer.kv_share for answer in answered.answers]),
        "score": _mean(answered.score),
        "interval": _rounded(interval(answered.score, groups)),
        "exact_match": _mean(answered.exact),
        "by_category": _by_category(answered, items, groups),
        "new_tokens": _mean([answer.tokens for answer in answered.answers]),
    }
    if any(item.long for item in items):
        out["error_rate"] = _corpus_error(answered, items)
    if reference is not None:
        out |= _against(answered, reference, groups)
    return out


def _by_category(
    answered: Answered, items: Sequence[Item], groups: NDArray[np.int64]
) -> dict[str, Any]:
    """Score and interval of each kind of question."""
    categories = np.array([item.category for item in items])
    found = {}
    for name in dict.fromkeys(categories.tolist()):
        own = categories == name
        scores = answered.score[own]
        pair = _rounded(interval(scores, groups[own]))
        found[name] = {"score": _mean(scores), "interval": pair}
    return found


def _against(answered: Answered, reference: Answered, groups: NDArray[np.int64]) -> dict[str, Any]:
    """How a row differs from the uncompressed answers to the same questions."""
    pairs = zip(answered.answers, reference.answers, strict=True)
    pair = paired_interval(answered.score, reference.score, groups)
    return {
        "agreement": _mean([float(a.answer == b.answer) for a, b in pairs]),
        "difference": _mean(answered.score - reference.score),
        "difference_interval": _rounded(pair),
    }


def _corpus_error(answered: Answered, items: Sequence[Item]) -> float:
    """Character error rate over all transcriptions together, long ones weighing more."""
    edits = length = 0.0
    for item, answer in zip(items, answered.answers, strict=True):
        if item.long:
            size = len(" ".join(item.accepted[0].split()))
            edits += error_rate(answer.answer, item.accepted[:1]) * size
            length += size
    return round(edits / max(1.0, length), 5)


def _claim(claim: Claim, rows: Mapping[str, Answered], groups: NDArray[np.int64]) -> dict[str, Any]:
    """What was found of an expectation: the paired difference, its interval, a verdict."""
    first, second = rows[claim.first].score, rows[claim.second].score
    difference = float(np.mean(first - second))
    low, high = paired_interval(first, second, groups)
    return {
        "expected": f"{claim.first} {claim.relation} {claim.second}",
        "difference": round(difference, 5),
        "interval": _rounded((low, high)),
        "verdict": verdict(claim.relation, low, high),
    }


def verdict(relation: str, low: float, high: float) -> str:
    """What a 95 % interval of a difference says about an expectation.

    "at least": holds above 0, fails below 0. "about": holds inside two points either way, fails
    outside. Anything else is open: the data do not tell. An identical pair holds.
    """
    if relation == "about":
        if low >= -ABOUT and high <= ABOUT:
            return "holds"
        return "fails (better)" if low > ABOUT else "fails" if high < -ABOUT else "open"
    if low > 0 or low == high == 0:
        return "holds"
    return "fails" if high < 0 else "open"


def _mean(values: Sequence[float] | Floats) -> float:
    return round(float(np.mean(values)), 5) if len(values) else 0.0


def _rounded(pair: tuple[float, float]) -> list[float]:
    return [round(pair[0], 5), round(pair[1], 5)]


def markdown(report: Mapping[str, Any]) -> str:
    """The report as a page: one table each, scores in per cent with 95 % intervals."""
    suite, model = report["suite"], report["model"]
    counts = ", ".join(f"{count} {name}" for name, count in suite["categories"].items())
    metrics = ", ".join(f"{name}: {metric}" for name, metric in suite["metrics"].items())
    lines = [
        f"# {model['name']} on {suite['name']}",
        "",
        f"{suite['questions']} questions over {suite['documents']} images ({counts}). "
        f"Metrics: {metrics}. Intervals are 95 %, resampled by image; differences and agreement "
        "are against the uncompressed answers to the same questions. KV is the nominal share of "
        "the visual cache; bytes is the share of all bytes of the cache after prefill, text and "
        "bases included.",
    ]
    for table in report["tables"]:
        lines += ["", f"## {table['title']}", ""]
        if table["questions"] < table["of"]:
            lines += [f"The {table['questions']} of {table['of']} questions answered so far.", ""]
        lines += _markdown_rows(table)
        if table["claims"]:
            lines += ["", "| Expected from the paper | difference | found |", "|---|---|---|"]
            lines += [
                f"| {c['expected']} | {_points(c['difference'], c['interval'])} | {c['verdict']} |"
                for c in table["claims"]
            ]
    return "\n".join(lines) + "\n"


def _markdown_rows(table: Mapping[str, Any]) -> list[str]:
    names = list(table["rows"][0]["by_category"])
    shown = names if len(names) > 1 else []
    errors = "error_rate" in table["rows"][0]
    head = ["Method", "KV", "bytes", "score", "difference", "same answer", *shown]
    head += ["error rate"] if errors else []
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in table["rows"]:
        low, high = row["interval"]
        cells = [
            row["label"],
            f"{row['nominal_kv']:.3f}",
            f"{row['actual_kv']:.3f}",
            f"{100 * row['score']:.1f} ({100 * low:.1f} to {100 * high:.1f})",
        ]
        difference = row.get("difference")
        cells.append("" if difference is None else _points(difference, row["difference_interval"]))
        cells.append("" if difference is None else f"{100 * row['agreement']:.1f} %")
        cells += [f"{100 * row['by_category'][name]['score']:.1f}" for name in shown]
        cells += [f"{100 * row['error_rate']:.1f} %"] if errors else []
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _points(difference: float, pair: Sequence[float]) -> str:
    """A difference in points with its interval."""
    low, high = pair
    # Adding zero turns -0.0 into 0.0.
    one, two, three = (round(100 * value, 1) + 0.0 for value in (difference, low, high))
    return f"{one:+.1f} ({two:+.1f} to {three:+.1f})"
