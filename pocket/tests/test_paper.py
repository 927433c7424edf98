"""Photographed paper, screens and streets: glyphs stay on ink, the mixture is complete."""

import random
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from pocket import costs, mixture
from pocket.augmentation import lens, paper, printing, sheets
from pocket.content.slips import RIGHT, Cell, Slip
from pocket.document import Document
from pocket.evaluation.__main__ import sizes
from pocket.evaluation.questions import FIRST_SEED, SIZES
from pocket.generate import SPLITS, ForTraining, make_document, tall_size
from pocket.layouts import fields, fonts
from pocket.layouts.pillow import paper_strips
from pocket.layouts.pillow.canvas import blank_page
from pocket.layouts.pillow.slips import Type, largest, print_slip
from pocket.layouts.registry import REGISTRY
from pocket.layouts.stretched import stretched
from pocket.layouts.style import pick_style
from pocket.models.config import MOST_TOKENS, UNIT, preprocessor, scaled
from pocket.questions.templates import ABSENT
from pocket.training.data import curriculum

NEW = ("tills", "panels", "workboards", "controls", "terminals", "scenes", "packages", "handsets",
       "figures", "dense", "letters")  # fmt: skip


def on_ink(document: Document, reach: int = 5) -> float:
    """The share of the glyphs inside the picture that have something drawn around their centre."""
    pixels = np.asarray(document.image.convert("L"), np.int16)
    high, wide = pixels.shape
    hits = []
    for _, x, y in document.glyphs:
        if reach < x < wide - reach and reach < y < high - reach:
            window = pixels[int(y) - reach : int(y) + reach, int(x) - reach : int(x) + reach]
            hits.append(np.ptp(window) > 22)
    return float(np.mean(hits))


@pytest.mark.parametrize("name", NEW)
def test_glyphs_stay_inside_the_picture_and_on_ink(name: str) -> None:
    inked, inside = [], []
    for seed in range(8):
        document = make_document(seed, 532, 700, "train", [name], 1.0, ForTraining())
        x, y = document.glyphs[:, 1], document.glyphs[:, 2]
        inside.append(np.mean((x >= 0) & (x < 532) & (y >= 0) & (y < 700)))
        inked.append(on_ink(document))
    hollow = 0.05 if name == "scenes" else 0.0  # large letters are empty at their centre
    assert np.mean(inside) > 0.97 and np.mean(inked) > 0.9 - hollow, (
        np.mean(inside), np.mean(inked)
    )  # fmt: skip


@pytest.mark.parametrize("name", NEW)
def test_a_training_picture_is_equal_when_drawn_again(name: str) -> None:
    first, second = (
        make_document(5, 476, 616, "train", [name], 1.0, ForTraining()) for _ in range(2)
    )
    assert first.image.tobytes() == second.image.tobytes()
    assert first.questions == second.questions and first.image.size == (476, 616)


def test_a_bent_sheet_is_seen_where_it_is_shown() -> None:
    points = np.random.default_rng(0).uniform(60, 500, (200, 2))
    for seed in range(12):
        rng = random.Random(seed)
        make = rng.choice((sheets.scanned, sheets.photographed, sheets.seen_closer))
        bend = make(rng, (560, 640), 1.0)
        assert np.abs(bend.seen(bend.source(points)) - points).max() < 0.2


def test_every_printer_leaves_ink_that_can_be_read() -> None:
    for printer in paper_strips.PRINTERS:
        for seed in range(12):
            page = make_document(seed, 448, 784, "train", ["tills"], 0.0)
            dark = np.asarray(page.image.convert("L")) < 80
            rng = random.Random(seed)
            out = printing.printed(rng, page.image.convert("L"), printer, 1.0)
            levels = np.asarray(out)[dark]
            assert np.quantile(levels, 0.25) < 200, (printer, seed)


def test_severity_zero_prints_and_does_nothing_else() -> None:
    document = make_document(3, 448, 448, "train", ["scenes"], 0.0)
    before = document.image.tobytes()
    assert lens.photographed(random.Random(0), document, 0).image.tobytes() == before
    page = make_document(3, 448, 784, "train", ["tills"], 0.0)
    glyphs = page.glyphs.copy()
    assert paper.on_paper(random.Random(0), page, 0).image.mode == "RGB"
    assert np.array_equal(glyphs, page.glyphs)


def test_small_type_is_damaged_less() -> None:
    def of(advance: float) -> Document:
        glyphs = np.array([[1, 10 + i * advance, 20] for i in range(30)], np.float32)
        return Document(Image.new("RGB", (400, 40)), glyphs, [])

    assert paper.fineness(of(4)) < 0.5 < paper.fineness(of(7)) < paper.fineness(of(12)) == 1.0


def test_the_total_that_is_asked_for_is_the_one_that_is_printed() -> None:
    asked = 0
    for seed in range(30):
        document = make_document(seed, 448, 896, "train", ["tills"], 0.0)
        shown = set(document.content)
        totals = {q.answer for q in document.questions if q.kind == "total"}
        assert len(totals) == 1
        assert totals <= shown
        asked += 1
        for q in document.questions:
            if q.kind == "absent":
                assert q.answer == ABSENT
    assert asked == 30


