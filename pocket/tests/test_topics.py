"""Topics: every template can be filled, every question is answered by what is shown."""

import random
import re
from typing import Any

import pytest

from pocket.content import topic
from pocket.content.charts import chart_maker
from pocket.content.topic import GENERATORS, LAYOUTS, SLOT, SPECIAL
from pocket.questions.charts import chart_questions
from pocket.questions.freeform import KIND
from pocket.questions.reckoning import working
from pocket.questions.topics import plan

ALL = [*topic.topics(), *topic.topics(held=True)]


def slots(text: str | list[str]) -> set[str]:
    """The names in braces."""
    texts = [text] if isinstance(text, str) else text
    return {found[1] for t in texts for found in SLOT.finditer(t)}


@pytest.mark.parametrize("made", ALL, ids=[t["name"] for t in ALL])
def test_a_topic_is_written_as_the_format_wants(made: dict[str, Any]) -> None:
    known = set(GENERATORS) | set(SPECIAL)
    parts = {"name", "layouts", "heads", "head_ask", "facts", "records", "reckon", "held"}
    assert set(made) <= parts
    assert made["layouts"] and set(made["layouts"]) <= set(LAYOUTS)
    assert made.get("facts") or made.get("records")
    assert slots(made.get("heads", [])) <= known
    ids = {fact["id"] for fact in made.get("facts", ()) if "id" in fact}
    for fact in made.get("facts", ()):
        assert set(fact) <= {"id", "v", "say", "ask", "check"}, fact
        assert slots(fact["v"]) <= known, fact
        assert all("{v}" in say and slots(say) <= known | {"v"} for say in fact["say"]), fact
        assert len(fact["ask"]) >= 2 and slots(fact["ask"]) <= ids, fact
    for entry in made.get("reckon", ()):
        assert set(entry) == {"of", "by", "ask"} and entry["by"] in "+-x" and entry["ask"], entry
        assert {term for term in entry["of"] if isinstance(term, str)} <= ids, entry
    if "records" in made:
        check_records(made, known)


def check_records(made: dict[str, Any], known: set[str]) -> None:
    """Rows whose columns exist."""
    spec = made["records"]
    assert set(spec) <= {"n", "noun", "cols", "heads", "say", "ask", "most", "least", "count"}
    cols = set(spec["cols"])
    assert set(spec["heads"]) == cols
    assert all(slots(template) <= known for template in spec["cols"].values())
    assert all(slots(say) <= cols for say in spec["say"])
    assert 1 <= spec["n"][0] < spec["n"][1] <= 12
    for text, answer in spec["ask"]:
        assert answer in cols and slots(text) <= cols and answer not in slots(text), text
    for text, by, answer in [*spec.get("most", ()), *spec.get("least", ())]:
        assert {by, answer} <= cols and not slots(text), text
    assert "table" in made["layouts"] or "lines" in made["layouts"]


@pytest.mark.parametrize("held", [False, True])
def test_an_answer_stands_in_the_document(held: bool) -> None:
    if not topic.topics(held):
        pytest.skip("no topic of this sort")
    for seed in range(400):
        made = plan(random.Random(seed), 12, held)
        shown = " ".join([made.head, *(f.text for f in made.facts), *made.lines])
        shown += " ".join(cell for row in made.rows for cell in row)
        assert made.questions
        for q in made.questions:
            assert "{" not in q.text
            if q.kind not in ("absent", "yes_no", "count", KIND):
                assert q.answer in shown, (made.topic, q)


def test_the_extreme_of_records_is_the_rows() -> None:
    compared = 0
    for seed in range(600):
        made = plan(random.Random(seed), 12)
        for q in made.questions:
            if q.kind in ("highest", "lowest"):
                assert any(q.answer in row for row in made.rows)
                compared += 1
            if q.kind == "count":
                assert int(q.answer) == len(made.rows)
    assert compared > 10


@pytest.mark.parametrize(
    "text,value",
    [("1,250", 1250), ("12.5 kg", 12.5), ("€ 3,20", 3.2), ("3.456,70 kr", 3456.7),
     ("-4 °C", -4), ("1'200.50", 1200.5), ("80%", 80), ("3:45", None), ("Paul", None)],
)  # fmt: skip
def test_figures_are_read_as_written(text: str, value: float | None) -> None:
    assert topic.figure(text) == value


@pytest.mark.parametrize("about", topic.charts(), ids=[c["titles"][0] for c in topic.charts()])
def test_a_chart_holds_what_its_subject_says(about: dict[str, Any]) -> None:
    wanted = {"titles", "unit", "noun", "of", "range", "value", "most", "least"}
    assert wanted <= set(about) <= wanted | {"decimals", "series", "value2"}
    assert ("series" in about) == ("value2" in about)
    rng = random.Random(about["titles"][0])
    for n in (2, 5, 10):
        for series in (1, 2):
            data = chart_maker(about)(rng, n, series)
            assert len(set(data.categories)) == len(data.categories) == n
            assert [len(row) for row in data.values] == [n] * series == [len(t) for t in data.texts]
            assert all(len(set(row)) == n for row in data.values)  # a tie has no highest
            assert all(
                topic.figure(t) == v for t, v in zip(data.texts[0], data.values[0], strict=True)
            )


def test_a_question_about_a_chart_is_answered_by_its_figures() -> None:
    about = topic.charts()[0]
    data = chart_maker(about)(random.Random(1), 5)
    asked = chart_questions(random.Random(2), data, shown=True)
    best = data.categories[max(range(5), key=data.values[0].__getitem__)]
    natural = {form.rstrip("?").lower() for form in about["most"]}
    found = [q for q in asked if any(n in q.text.lower() for n in natural)]
    assert found and all(q.answer == best for q in found)


def test_facts_come_to_what_is_reckoned() -> None:
    seen: dict[str, str] = {}
    for seed in range(1200):
        made = plan(random.Random(f"reckon/{seed}"), 9)
        for q in made.questions:
            if q.kind == KIND:
                terms = re.split(r" [-+x] ", q.answer.partition(" = ")[0])
                shown = "\n".join(fact.text for fact in made.facts)
                assert all(term in shown for term in terms if not term.isdigit()), q
                seen[made.topic] = q.answer
    assert len(seen) > 12


@pytest.mark.parametrize(
    ("terms", "sign", "worked"),
    [
        (["12", "30"], "+", "12 + 30 = 42"),
        (["£2.20", "£0.80", "£1.00"], "+", "£2.20 + £0.80 + £1.00 = £4.00"),
        (["40 km", "15 km"], "-", "40 km - 15 km = 25 km"),
        (["15", "40"], "-", None),
        (["3", "$1.25"], "x", "3 x $1.25 = $3.75"),
        (["20:05", "18:30"], "-", "20:05 - 18:30 = 1:35"),
        (["18:30", "20:05"], "-", None),
        (["12", "$3"], "+", None),
        (["1.50", "2"], "+", None),
        (["a few", "2"], "+", None),
        (["", "2"], "x", None),
    ],
)
def test_what_is_reckoned_has_its_working(terms: list[str], sign: str, worked: str | None) -> None:
    assert working(terms, sign) == worked
