"""Scores against worked examples, and the mathematics of the intervals."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rotatek.evaluation import metrics

SHORT = st.text(st.sampled_from("ab c1"), max_size=12)


def slow_distance(a: str, b: str) -> int:
    """The textbook recurrence."""
    rows = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            change = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1])
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, change)
    return rows[-1][-1]


@settings(max_examples=300)
@given(SHORT, SHORT)
def test_edit_distance_is_levenshtein(a: str, b: str) -> None:
    assert metrics.edit_distance(a, b) == slow_distance(a, b)


SCORED: list[tuple[Callable[[str, list[str]], float], str, list[str], float]] = [
    (metrics.exact_match, "Total", ["total"], 1.0),
    (metrics.exact_match, "12 euros", ["12 euro"], 0.0),
    (metrics.exact_match, "b", ["a", "b"], 1.0),
    (metrics.says, "It is closed on Monday, the first day of the week.", ["monday"], 1.0),
    (metrics.says, "9 + 3 = 12", ["12"], 1.0),
    (metrics.says, "Not on a mondayish day", ["monday"], 0.0),
    (metrics.says, "Monday " + "Tuesday " * 13, ["monday"], 0.0),
    (metrics.anls, "hallo", ["nothing", "hello"], 0.8),
    (metrics.anls, "hxxxx", ["hello"], 0.0),  # similarity .2 is under the threshold
    (metrics.anls, "abcd", ["abxx"], 0.5),  # exactly the threshold counts
    (metrics.relaxed_accuracy, "104", ["100"], 1.0),
    (metrics.relaxed_accuracy, "105.1", ["100"], 0.0),
    (metrics.relaxed_accuracy, "10%", ["0.1"], 1.0),
    (metrics.relaxed_accuracy, "0.0001", ["0"], 0.0),  # a target of zero is compared as text
    (metrics.relaxed_accuracy, "nan", ["nan"], 1.0),
    (metrics.relaxed_accuracy, "inf", ["5"], 0.0),
    (metrics.relaxed_accuracy, "Berlin", ["Bern"], 0.0),
    (metrics.vqa_accuracy, "The stop!", ["stop"] * 10, 1.0),
    (metrics.vqa_accuracy, "two", ["2"] * 10, 1.0),
    (metrics.vqa_accuracy, "1,000", ["1000"] * 10, 1.0),
    (metrics.vqa_accuracy, "stop", ["stop"] * 3 + ["go"] * 7, (3 * (2 / 3) + 7) / 10),
    (metrics.vqa_accuracy, "stop", ["go"] * 10, 0.0),
    (metrics.transcription_accuracy, "abcabcabc", ["abc"], 0.0),
    (metrics.transcription_accuracy, "abd", ["xyz", "abc"], 2 / 3),
    (metrics.error_rate, "# Title\n\nabc", ["# Title abc"], 0.0),
    (metrics.error_rate, "", ["abc"], 1.0),
    (metrics.error_rate, "abcabcabc", ["abc"], 2.0),
]


@pytest.mark.parametrize(("metric", "answer", "accepted", "score"), SCORED)
def test_scores_are_those_of_the_definitions(
    metric: Callable[[str, list[str]], float], answer: str, accepted: list[str], score: float
) -> None:
    assert metric(answer, accepted) == pytest.approx(score)


def test_wilson() -> None:
    # Newcombe 1998, table I: 81 of 263 and 0 of 20.
    assert metrics.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert metrics.wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert metrics.wilson(0, 0) == (0.0, 1.0)


def test_interval_covers_the_truth() -> None:
    """Nominal 95 %: of 200 samples of clustered answers, nearly all intervals hold the truth."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(100), 3)
    covered = 0
    for trial in range(200):
        documents = rng.beta(4, 2, 100)  # mean 2/3
        values = (rng.random(300) < documents[groups]).astype(float)
        low, high = metrics.Resampled(groups, trial).score_interval(values)
        covered += low <= 2 / 3 <= high
    assert 180 <= covered <= 199


def test_paired_interval_sees_what_two_intervals_hide() -> None:
    rng = np.random.default_rng(2)
    first = (rng.random(400) < 0.7).astype(float)
    second = first.copy()
    second[np.flatnonzero(first)[:20]] = 0.0
    drawn = metrics.Resampled(np.arange(400))
    low, high = drawn.interval(first - second)
    assert 0 < low < 0.05 < high
    assert drawn.interval(first)[0] < drawn.interval(second)[1]  # they overlap
    assert drawn.interval(first - first) == (0.0, 0.0)
