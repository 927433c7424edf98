"""From a journal's answers to tables with intervals, as JSON and as Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rotatek.evaluation.claims import CLAIMS, Judge, Pair, Scored
from rotatek.evaluation.journal import Answer, setting_id
from rotatek.evaluation.metrics import error_rate, exact_match, interval, paired_interval, points
from rotatek.evaluation.suite import Item
from rotatek.evaluation.tables import Claim, Row, Table
from rotatek.evaluation.tables import asked as asked_of
from rotatek.inputs.text_files import as_json, whole_characters
from rotatek.methods.options import options_of
from rotatek.methods.settings import BASELINE, Settings

TYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}  # of cached numbers

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
    topics: dict[str, tuple[list[Pair], list[Pair]]] = {}
    scores = {
        (setting, item.name): item.score(answers[setting, item.name].answer)
        for setting in {name for name, _ in answers}
        for item in items
        if (setting, item.name) in answers
    }
    known = {row.settings for table in tables for row in table.rows}
    asked = Asked(items, answers, scores, list(known))
    made = [_table(table, asked, topics) for table in tables]
    if "think" in topics:
        topics["kinds"] = topics["think"]
    return {
        **header,
        "tables": [table for table in made if table["rows"]],
        "claims": [_topic(name, *topics[name], asked) for name in CLAIMS if name in topics],
    }


@dataclass(frozen=True)
class Asked:
    """Everything that was asked and answered.

    Args:
        items: the suite's questions.
        answers: by setting and item.
        scores: of the same.
        known: every setting of the tables.
    """

    items: Sequence[Item]
    answers: Mapping[tuple[str, str], Answer]
    scores: Mapping[tuple[str, str], float]
    known: Sequence[Settings]

    def judge(self, asked: Sequence[Item]) -> Judge:
        """Of every setting that answered all of some questions."""
        found = []
        for settings in self.known:
            name = setting_id(settings)
            if asked and all((name, item.name) in self.answers for item in asked):
                own = {item.name: self.scores[name, item.name] for item in asked}
                share = _mean([self.answers[name, item.name].kv_share for item in asked])
                found.append(Scored(settings, own, share))
        return Judge(found, {item.name: item.document for item in self.items})


def _table(
    table: Table, every: Asked, topics: dict[str, tuple[list[Pair], list[Pair]]]
) -> dict[str, Any]:
    asked, answers = asked_of(table.scope, every.items), every.answers
    total = len(asked)
    answered_by = {name for name, _ in answers}
    owed = {setting_id(s) for s in (BASELINE, *(row.settings for row in table.rows))} & answered_by
    asked = [item for item in asked if all((name, item.name) in answers for name in owed)]
    groups = np.array([item.document for item in asked], dtype=np.int64)
    rows: dict[str, Answered] = {}
    for row in table.rows:
        answered = _answered(row, asked, every)
        if answered is not None:
            rows[row.label] = answered
    reference = _answered(Row("", BASELINE), asked, every)
    judge = every.judge(asked) if table.claims and rows else None
    return {
        "name": table.name,
        "title": table.title,
        "questions": len(asked),
        "of": total,
        "documents": len(np.unique(groups)),
        "rows": [_row(answered, asked, groups, reference) for answered in rows.values()],
        "claims": [
            _claim(claim, rows, asked, judge, topics)
            for claim in table.claims
            if judge is not None and claim.labels <= rows.keys()
        ],
    }


def _claim(
    claim: Claim,
    rows: Mapping[str, "Answered"],
    asked: Sequence[Item],
    judge: Judge,
    topics: dict[str, tuple[list[Pair], list[Pair]]],
) -> dict[str, Any]:
    """What was found of an expectation, as the rows stand and at equal live bytes."""
    settings = {label: answered.row.settings for label, answered in rows.items()}
    names = tuple(item.name for item in asked)
    out: dict[str, Any] = {"expected": str(claim), "topic": claim.topic}
    for live in (False, True):
        difference = judge.difference(claim, settings, names, live)
        found = None
        if difference is not None:
            pair = Pair(claim.relation, names, difference)
            found = judge.found(pair)
            if claim.topic in CLAIMS:
                topics.setdefault(claim.topic, ([], []))[live].append(pair)
        out |= {"live": found} if live else found or {}
    return out


def _topic(
    name: str, nominal: Sequence[Pair], live: Sequence[Pair], every: Asked
) -> dict[str, Any]:
    """A claim as a whole: the mean of its pairs."""
    judge = Judge((), {item.name: item.document for item in every.items})
    text, where = CLAIMS[name]
    pool = judge.pooled
    if name == "kinds":
        kinds = {item.name: item.category for item in every.items}
        pool = partial(judge.of_kinds, kinds=kinds)
    pooled = {"nominal": pool(nominal), "live": pool(live)}
    return {"topic": name, "text": text, "where": where, **pooled}


def _answered(row: Row, items: Sequence[Item], every: Asked) -> Answered | None:
    """A row's answers, or None unless every item has one."""
    name = setting_id(row.settings)
    found = [every.answers.get((name, item.name)) for item in items]
    given = tuple(answer for answer in found if answer is not None)
    if not given or len(given) < len(items):
        return None
    pairs = list(zip(items, given, strict=True))
    return Answered(
        row,
        given,
        np.array([every.scores[name, item.name] for item in items]),
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
        "settings": short(answered.row.settings),
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


def short(settings: Settings) -> dict[str, Any]:
    """Flat settings without what is at its default, and without the names of files of this machine;
    `Settings.from_dict` reads them back where both methods are registered."""
    kept = settings.as_dict()
    for method in (settings.tokens, settings.channels):
        for one in options_of(method):
            if one.kind == "path" or kept.get(one.key) == one.default:
                kept.pop(one.key, None)
    return kept


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


def _mean(values: Sequence[float] | Floats) -> float:
    return round(float(np.mean(values)), 5) if len(values) else 0.0


def _rounded(pair: tuple[float, float]) -> list[float]:
    return [round(pair[0], 5), round(pair[1], 5)]


def written(built: Mapping[str, Any]) -> str:
    """A results file: a row a line."""
    text = as_json(built)
    return text.replace('{"label": ', '\n{"label": ').replace('{"topic": ', '\n{"topic": ') + "\n"


def save(built: Mapping[str, Any], path: Path) -> Path:
    """Write a report as JSON to `path`, and as a page beside it; returns the page."""
    path.write_text(written(built), encoding="utf-8")
    page = path.with_suffix(".md")
    page.write_text(whole_characters(markdown(built)), encoding="utf-8")
    return page


def markdown(report: Mapping[str, Any]) -> str:
    """The report as a page: one table each, scores in per cent with 95 % intervals."""
    suite, model = report["suite"], report["model"]
    counts = ", ".join(f"{count} {name}" for name, count in suite["categories"].items())
    metrics = ", ".join(f"{name}: {metric}" for name, metric in suite["metrics"].items())
    kind = type_of(report)
    lines = [
        f"# {model['name']} on {suite['name']}",
        "",
        f"Weights {model['weights']}, {kind}"
        + (f", on {report['ran_on']['device']}" if "ran_on" in report else "")
        + f". {suite['questions']} questions over {suite['documents']} images ({counts}). "
        f"Metrics: {metrics}. Intervals are 95 %, resampled by image; differences and agreement "
        "are against the uncompressed answers to the same questions. Live bytes are the share of "
        f"all bytes of a {kind} cache after prefill, text and bases included; nominal is the "
        "paper's count.",
    ]
    if report.get("claims"):
        lines += ["", "## Claims", "", *claim_lines(report)]
    for table in report["tables"]:
        lines += ["", f"## {table['title']}", ""]
        if table["questions"] < table["of"]:
            lines += [f"The {table['questions']} of {table['of']} questions answered so far.", ""]
        lines += _markdown_rows(table, kind)
        if table["claims"]:
            lines += ["", "| Expected | difference | found | at equal live bytes | found |"]
            lines += ["|" + "---|" * 5]
            lines += [f"| {c['expected']} | {_judged(c)} | {_judged(c['live'])} |"
                      for c in table["claims"]]  # fmt: skip
    return "\n".join(lines) + "\n"


def type_of(report: Mapping[str, Any]) -> str:
    """The type of the cached numbers that shares of bytes are of: bf16."""
    dtype = str(report["model"]["dtype"])
    return TYPES.get(dtype, dtype)


def claim_lines(report: Mapping[str, Any]) -> list[str]:
    """Every claim as a line of a table: live bytes first, then the paper's count."""
    lines = ["| claim | the paper | at equal live bytes | found | nominal | found |"]
    lines += ["|" + "---|" * 6]
    for one in report["claims"]:
        cells = [one["text"], one["where"] or "beyond it"]
        lines.append(
            f"| {' | '.join(cells)} | {_judged(one['live'])} | {_judged(one['nominal'])} |"
        )
    return lines


def _judged(found: Mapping[str, Any] | None) -> str:
    """Two cells: a difference, and what it says."""
    if found is None:
        return " | open: nothing so light"
    return f"{points(found['difference'], found['interval'])} | {found['verdict']}"


def _markdown_rows(table: Mapping[str, Any], kind: str) -> list[str]:
    names = list(table["rows"][0]["by_category"])
    shown = names if len(names) > 1 else []
    errors = "error_rate" in table["rows"][0]
    head = ["Method", f"live bytes ({kind})", "nominal", "score", "difference", "same answer"]
    head += [*shown, *(["error rate"] if errors else [])]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in table["rows"]:
        low, high = row["interval"]
        cells = [
            row["label"],
            f"{row['actual_kv']:.3f}",
            f"{row['nominal_kv']:.3f}",
            f"{100 * row['score']:.1f} ({100 * low:.1f} to {100 * high:.1f})",
        ]
        difference = row.get("difference")
        cells.append("" if difference is None else points(difference, row["difference_interval"]))
        cells.append("" if difference is None else f"{100 * row['agreement']:.1f} %")
        cells += [f"{100 * row['by_category'][name]['score']:.1f}" for name in shown]
        cells += [f"{100 * row['error_rate']:.1f} %"] if errors else []
        lines.append("| " + " | ".join(cells) + " |")
    return lines
