"""Questions that only training asks: their answers, recomputed from what the document holds."""

import random

import pytest

from pocket.content.cards import Deck, Field
from pocket.content.colours import NAMED
from pocket.content.tables import make_grid
from pocket.document import Question
from pocket.generate import make_document
from pocket.layouts.pillow import colour_keys, offers
from pocket.layouts.registry import REGISTRY
from pocket.questions import derived
from pocket.questions.templates import ABSENT

TAUGHT = ("ledgers", "notes", "offers", "stubs", "swatches")


@pytest.mark.parametrize("name", TAUGHT)
def test_answers_stand_in_the_documents_that_only_training_sees(name: str) -> None:
    asked = 0
    for seed in range(25):
        document = make_document(seed, 448, 392, renderers=[name], severity=0)
        shown = " ".join(" ".join(document.content).split())
        for q in document.questions:
            if q.answer == ABSENT or q.kind in ("yes_no", "count", "colour", "transcribe", "list"):
                continue
            asked += 1
            assert all(part in shown for part in q.answer.split()), q
    assert asked > 20


def test_what_only_training_sees_measures_nothing() -> None:
    assert all(REGISTRY[name].splits == () and not REGISTRY[name].held_out for name in TAUGHT)
    for split in ("own", "fonts", "renderers"):
        drawn = {make_document(s, 336, 336, split, severity=0).renderer for s in range(60)}
        assert not drawn & set(TAUGHT)


def test_the_extremes_of_a_table_are_those_of_its_columns() -> None:
    compared = set()
    for seed in range(150):
        rng = random.Random(seed)
        grid = make_grid(rng, rng.randint(2, 5), rng.randint(2, 9), 0.6)
        names = [row[0] for row in grid.rows]
        cells = zip(*grid.rows, strict=True)
        if {i for i, c in enumerate(cells) if i and derived.numbers(list(c))} != set(grid.values):
            continue
        expected = set()
        for values in grid.values.values():
            for kind, order in (
                ("highest", sorted(values, reverse=True)),
                ("lowest", sorted(values)),
            ):
                if values.count(order[0]) == 1:
                    expected.add((kind, names[values.index(order[0])]))
                if len(order) > 3 and values.count(order[1]) == 1:
                    expected.add(("second", names[values.index(order[1])]))
        asked = derived.from_table(rng, grid.markdown())
        assert {(q.kind, q.answer) for q in asked} <= expected
        compared |= {(seed, q.kind) for q in asked}
    assert len(compared) > 100 and sum(kind == "second" for _, kind in compared) > 40


def test_the_second_of_many_is_a_kind_of_its_own_in_training() -> None:
    asked = [Question("highest", "second dearest item?", "a"), Question("lowest", "the last?", "b")]
    assert [q.kind for q in derived.revised(random.Random(0), asked)] == ["second", "lowest"]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (["1,250", "80"], [1250, 80]), (["€ 3,20", "€ 1.200,00"], [3.2, 1200]),
        (["-4 °C", "12 °C"], [-4, 12]), (["1'200.50", "0.75"], [1200.5, 0.75]),
        (["80%", "7%"], [80, 7]), (["3 kg", "2 g"], None), (["12:30", "1"], None),
        (["12.03.2024", "1.1.2020"], None), (["A1", "7"], None), (["", "7"], None),
        (["0123 456 789", "1"], None),
    ],
)  # fmt: skip
def test_figures_of_a_column_are_read_as_written(
    column: list[str], values: list[float] | None
) -> None:
    assert derived.numbers(column) == values


def test_fields_are_asked_for_in_other_words_where_one_is_meant() -> None:
    text = "# Bill\n\nAmount: €12.00\nDue date: 1 May\nDoctor: Ann Lee"
    asked = {q.answer for s in range(9) for q in derived.from_fields(random.Random(s), text)}
    assert asked == {"€12.00", "1 May", "Ann Lee"}
    twice = text + "\nTotal price: €14.00\nDoctor 2: Bo Ek"
    asked = {q.answer for s in range(9) for q in derived.from_fields(random.Random(s), twice)}
    assert asked == {"1 May"}


def test_what_is_nearly_there_is_denied() -> None:
    text = "Order date: 1 May\nAccount number: 77\nCity: Lund\nAccount date: 2 May"
    asked = {q.text.lower() for s in range(60) for q in derived.near_misses(random.Random(s), text)}
    assert any("order number" in x for x in asked)
    assert not any("account date" in x or "account number" in x for x in asked)
    grid = "| Name | Age |\n| --- | --- |\n| Ann | 41 |\n| Bo | 37 |"
    asked = {q.text.lower() for s in range(60) for q in derived.near_misses(random.Random(s), grid)}
    assert len(asked) > 9 and not any(" age" in x for x in asked)
    assert all("ann" in x or "bo" in x for x in asked)
    for seed in range(20):
        made = derived.near_misses(random.Random(seed), text) + derived.near_misses(
            random.Random(seed), grid
        )
        assert all(q.kind == "absent" and q.answer == ABSENT for q in made)
        assert not derived.near_misses(random.Random(seed), "| a | b |\nOrder date: 1 May")


