"""Claims at equal live bytes, on scores that are known."""

import numpy as np
import pytest

from rotatek.evaluation.claims import (
    CLAIMS,
    LIVE,
    NOMINAL,
    Answered,
    Floats,
    Judge,
    at_bytes,
    kind_of,
    line_of,
)
from rotatek.evaluation.tables import Claim, tables
from rotatek.methods.settings import BASELINE, Settings
from rotatek.methods.tokens import FastV

SIZE = 40
ALL = np.ones(SIZE, dtype=bool)


def scored(share: float, right: int) -> Answered:
    """So many of the questions right."""
    return Answered((np.arange(SIZE) < right).astype(float), np.full(SIZE, share))


def think(keep: float) -> Settings:
    return Settings.of(channels="think", keep_channels=keep)


OURS = Settings.of(keep_channels=0.25)
ROWS = {
    BASELINE: scored(1.0, 40),
    OURS: scored(0.6, 30),
    think(0.25): scored(0.5, 20),
    think(0.30): scored(0.55, 10),  # beaten by the lighter one: no part of the line
    think(0.50): scored(0.7, 36),
}
KINDS = np.where(np.arange(SIZE) < 20, "pages", "signs")
JUDGE = Judge("m", ROWS, np.arange(SIZE), KINDS)


def test_a_line_lies_straight_between_its_rows() -> None:
    rows = list(ROWS.values())[2:]
    line = line_of(rows, ALL)
    assert [share for share, _ in line] == [0.5, 0.7]
    for share, right in ((0.5, 20), (0.6, 28), (0.65, 32), (0.7, 36), (0.9, 36)):
        found = at_bytes(line, share)
        assert found is not None and found.sum() == pytest.approx(right)
    assert at_bytes(line, 0.49) is None and at_bytes([], 1.0) is None
    rows[0] = Answered(np.where(np.arange(SIZE) < 1, np.nan, 0.5), np.full(SIZE, 0.5))
    assert [share for share, _ in line_of(rows, ALL)] == [0.55, 0.7]  # one did not answer all


def test_a_claim_is_judged_as_it_stands_and_at_equal_live_bytes() -> None:
    claim, rows = Claim("ours", "theirs"), {"ours": OURS, "theirs": think(0.25)}
    nominal, live = (JUDGE.difference(claim, rows, ALL, how) for how in (NOMINAL, LIVE))
    assert nominal is not None and nominal.sum() == pytest.approx(10)
    assert live is not None and live.sum() == pytest.approx(2)
    assert JUDGE.live(OURS, BASELINE, ALL) is None
    assert JUDGE.live(think(0.25), OURS, ALL) is None  # ours was never so light
    some = np.arange(SIZE) < 25
    part = JUDGE.difference(claim, rows, some, NOMINAL)
    assert part is not None and np.isnan(part[25:]).all() and part[:25].sum() == pytest.approx(5)


def test_a_growing_gap() -> None:
    rows = {"a": OURS, "b": think(0.25), "c": think(0.50), "d": think(0.30)}
    found = JUDGE.difference(Claim("a", "b", over=("c", "a")), rows, ALL, NOMINAL)
    assert found is not None and found.sum() == pytest.approx(10 - 6)


def made(*differences: Floats) -> list:
    claim = Claim("a", "b", topic="think")
    return [(JUDGE.pair(claim, "t", NOMINAL, one), one) for one in differences]


def test_a_claim_is_the_mean_of_its_pairs_over_the_questions_they_share() -> None:
    other = np.where(np.arange(SIZE) < 20, 0.0, np.nan)
    found = JUDGE.found("think", NOMINAL, made(np.ones(SIZE), other))
    assert (found.verdict, found.pairs, found.against) == ("found", 2, 0)
    assert (found.difference, found.low, found.high) == (0.5, 0.5, 0.5)


def test_one_pair_that_contradicts_a_claim_is_enough() -> None:
    found = JUDGE.found("think", NOMINAL, made(np.ones(SIZE), np.ones(SIZE), np.full(SIZE, -0.1)))
    assert (found.verdict, found.pairs, found.against) == ("mixed", 3, 1)
    assert found.difference is not None and found.low is not None and found.low > 0.5


def test_a_claim_of_every_kind_of_question_is_judged_kind_by_kind() -> None:
    difference = np.where(np.arange(SIZE) < 20, 0.5, -0.3)
    pairs = JUDGE.by_kind([difference, difference], NOMINAL)
    assert [(pair.questions, pair.says) for pair, _ in pairs] == [(20, "for"), (20, "against")]
    found = JUDGE.found("kinds", NOMINAL, pairs)
    assert (found.verdict, found.against) == ("mixed", 1)
    assert found.difference == pytest.approx(-0.3)


def test_a_method_is_not_compared_with_itself_at_equal_bytes() -> None:
    assert JUDGE.live(think(0.50), think(0.25), ALL) is None


def test_a_methods_line_is_its_own() -> None:
    assert kind_of(think(0.25)) == kind_of(think(0.5)) != kind_of(OURS)
    assert kind_of(Settings.of(bits=0.75)) == kind_of(Settings.of(bits=2)) != kind_of(OURS)
    spark = [Settings.of(channels="spark", recovery=one) for one in ("mean", "sign")]
    assert kind_of(spark[0]) != kind_of(spark[1])
    dropped = Settings(tokens=FastV(keep=0.5), channels=OURS.channels)
    assert kind_of(dropped) != kind_of(OURS)


def test_every_expectation_belongs_to_a_claim() -> None:
    topics = {claim.topic for table in tables().values() for claim in table.claims}
    assert topics | {"rivals", "rivals-bits", "kinds"} == set(CLAIMS)
    papers = [one for one in CLAIMS.values() if one.where]
    assert len(papers) >= 14
    assert len({one.text for one in CLAIMS.values()}) == len(CLAIMS)
