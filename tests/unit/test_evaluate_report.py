"""The evaluation's report: tables by hand, verdicts."""

from pathlib import Path

import pytest

from rotatek.evaluation import claims, report
from rotatek.evaluation.cells import Cell, Found, Pair, Results, Score
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
    assert [cell.row for cell in built.cells] == ["base", "ours", "theirs"]
    ours = built.cells[1]
    assert ours.score.mean == ours.same == ours.exact == 0.95 and ours.error_rate is None
    assert ours.difference is not None and ours.difference.mean == pytest.approx(-0.05)
    assert ours.kinds["a"].mean == ours.kinds["b"].mean == 0.95
    assert ours.nominal == 0.625 and ours.live == 0.5 and ours.settings["keep_channels"] == 0.25
    assert [pair.says for pair in built.pairs] == ["for", "against"]
    page = report.markdown(built)
    assert "| ours | 0.500 | 0.625 | 95.0 (" in page and "| theirs at least ours | nominal" in page
    assert "live bytes (bf16)" in page


def test_a_row_is_compared_with_ours_at_its_own_bytes() -> None:
    items = [Item(f"q{n}", n, "a", "?", ("yes",), "exact_match") for n in range(40)]
    one, two, rival, small = (
        Settings.of(**flat)
        for flat in ({"bits": 1}, {"bits": 2}, {"channels": "kivi"}, {"channels": "turboquant"})
    )
    right = {BASELINE: (40, 1.0), one: (20, 0.2), two: (36, 0.4), rival: (12, 0.3), small: (0, 0.1)}
    answers = {
        (setting_id(settings), item.name): Answer(
            setting_id(settings), item.name, "yes" if n < count else "no", 1, live
        )
        for settings, (count, live) in right.items()
        for n, item in enumerate(items)
    }
    rows = tuple(Row(name, settings) for name, settings in zip("base one two rival small".split(),
                                                               right, strict=True))  # fmt: skip
    header = {
        "model": {"name": "m", "dtype": "bfloat16", "weights": "w"},
        "suite": {"name": "s", "questions": 40, "documents": 40, "categories": {}, "metrics": {}},
    }
    table = Table("t", "A table", rows, beside="one")
    built = report.build([table], items, answers, header)
    cells = {cell.row: cell.ours for cell in built.cells}
    # halfway between 1 and 2 bits ours has (20 + 36) / 2 of 40; none of its rows is as small as .1
    assert cells["rival"] is not None and cells["rival"].mean == pytest.approx((28 - 12) / 40)
    assert 0 < cells["rival"].low < cells["rival"].mean < cells["rival"].high
    assert [row for row, ours in cells.items() if ours is None] == ["base", "one", "two", "small"]
    alone = report.build([Table("t", "A table", rows)], items, answers, header)
    assert all(cell.ours is None for cell in alone.cells)
    pages = [report.markdown(one) for one in (built, alone)]
    (line,) = (line for line in pages[0].splitlines() if line.startswith("| rival |"))
    assert line.split(" | ")[-1].startswith("+40.0 (+")
    assert ["bits at these bytes" in page for page in pages] == [True, False]


def test_a_folder_of_results_is_read_as_it_was_written(tmp_path: Path) -> None:
    rows = {"a": Score(0.5, 0.25, 0.75), "pages": Score(0.125, 0.0, 0.25)}
    settings = {"tokens": "fastv", "keep_tokens": 0.5, "channels": "gone", "depth": "deep"}
    fields = ("m", "s", "t", "one, two", "one", 8, settings, 0.25, 0.5, None, 0.5, 3.0, 0.125)
    cell = Cell(*fields, Score(0.5, 0.25, 0.75), None, Score(-0.5, -0.75, -0.25), None, rows)
    pair = Pair("think", "m", "t", "live", "a", "b", "at least", 3, 0.5, 0.25, 0.75, "for")
    found = Found("think", "A claim", "", "m", "live", "found", 1, 0, 0.5, 0.25, 0.75)
    unasked = Found("", "Another", "figure 2", "", "", "open", note="a reason")
    kept = Results([{"model": {"name": "m"}, "tables": []}], [cell], [pair], [found, unasked])
    kept.save(tmp_path)
    assert Results.load(tmp_path) == kept


def test_a_claim_is_a_line_of_words_on_every_model() -> None:
    found = [
        Found("think", "A claim", "figure 6", "m", "nominal", "mixed", 4, 1, 0.05, 0.01, 0.09),
        Found("think", "A claim", "figure 6", "n", "live", "better", 4, 2, 0.05, 0.01, 0.09),
        Found("", "Another", "figure 2", "", "", "open", note="a reason"),
    ]
    first, second = report.claim_lines(found)
    assert first["m, nominal"] == "mixed: 1 of 4 pairs against it; +5.0 (+1.0 to +9.0)"
    assert first["n, at equal live bytes"].startswith("better: 2 of 4 pairs better than that; ")
    assert second.keys() == first.keys() and "open: a reason" in second.values()
    ratio = Found("x", "Speed", "", "m", "measured", "found", 2, 0, 2.0, 0.95, 1234.0, "times")
    assert report.said(ratio) == "found: .95 to 1,234 times"


@pytest.mark.parametrize(
    ("relation", "low", "high", "expected"),
    [
        ("at least", 0.01, 0.1, "for"),
        ("at least", 0.0, 0.0, "for"),
        ("at least", -0.1, 0.1, "open"),
        ("at least", -0.1, -0.01, "against"),
        ("about", -0.01, 0.01, "for"),
        ("about", -0.1, 0.1, "open"),
        ("about", -0.1, -0.03, "against"),
        ("about", 0.03, 0.1, "better"),
    ],
)
def test_what_an_interval_says(relation: str, low: float, high: float, expected: str) -> None:
    assert claims.says(relation, low, high) == expected


@pytest.mark.parametrize(
    ("mean", "pairs", "expected"),
    [
        ("for", ["for", "open"], "found"),
        ("for", ["for", "for", "against"], "mixed"),  # a single pair contradicts it
        ("for", ["open", "against"], "not found"),
        ("open", ["for", "open"], "open"),
        ("against", ["open", "open"], "not found"),
        ("better", ["for", "better"], "better"),
        ("for", ["against", "better"], "mixed"),
    ],
)
def test_verdicts(mean: str, pairs: list[str], expected: str) -> None:
    assert claims.verdict(mean, pairs) == expected
