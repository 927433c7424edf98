"""The evaluation's report: tables by hand, verdicts."""

import json

import pytest

from rotatek.evaluation import claims, report
from rotatek.evaluation.journal import Answer, setting_id
from rotatek.evaluation.suite import Item
from rotatek.evaluation.tables import Claim, Row, Table
from rotatek.methods.settings import BASELINE, Settings


def answers_like(scores: dict[Settings, list[str]]) -> dict[tuple[str, str], Answer]:
    return {
        (setting_id(settings), f"q{n}"): Answer(setting_id(settings), f"q{n}", text, 1, 0.5)
        for settings, texts in scores.items()
        for n, text in enumerate(texts)
    }


def test_a_report_by_hand() -> None:
    items = [Item(f"q{n}", n, "ab"[n % 2], "?", ("yes",), "exact_match") for n in range(40)]
    first, second = (
        Settings.of(channels=name, keep_channels=0.25) for name in ("rotatek", "think")
    )
    answers = answers_like(
        {BASELINE: ["yes"] * 40, first: ["yes"] * 38 + ["no"] * 2, second: ["no"] * 40}
    )
    rows = (Row("base", BASELINE), Row("ours", first), Row("theirs", second))
    missing = Row("missing", Settings.of(channels="spark", keep_channels=0.25))
    claims = (Claim("ours", "theirs"), Claim("theirs", "ours"), Claim("ours", "missing"))
    table = Table("t", "A table", (*rows, missing), claims)
    suite = {"name": "s", "questions": 40, "documents": 40, "categories": {"a": 20, "b": 20}}
    header = {
        "model": {"name": "m", "dtype": "bfloat16", "weights": "w"},
        "suite": {**suite, "metrics": {"a": "exact_match"}},
    }
    built = report.build([table], items, answers, header)
    made = built["tables"][0]
    assert [row["label"] for row in made["rows"]] == ["base", "ours", "theirs"]
    ours = made["rows"][1]
    assert ours["score"] == ours["agreement"] == 0.95 and ours["difference"] == -0.05
    assert ours["by_category"]["a"]["score"] == ours["by_category"]["b"]["score"] == 0.95
    assert ours["nominal_kv"] == 0.625 and ours["actual_kv"] == 0.5
    assert [claim["verdict"] for claim in made["claims"]] == ["found", "not found"]
    page = report.markdown(built)
    assert (
        "| ours | 0.500 | 0.625 | 95.0 (" in page
        and "ours at least theirs" in page
        and "live bytes (bf16)" in page
    )
    assert json.loads(json.dumps(built)) == built


@pytest.mark.parametrize(
    ("relation", "low", "high", "expected"),
    [
        ("at least", 0.01, 0.1, "found"),
        ("at least", 0.0, 0.0, "found"),
        ("at least", -0.1, 0.1, "open"),
        ("at least", -0.1, -0.01, "not found"),
        ("about", -0.01, 0.01, "found"),
        ("about", -0.1, 0.1, "open"),
        ("about", -0.1, -0.03, "not found"),
        ("about", 0.03, 0.1, "not found (better)"),
    ],
)
def test_verdicts(relation: str, low: float, high: float, expected: str) -> None:
    assert claims.verdict(relation, low, high) == expected
