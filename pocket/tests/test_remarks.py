"""Lines of several facts: each fact has one answer on its page, cut out of the line as printed."""

import random
from collections import defaultdict

from pocket.content.topic import Filler, remark_templates
from pocket.generate import make_document
from pocket.layouts.pillow import review_lines


def test_every_template_fills_and_asks_for_each_fact_in_four_ways() -> None:
    for spec in remark_templates()["line"]:
        for seed in range(8):
            remark = review_lines.compose(Filler(random.Random(seed)), spec)
            assert "{" not in remark.text, remark.text
            for value, _, ways in remark.facts:
                assert value in remark.text and value != remark.text
                assert len(set(ways)) >= 4, ways


def test_a_question_has_one_answer_on_its_page_which_the_page_prints() -> None:
    asked = 0
    for seed in range(40):
        document = make_document(seed, 448, 448, renderers=["remarks"], severity=0)
        said, answers = " ".join(document.content), defaultdict(set)
        for question in document.questions:
            if question.kind in ("fact", "find", "title", "nth"):
                assert question.answer in said, question
            answers[question.text.lower().rstrip("?. ")].add(question.answer)
            asked += question.kind == "fact"
        assert all(len(some) == 1 for some in answers.values()), answers
    assert asked > 300


def test_no_two_lines_are_asked_for_in_the_same_words_unless_they_share_a_tag() -> None:
    places: dict[str, list[set[str]]] = defaultdict(list)
    for spec in remark_templates()["line"]:
        ways = [w for v in spec.values() if isinstance(v, list) for w in v[1:]]
        for way in {w.lower().rstrip("?. ") for w in ways if w not in spec["say"]}:
            places[way].append(set(spec["tags"].split()))
    for way, tags in places.items():
        assert all(a & b for i, a in enumerate(tags) for b in tags[i + 1 :]), way
