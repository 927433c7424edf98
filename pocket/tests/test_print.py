"""Small print in columns, letters with senders anywhere, comparisons; unseen kinds."""

import random

import numpy as np
import pytest

from pocket.costs import letter_width
from pocket.document import Document
from pocket.evaluation.questions import FIRST_SEED
from pocket.generate import ForTraining, make_document
from pocket.layouts.fonts import HELD_OUT, family
from pocket.layouts.pillow import letters, paper_strips, vouchers
from pocket.questions.comparisons import comparisons
from pocket.questions.templates import ABSENT


def drawn(name: str, seed: int, width: int = 784, height: int = 896) -> Document:
    """A document to train on, undamaged."""
    return make_document(seed, width, height, "train", [name], 0, ForTraining())


def test_pages_of_small_print_are_dense_and_readable() -> None:
    widths, counts = [], []
    for seed in range(24):
        page = drawn("dense", seed)
        widths.append(letter_width(page))
        counts.append(len(page.glyphs))
    assert min(widths) >= 4.0 and np.median(widths) < 7.5
    assert np.median(counts) > 1500


@pytest.mark.parametrize("seed", range(12))
def test_what_is_asked_of_small_print_is_said_once(seed: int) -> None:
    page = drawn("dense", seed)
    whole = " ".join(page.content).lower()
    asked = [q for q in page.questions if q.kind == "reverse"]
    names = {q.answer.lower() for q in asked}
    assert all(name in whole for name in names)
    for q in page.questions:
        if q.kind == "absent":
            assert q.answer == ABSENT
    kinds = {q.kind for q in page.questions}
    assert {"value", "title"} <= kinds


def test_who_sent_a_letter_stands_anywhere() -> None:
    places = []
    for seed in range(60):
        letter = drawn("letters", seed)
        sender = next(
            (q.answer for q in letter.questions if q.kind == "fact" and is_issuer(q.text)), ""
        )
        if not sender:
            continue
        line = next(i for i, text in enumerate(letter.content) if sender in text)
        before = sum(len([c for c in text if not c.isspace()]) for text in letter.content[:line])
        places.append(float(letter.glyphs[min(before, len(letter.glyphs) - 1), 2]) / 896)
    assert len(places) > 40
    assert np.mean(np.array(places) < 0.3) > 0.15 and np.mean(np.array(places) > 0.7) > 0.3


def is_issuer(text: str) -> bool:
    """Whether a question, typed carelessly, is one for the sender."""
    return any(form.lower().rstrip("?") in text.lower() for form in letters.ISSUER)


def test_letters_deny_only_what_is_not_there() -> None:
    for seed in range(80):
        letter = drawn("letters", seed)
        whole = "\n".join(letter.content).lower()
        for q in letter.questions:
            if q.answer == ABSENT:
                what = next(w for w in letters.MISSING if w.split()[0] in q.text.lower())
                assert not any(sign in whole for sign in letters.MISSING[what].split("|"))


def test_some_receipts_name_their_shop_at_the_foot() -> None:
    low = 0
    for seed in range(80):
        slip = drawn("tills", seed, 448, 896)
        shops = [q.answer for q in slip.questions if q.kind == "fact"]
        at = next((i for i, t in enumerate(slip.content) if shops and t in shops[0]), 0)
        low += at > len(slip.content) / 2
    assert 3 <= low <= 24


TABLE = "\n".join((
    "| Town | Visitors | Opens | Sort |", "| --- | --- | --- | --- |",
    "| Rull | 1,204 | 09:30 | fair |",
    "| Obby | 87 | 18:05 | market |", "| Steen | 530 | 07:15 | fair |",
    "| Vig | 12 | 11:00 | race |",
))  # fmt: skip
VISITORS = {"Rull": 1204, "Obby": 87, "Steen": 530, "Vig": 12}
OPENS = {"Rull": 930, "Obby": 1805, "Steen": 715, "Vig": 1100}


def test_comparisons_are_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocket.questions.templates.careless", lambda _, text: text)
    kinds = set()
    for seed in range(300):
        for q in comparisons(random.Random(seed), TABLE):
            kinds.add(q.kind)
            low = q.text.lower()
            named = [name for name in VISITORS if name.lower() in low]
            if q.kind == "compare" and len(named) == 2:
                by = VISITORS if "visitors" in low else OPENS
                least = any(w in low for w in ("less", "lower", "smaller", "earlier", "first"))
                assert q.answer == (min if least else max)(named, key=by.__getitem__)
            elif q.kind == "yes_no" and len(named) == 2:
                first, second = sorted(named, key=lambda name: low.index(name.lower()))
                assert q.answer == ("yes" if VISITORS[first] > VISITORS[second] else "no")
            elif q.kind == "list":
                assert q.answer == "Rull, Steen"
            elif q.kind == "highest":
                assert q.answer == "Obby"
            elif q.kind == "lowest":
                assert q.answer == "Steen"
    assert kinds == {"compare", "yes_no", "count", "list", "highest", "lowest"}


def families(printers: dict[str, float]) -> set[str]:
    """The fonts of some printers."""
    slugs = [slug for name in printers for pair in paper_strips.PRINTERS[name] for slug in pair]
    return {family(slug) for slug in slugs}


def test_what_prints_the_measured_splits_is_never_trained_on() -> None:
    assert not paper_strips.TAUGHT.keys() & paper_strips.MEASURED.keys()
    taught = {
        family(slug)
        for name in paper_strips.TAUGHT
        for pair in paper_strips.PRINTERS[name]
        for slug in pair
    }
    assert not taught & HELD_OUT
    measured = {
        family(slug)
        for name in paper_strips.MEASURED
        for pair in paper_strips.PRINTERS[name]
        for slug in pair
    }
    assert measured <= HELD_OUT
    assert not set(letters.HEADINGS) & set(vouchers.KINDS.title().split("|"))
    for seed in range(30):
        for name in ("letters", "tills"):
            assert drawn(name, seed).printer not in paper_strips.MEASURED


def test_measured_small_print_is_not_smaller_than_what_is_trained_on() -> None:
    measured = [letter_width(make_document(FIRST_SEED + i, 896, 896, "small")) for i in range(10)]
    taught = [letter_width(drawn("dense", seed)) for seed in range(30)]
    assert np.quantile(taught, 0.2) < np.median(measured)