def test_a_question_that_means_two_things_is_left_out() -> None:
    unclear = Question("lowest", "lowest price?", "Green tea")
    clear = [Question("lowest", "lowest price?", "€ 2.10"),
             Question("lowest", "Which tea has the lowest price?", "Green tea")]  # fmt: skip
    for seed in range(20):
        kept = derived.revised(random.Random(seed), [unclear, *clear])
        assert [q.answer for q in kept] == ["€ 2.10", "Green tea"]


def test_the_cheapest_and_the_best_are_the_cards_own() -> None:
    seen = set()
    for seed in range(30):
        price = Field("price", "{v}", ["€9.00", "€11.00", "€2.50"], [9.0, 11.0, 2.5])
        score = Field("score", "rated {v}", ["3.1", "2.0", "1.5"], [3.1, 2.0, 1.5])
        made = Deck("room", "rooms", ["Ash", "Birch", "Cedar"], [price, score], [])
        for q in offers.questions(random.Random(seed), made):
            if q.kind in ("highest", "lowest"):
                text = q.text.lower()
                sold = "score" not in text and "rated" not in text
                seen.add((sold, q.kind, q.answer))
    assert seen == {
        (True, "highest", "Birch"), (True, "highest", "€11.00"), (True, "highest", "Ash"),
        (True, "lowest", "Cedar"), (True, "lowest", "€2.50"), (True, "lowest", "Ash"),
        (False, "highest", "Ash"), (False, "lowest", "Cedar"),
    }  # fmt: skip


@pytest.mark.parametrize("style", list(colour_keys.STYLES))
def test_a_colour_asked_for_is_drawn_in_that_colour(style: str) -> None:
    page = (255, 255, 255)
    made = colour_keys.items(random.Random(4), ["Ash", "Elm", "Oak", "Fir"], style, page)
    assert len(made) == 4
    for _, colour, drawn in made:
        nearest = min(
            NAMED,
            key=lambda n: min(sum((a - b) ** 2 for a, b in zip(s, drawn, strict=True))
                              for s in NAMED[n]),
        )  # fmt: skip
        assert nearest == colour


def test_rows_are_called_by_their_columns_head() -> None:
    assert derived.called("Country", "row") == ("country", "countries")
    assert derived.called("Day", "row") == ("day", "days")
    assert derived.called("Order no.", "entry") == ("entry", "entries")


CARDS = """# Rossi Inc.

- Soap, green: $ 4.20, Stock 7, new
- Tea: $ 12.00, Stock 17, old
- Desk lamp: $ 3.99, Stock 1, new"""


def test_a_list_of_cards_is_a_table_of_what_all_cards_say() -> None:
    heads, rows = derived.listed(CARDS) or ([], [])
    assert heads == ["entry", "price", "Stock", ""]
    assert rows[1] == ["Tea", "12.00", "17", "old"]
    for other in ("- Soap 4.20\n- Tea 12.00", "- Soap: 4, 5\n- Tea: 4", "Soap: 4\nTea: 5"):
        assert derived.listed(other) is None


def test_rankings_are_in_the_order_of_their_figures() -> None:
    rows = (
        "City | Score | Name",
        "--- | --- | ---",
        "Rome | 4 | a",
        "Oslo | 31 | b",
        "Bern | 9 | c",
    )
    grid = "\n".join(f"| {row} |" for row in rows)
    expected = {
        grid: {("rising", "Score"): "Rome, Bern, Oslo", ("falling", "Score"): "Oslo, Bern, Rome"},
        CARDS: {
            ("rising", "price"): "Desk lamp, Soap, green, Tea",
            ("falling", "price"): "Tea, Soap, green, Desk lamp",
            ("rising", "Stock"): "Desk lamp, Soap, green, Tea",
            ("falling", "Stock"): "Tea, Soap, green, Desk lamp",
        },
    }
    for text, answers in expected.items():
        made = [q for seed in range(60) for q in derived.rankings(random.Random(seed), text)]
        assert {q.answer for q in made} == set(answers.values())
        for q in made:
            falling = any(w in q.text.lower() for w in ("highest f", "from the highest", "desc"))
            rising = any(w in q.text.lower() for w in ("lowest f", "from the lowest", "asc", "ris"))
            ways = [way for way, sure in (("falling", falling), ("rising", rising)) if sure]
            assert not ways or q.answer in {a for (w, _), a in answers.items() if w == ways[0]}
    ties = grid.replace("31", "9")
    assert not derived.rankings(random.Random(1), ties)
    assert not derived.rankings(random.Random(1), grid.replace("| Rome | 4 | a |\n", ""))


def asked_for(text: str, answer: str) -> list[str]:
    """The questions for a transcription in forty documents of training."""
    question = Question("transcribe", text, answer)
    return [derived.revised(random.Random(seed), [question])[0].text.lower() for seed in range(40)]


@pytest.mark.parametrize("text", ["Transcribe the page.", "ocr", "Hi, write out all the text"])
def test_plain_lines_are_mostly_asked_for_line_by_line(text: str) -> None:
    lined = sum("line" in asked for asked in asked_for(text, "one\ntwo"))
    assert 24 <= lined < 40


@pytest.mark.parametrize("answer", ["# A\n\nb", "## A\n- b", "| a |\n| --- |", "one\n\ntwo", "one"])
def test_markdown_is_asked_for_as_a_page(answer: str) -> None:
    assert set(asked_for("Transcribe the page.", answer)) == {"transcribe the page."}
