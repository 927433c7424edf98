"""Claims at equal live bytes, on scores that are known."""

import numpy as np
import pytest

from rotatek.evaluation.claims import CLAIMS, Judge, Pair, Scored, at_bytes, kind_of, line_of
from rotatek.evaluation.tables import Claim, tables
from rotatek.methods.settings import BASELINE, Settings
from rotatek.methods.tokens import FastV

NAMES = tuple(f"q{n}" for n in range(40))


def scored(settings: Settings, share: float, right: int) -> Scored:
    """So many of the questions right."""
    return Scored(settings, {name: float(n < right) for n, name in enumerate(NAMES)}, share)


def think(keep: float) -> Settings:
    return Settings.of(channels="think", keep_channels=keep)


OURS = Settings.of(keep_channels=0.25)
ROWS = [
    scored(BASELINE, 1.0, 40),
    scored(OURS, 0.6, 30),
    scored(think(0.25), 0.5, 20),
    scored(think(0.30), 0.55, 10),  # beaten by the lighter one: no part of the line
    scored(think(0.50), 0.7, 36),
]
JUDGE = Judge(ROWS, {name: n for n, name in enumerate(NAMES)})


def test_a_line_lies_straight_between_its_rows() -> None:
    line = line_of(ROWS[2:], NAMES)
    assert [share for share, _ in line] == [0.5, 0.7]
    for share, right in ((0.5, 20), (0.6, 28), (0.65, 32), (0.7, 36), (0.9, 36)):
        found = at_bytes(line, share)
        assert found is not None and found.sum() == pytest.approx(right)
    assert at_bytes(line, 0.49) is None and at_bytes([], 1.0) is None
    assert line_of(ROWS[2:], (*NAMES, "unanswered")) == []


def test_a_claim_is_judged_as_it_stands_and_at_equal_live_bytes() -> None:
    claim, rows = Claim("ours", "theirs"), {"ours": OURS, "theirs": think(0.25)}
    nominal, live = (JUDGE.difference(claim, rows, NAMES, how) for how in (False, True))
    assert nominal is not None and nominal.sum() == pytest.approx(10)
    assert live is not None and live.sum() == pytest.approx(2)
    assert JUDGE.live(OURS, BASELINE, NAMES) is None
    assert JUDGE.live(think(0.25), OURS, NAMES) is None  # ours was never so light


def test_a_growing_gap() -> None:
    rows = {"a": OURS, "b": think(0.25), "c": think(0.50), "d": think(0.30)}
    found = JUDGE.difference(Claim("a", "b", over=("c", "a")), rows, NAMES, False)
    assert found is not None and found.sum() == pytest.approx(10 - 6)


def test_pairs_are_pooled_over_the_questions_they_share() -> None:
    one = Pair("at least", NAMES, np.ones(40))
    other = Pair("at least", NAMES[:20], np.zeros(20))
    found = JUDGE.pooled([one, other])
    assert found == {
        "difference": 0.5, "interval": [0.5, 0.5], "verdict": "found", "pairs": 2, "questions": 20,
    }  # fmt: skip
    assert JUDGE.pooled([]) is None


def test_a_claim_of_every_kind_of_question_is_its_worst_kinds() -> None:
    kinds = {name: "pages" if n < 20 else "signs" for n, name in enumerate(NAMES)}
    difference = np.where(np.arange(40) < 20, 0.5, -0.3)
    pair = Pair("at least", NAMES, difference)
    found = JUDGE.of_kinds([pair], kinds)
    assert found is not None and found["difference"] == -0.3 and found["questions"] == 20
    assert found["verdict"] == "not found"
    level = JUDGE.of_kinds([Pair("at least", NAMES, np.full(40, -0.005))], kinds)
    assert level is not None and level["verdict"] == "found"
    assert JUDGE.of_kinds([], kinds) is None


def test_a_method_is_not_compared_with_itself_at_equal_bytes() -> None:
    assert JUDGE.live(think(0.50), think(0.25), NAMES) is None


def test_a_methods_line_is_its_own() -> None:
    assert kind_of(think(0.25)) == kind_of(think(0.5)) != kind_of(OURS)
    assert kind_of(Settings.of(bits=0.75)) == kind_of(Settings.of(bits=2)) != kind_of(OURS)
    spark = [Settings.of(channels="spark", recovery=one) for one in ("mean", "sign")]
    assert kind_of(spark[0]) != kind_of(spark[1])
    dropped = Settings(tokens=FastV(keep=0.5), channels=OURS.channels)
    assert kind_of(dropped) != kind_of(OURS)


def test_every_expectation_belongs_to_a_claim() -> None:
    topics = {claim.topic for table in tables().values() for claim in table.claims}
    assert topics | {"rivals", "kinds"} == set(CLAIMS)
    papers = [one for one in CLAIMS.values() if one.where]
    assert len(papers) >= 14