def test_stretched_letters_are_as_wide_as_they_say() -> None:
    plain, wide = stretched("cousine-regular", 20), stretched("cousine-regular", 20, 2.0)
    assert abs(wide.width("TOTAL") / plain.width("TOTAL") - 2) < 0.1
    for wanted in (plain, wide, stretched("cousine-regular", 20, 0.8, 12)):
        mask, _, _ = wanted.mask("TOTAL")
        left, _, right, _ = mask.getbbox() or (0, 0, 0, 0)
        assert 0.7 < (right - left) / wanted.width("TOTAL") <= 1.05
    assert stretched("cousine-regular", 20, 1.0) is stretched("cousine-regular", 20.2, 1.01)


def test_the_mixture_has_every_renderer_of_training_and_no_other() -> None:
    taught = {name for name, r in REGISTRY.items() if not r.held_out}
    assert set(mixture.SHARES) == taught
    assert all(share > 0 for share in mixture.SHARES.values())
    assert set(mixture.ON_PAPER) < taught and set(mixture.TALL) < taught
    assert all(0 < share <= 1 for share in mixture.ON_PAPER.values())
    drawn = Counter(
        make_document(s, 224, 224, "train", None, 0, ForTraining()).renderer for s in range(300)
    )
    assert drawn.total() == 300 and len(drawn) > 15


def test_what_measures_scans_is_kept_from_training() -> None:
    for name, split in (("vouchers", "scanned"), ("directories", "small")):
        assert REGISTRY[name].held_out and REGISTRY[name].splits == (split,)
        assert name not in mixture.SHARES and split in SPLITS
    for printer, types in paper_strips.PRINTERS.items():
        families = {fonts.family(slug) for pair in types for slug in pair}
        assert printer in paper_strips.TAUGHT or families <= fonts.HELD_OUT
        assert printer in paper_strips.MEASURED or not families & fonts.HELD_OUT
    assert not set(paper_strips.TAUGHT) & set(paper_strips.MEASURED)


@pytest.mark.parametrize("split", list(SIZES))
def test_a_new_split_draws_its_own_kind_at_its_own_sizes(split: str) -> None:
    for size in SIZES[split]:
        document = make_document(FIRST_SEED, *size, split=split)
        assert document.image.size == size and size[0] * size[1] <= 1024 * UNIT**2
        assert REGISTRY[document.renderer].splits == (split,)


def test_splits_are_measured_at_their_sizes_unless_others_are_wanted() -> None:
    usual = ((224, 224), (448, 448))
    plan = dict(sizes(["own", "small"], None, usual))
    assert plan["448x448"] == ["own"] and plan["896x896"] == ["small"]
    assert sizes(["own", "small"], ["300x200"], usual) == [("300x200", ["own", "small"])]


def test_a_run_may_have_larger_and_taller_pictures() -> None:
    usual = [curriculum(random.Random(i), 0.9)[0] for i in range(400)]
    more = [curriculum(random.Random(i), 0.9, MOST_TOKENS)[0] for i in range(400)]
    assert max(w * h for w, h in usual) <= 1024 * UNIT**2
    assert 1200 * UNIT**2 < max(w * h for w, h in more) <= MOST_TOKENS * UNIT**2
    slim = [sum(h > 1.5 * w for w, h in of) for of in (usual, more)]
    assert slim[1] > 2 * slim[0]
    assert len({w * h for w, h in more}) <= 130  # every other count costs a plan of attention
    assert all(h > w for w, h in (tall_size(random.Random(i), 400, 1000) for i in range(50)))
    assert scaled(1008, 1120) == (1008, 1120)
    assert preprocessor()["max_pixels"] == MOST_TOKENS * UNIT**2


def test_grain_keeps_the_mean_and_light_only_darkens() -> None:
    grey = Image.new("RGB", (300, 200), (128, 128, 128))
    noisy = np.asarray(fields.grained(random.Random(1), grey, 6), np.float32)
    assert abs(noisy.mean() - 128) < 1 and 3 < noisy.std() < 9
    light = fields.clouds(random.Random(1), grey.size, (3, 3), 100, 255)
    lit = np.asarray(fields.lit(grey, light))
    assert lit.max() <= 128 and lit.min() >= 40


def test_the_cost_of_a_picture_is_told(capsys: pytest.CaptureFixture[str],
                                       monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(costs, "SHARES", {"signs": 1.0, "panels": 3.0})
    costs.main(["--pictures", "1", "--size", "336x336"])
    rows = capsys.readouterr().out.splitlines()
    assert rows[2].startswith("| signs | 25.0 |") and rows[-1].startswith("| all | 100 |")


def test_the_texts_of_a_line_do_not_run_into_each_other() -> None:
    size, style = 20.0, pick_style(random.Random(0), 400, 100)
    for wide in (1.0, 2.0):
        slip = Slip()
        ends = Cell("RM", 0.72), Cell("1058.00", 1.0, RIGHT)
        slip.put(Cell("TOTAL"), *ends, tall=2.0, wide=wide)
        canvas = blank_page(style, (255, 255, 255))
        type_ = Type("cousine-regular", "cousine-regular")
        fit = largest(slip, type_, 380, 90, size)
        print_slip(canvas, slip, type_, fit, (10, 10, 390))
        x = canvas.document([]).glyphs[:, 1]
        assert (np.diff(x) > 2).all() and x.min() > 6 and x.max() < 394
