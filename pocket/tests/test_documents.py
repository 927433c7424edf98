"""The generator: the same seeds give the same documents, answers are in them, glyphs are on ink."""

import random

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFilter

from pocket.augmentation import raster
from pocket.augmentation.degradation import degrade
from pocket.augmentation.distractors import distract
from pocket.content import formats, prose, words
from pocket.content.cards import Deck, Field
from pocket.content.charts import ranked
from pocket.content.fields import make_fields
from pocket.evaluation.questions import drawn
from pocket.generate import make_document, pick_size
from pocket.glyphs import GLYPHS, N_CLASSES
from pocket.layouts import fonts
from pocket.layouts.pillow import grids, leaflets
from pocket.layouts.registry import REGISTRY
from pocket.layouts.style import pick_style
from pocket.models import tokenizer
from pocket.models.config import MIN_PIXELS, PATCH, UNIT, text_length
from pocket.questions.cards import deck_questions
from pocket.questions.templates import ABSENT
from pocket.training.data import BatchOptions, bucket, curriculum, glyph_targets, make_batch
from pocket.training.packing import pack

READ = set("value cell title field fact total nth find reverse highest lowest".split())


@pytest.mark.parametrize("name", list(REGISTRY))
def test_same_seed_same_document(name: str) -> None:
    first, second = (make_document(7, 448, 392, renderers=[name]) for _ in range(2))
    other = make_document(8, 448, 392, renderers=[name])
    assert first.image.tobytes() == second.image.tobytes()
    assert first.questions == second.questions
    assert np.array_equal(first.glyphs, second.glyphs)
    assert first.image.tobytes() != other.image.tobytes()
    assert first.renderer == name


@pytest.mark.parametrize("name", list(REGISTRY))
def test_every_answer_that_is_read_stands_in_the_document(name: str) -> None:
    asked = 0
    for seed in range(6):
        width, height = pick_size(random.Random(seed), 120, 400)
        document = make_document(seed, width, height, renderers=[name], severity=0)
        shown = " ".join(" ".join(document.content).split())
        for question in document.questions:
            assert question.answer, question
            if question.kind in READ:
                asked += 1
                assert all(part in shown for part in question.answer.split()), question
            elif question.kind == "absent":
                assert question.answer == ABSENT
            elif question.kind == "yes_no":
                assert question.answer in ("yes", "no")
    assert asked >= 6


@pytest.mark.parametrize(
    "name", ["pages", "forms", "grids", "listings", "tables", "bars", "invoices", "plots"]
)
def test_glyph_centres_fall_on_ink(name: str) -> None:
    document = make_document(4, 560, 448, renderers=[name], severity=0)
    pixels = np.asarray(document.image, np.int16)
    inked = 0
    for _, x, y in document.glyphs:
        top, left = max(0, int(y) - 9), max(0, int(x) - 6)
        patch = pixels[top : top + 18, left : left + 12]
        inked += int(np.ptp(patch, axis=(0, 1)).max() > 40)
    assert len(document.glyphs) > 30
    assert inked / len(document.glyphs) > 0.95


def test_glyphs_follow_a_photograph_at_an_angle() -> None:
    moved, ink = 0, []
    for seed in range(16):
        plain = make_document(seed, 448, 448, renderers=["signs"], severity=0)
        before = plain.glyphs.copy()
        degraded = degrade(random.Random(seed), plain, 1.0)
        if np.array_equal(before, degraded.glyphs):
            continue
        moved += 1
        assert len(before) == len(degraded.glyphs)
        assert np.abs(before[:, 1:] - degraded.glyphs[:, 1:]).max() < 0.3 * 448
        pixels = np.asarray(degraded.image, np.int16)
        ink += [
            np.ptp(pixels[int(y) - 12 : int(y) + 12, int(x) - 9 : int(x) + 9], axis=(0, 1)).max()
            > 30
            for _, x, y in degraded.glyphs
            if 12 <= x < 436 and 12 <= y < 436
        ]
    assert moved >= 3 and len(ink) > 60
    assert np.mean(ink) > 0.93


def test_quick_pixel_work_is_pillows_but_for_rounding() -> None:
    image = make_document(3, 448, 392, severity=0).image
    for method in (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC):
        for size in ((600, 500), (300, 280)):
            wanted = image.resize(size, method).resize(image.size, method)
            got = raster.resized(image, (size, image.size), method)
            assert _apart(got, wanted).max() <= 6 and _apart(got, wanted).mean() < 0.01
    for side in (0.05, 0.3, 0.5):
        row = np.array([side, 1, side]) / (1 + 2 * side)
        kernel = ImageFilter.Kernel((3, 3), np.outer(row, row).flatten().tolist(), 1)
        assert _apart(raster.blurred(image, side), image.filter(kernel)).max() <= 3


def _apart(one: Image.Image, other: Image.Image) -> np.ndarray:
    return np.abs(np.asarray(one, np.int16) - np.asarray(other, np.int16))


def test_glyphs_follow_a_fast_photograph_as_they_follow_a_careful_one() -> None:
    """The same damage, but for rounding, and the same positions."""
    for seed in range(24):
        careful, fast = (
            degrade(random.Random(seed), make_document(seed, 448, 448, severity=0), fast=fast)
            for fast in (False, True)
        )
        assert np.array_equal(careful.glyphs, fast.glyphs)
        assert _apart(careful.image, fast.image).mean() < 3


def test_targets_name_the_patch_in_the_order_of_the_vision_tower() -> None:
    document = make_document(1, 224, 168, renderers=["signs"], severity=0)
    patches, classes = glyph_targets(document)
    assert classes.max() < N_CLASSES and patches.max() < (224 // PATCH) * (168 // PATCH)
    columns = 224 // UNIT
    for patch, (_, x, y) in zip(patches, document.glyphs, strict=True):
        block, inside = divmod(int(patch), 4)
        row, column = 2 * (block // columns) + inside // 2, 2 * (block % columns) + inside % 2
        assert (row, column) == (int(y) // PATCH, int(x) // PATCH)


def test_packed_turns_hold_whole_answers_and_loss_only_there() -> None:
    document = make_document(5, 448, 448)
    length = text_length(448, 448)
    text, labels, weights = pack(random.Random(0), document.questions, length)
    assert text.shape == labels.shape == (length,)
    assert ((labels >= 0) == (weights > 0)).all()
    assert (labels[:-1][labels[:-1] >= 0] == text[1:][labels[:-1] >= 0]).all()
    said = bytes(b for b in text if b < 256).decode()
    answers = [q for q in document.questions if q.answer in said]
    assert len(answers) >= 3 and (labels == tokenizer.IM_END).sum() >= 3


def test_batches_are_equal_when_drawn_again_and_grow_with_the_curriculum() -> None:
    first, second = (make_batch(BatchOptions(1, 300), 4, 0.0) for _ in range(2))
    for name, value in vars(first).items():
        other = getattr(second, name)
        held = isinstance(value, torch.Tensor)
        same = value.equal(other) if held else value == other
        assert same, name
    assert tuple(first.images.shape[1:]) == (224, 224, 3)
    sizes = [curriculum(random.Random(i), 0.9)[:2] for i in range(200)]
    shown, drawn = ([w * h for w, h in of] for of in zip(*sizes, strict=True))
    assert min(drawn) < 120 * UNIT**2 and 700 * UNIT**2 < max(drawn) <= 1024 * UNIT**2
    assert max(shown) == max(drawn) and min(shown) > 0.9 * MIN_PIXELS


def test_small_training_pictures_are_scaled_up_as_the_processor_scales_them() -> None:
    drawn = (curriculum(random.Random(f"size/1/{i}"), 0.9)[1] for i in range(100))
    step, (width, height) = next(
        (i, s) for i, s in enumerate(drawn) if s[0] * s[1] < MIN_PIXELS / 2
    )
    batch = make_batch(BatchOptions(1, 3000), step, 0.9)
    assert tuple(batch.images.shape[1:3]) > (height, width)
    assert width * height < MIN_PIXELS < 1.1 * batch.images[0, ..., 0].numel()
    patches = batch.images[0, ..., 0].numel() // PATCH**2
    assert 0.7 * patches < int((batch.glyph_patch % patches).max()) < patches


def test_a_runs_pictures_have_few_counts_of_tokens_and_keep_their_extremes() -> None:
    sizes = [curriculum(random.Random(f"size/{i}"), i / 4000)[0] for i in range(4000)]
    sides = [(w // UNIT, h // UNIT) for w, h in sizes]
    counts = {w * h for w, h in sides}
    assert len(counts) <= 90
    assert min(counts) == 64 and 1000 < max(counts) <= 1024
    assert {w for w, _ in sides} >= set(range(8, 40)) and {h for _, h in sides} >= set(range(8, 36))
    for w in range(8, 32):
        for h in range(8, 1024 // w + 1):
            near = bucket(w * UNIT, h * UNIT, max(160, w * h))
            assert all(abs(n // UNIT - side) <= 2 for n, side in zip(near, (w, h), strict=True))


def test_unseen_fonts_and_renderers_stay_out_of_training() -> None:
    train, unseen = (set(fonts.families(s, True, False)) for s in ("train", "unseen"))
    assert not train & unseen and len(unseen) / (len(train) + len(unseen)) >= 0.25
    held = {n for n, r in REGISTRY.items() if r.held_out}
    seen = {make_document(s, 448, 448).renderer for s in range(40)}
    assert len(held) >= 2 and not held & seen
    assert {make_document(s, 448, 448, "renderers").renderer for s in range(12)} <= held


def test_fonts_draw_the_letters_they_are_asked_for() -> None:
    western = "".join(c for c in GLYPHS if ord(c) < 0x100)
    for slug in fonts.slugs():
        font = fonts.face(slug, 20)
        missing = font.font.getmask("\U0010ffff").getbbox()
        for ch in western:
            assert font.width(ch) > 0, (slug, ch)
        assert font.font.getmask("A").getbbox() != missing


def test_distractions_leave_the_glyphs_their_ink() -> None:
    changed = 0
    for seed in range(12):
        plain = make_document(seed, 448, 448, renderers=["forms"], severity=0)
        before = np.asarray(plain.image, np.int16)
        after = np.asarray(distract(random.Random(seed), plain).image, np.int16)
        changed += int((before != after).any())
        for _, x, y in plain.glyphs:
            window = np.s_[max(0, int(y) - 5) : int(y) + 5, max(0, int(x) - 4) : int(x) + 4]
            assert np.abs(before[window] - after[window]).max() <= 40  # a watermark is faint
    assert changed >= 8


@pytest.mark.parametrize("name", ["bars", "lines", "pies", "meters"])
def test_comparisons_are_asked_only_where_they_can_be_seen(name: str) -> None:
    row = [100.0, 99.0, 50.0, 49.0]
    assert ranked(row, shown=False) == ([3, 2, 1, 0], False, False)
    assert ranked(row, shown=True) == ([3, 2, 1, 0], True, True)
    asked = sum(
        q.kind in ("highest", "lowest")
        for seed in range(10)
        for q in make_document(seed, 448, 392, renderers=[name]).questions
    )
    assert asked >= 12


def test_the_batches_of_one_step_share_a_size_and_no_document() -> None:
    first, second = (make_batch(BatchOptions(3, 700), index, 0.9, world=2) for index in (8, 9))
    assert first.images.shape == second.images.shape
    assert not first.images.equal(second.images)


def test_text_is_made_of_glyphs_and_seldom_comes_twice() -> None:
    rng = random.Random(5)
    for draw in (
        formats.code,
        formats.date,
        formats.clock,
        formats.phone,
        words.email,
        formats.anything,
    ):
        made = [draw(rng) for _ in range(400)]
        assert all(ch in GLYPHS or ch == " " for text in made for ch in text), draw
        assert len(set(made)) > 250, draw
    said = [prose.sentence(rng, words.language(rng)) for _ in range(600)]
    assert len(set(said)) == 600
    starts = [text.split()[0] for text in said]
    assert max(map(starts.count, starts)) < 40


def test_fields_in_rows_stand_apart_and_in_reading_order() -> None:
    cells = 0
    for seed in range(60):
        rng = random.Random(seed)
        style = pick_style(rng, 448, 392)
        cell_style = grids.CellStyle.of(rng, style)
        pairs = make_fields(rng, 20).pairs
        rows = grids.arrange(rng, cell_style, pairs, (20.0, 430.0, 40.0, 380.0))
        flat = [c for row in rows for c in row]
        keys = [k for k, _ in pairs]
        assert [keys.index(c.key) for c in flat] == sorted(keys.index(c.key) for c in flat)
        for row in rows:
            for left, right in zip(row, row[1:], strict=False):
                assert left.x + left.width <= right.x + 0.01
            assert row[0].x >= 20 and row[-1].x + row[-1].width <= 430.6
        for above, below in zip(rows, rows[1:], strict=False):
            assert above[0].y + cell_style.height <= below[0].y + 0.01
        assert all(cell_style.need(c.key, c.value) <= c.width + 0.01 for c in flat)
        cells += len(flat)
    assert cells > 300


def test_comparisons_of_cards_weigh_their_own_figure() -> None:
    price = Field("price", "{v}", ["€9.00", "€11.00", "€2.50"], [9.0, 11.0, 2.5])
    hours = Field("Hours", "{k}: {v}", ["40", "7", "12"], [40.0, 7.0, 12.0])
    deck = Deck("room", "rooms", ["Ash", "Birch", "Cedar"], [price, hours], [])
    assert deck.markdown().splitlines()[1] == "- Birch: €11.00, Hours: 7"
    seen = set()
    for seed in range(20):
        for q in deck_questions(random.Random(seed), "", deck, 500):
            about = "price" if "cost" in q.text or "price" in q.text else "hours"
            if q.kind in ("highest", "lowest") and ("price" in q.text or "hours" in q.text):
                seen.add((about, q.kind, q.answer))
            if q.kind == "count":
                assert q.answer == "3"
    assert seen == {
        ("price", "highest", "Birch"), ("price", "highest", "€11.00"),
        ("price", "lowest", "Cedar"), ("price", "lowest", "€2.50"),
        ("hours", "highest", "Ash"), ("hours", "highest", "40"),
        ("hours", "lowest", "Birch"), ("hours", "lowest", "7"),
    }  # fmt: skip


def test_a_line_of_kept_characters_is_the_line_that_pillow_draws() -> None:
    rng = random.Random(2)
    lines = ["", "Jj f", *(prose.sentence(rng, words.language(rng))[:40] for _ in range(6))]
    for slug in list(fonts.slugs())[::7]:
        face = fonts.face(slug, 19)
        for line in lines * 2:  # first with unknown characters, then with known ones
            drawn, put = (Image.new("RGB", (700, 60), (240, 230, 220)) for _ in range(2))
            ImageDraw.Draw(drawn).text((9, 8), line, font=face.font, fill=(20, 40, 160))
            mask, left, top = face.mask(line)
            ImageDraw.Draw(put).bitmap((9 + left, 8 + top), mask, (20, 40, 160))
            assert drawn.tobytes() == put.tobytes(), (slug, line)


def test_some_tables_are_long_and_every_answer_has_room() -> None:
    long = 0
    for seed in range(40):
        document = make_document(seed, 560, 560, renderers=["tables"], severity=0)
        counts = [int(q.answer) for q in document.questions if q.kind == "count"]
        long += max(counts) >= 12
        assert all(len(q.answer.encode()) <= text_length(560, 560) for q in document.questions)
    assert long >= 3


def test_what_training_draws_is_measured_renderer_by_renderer() -> None:
    pairs = drawn("336x448", ["train"], 2, 3, ["forms", "leaflets"])
    assert {(item.split, item.renderer) for _, item in pairs} == {
        ("train", "forms"),
        ("train", "leaflets"),
    }
    assert len({image.tobytes() for image, _ in pairs}) == 4


def test_tiers_are_not_transcribed_and_never_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = []
    for tiered in (0.0, 1.0):
        monkeypatch.setattr(leaflets, "TIERED", tiered)
        found = [make_document(seed, 448, 448, renderers=["leaflets"]) for seed in range(30)]
        kinds.append(sum(q.kind == "transcribe" for made in found for q in made.questions))
        held = make_document(3, 448, 448, "topics").image.tobytes()
        monkeypatch.setattr(leaflets, "TIERED", 0.5)
        assert held == make_document(3, 448, 448, "topics").image.tobytes()
    assert kinds[1] < kinds[0]


def test_a_letter_with_a_total_has_one_and_never_denies_it() -> None:
    summed = 0
    for seed in range(120):
        asked = make_document(seed, 560, 700, renderers=["letters"], severity=0).questions
        totals = {q.answer for q in asked if q.kind == "total"}
        denied = [q for q in asked if q.answer == ABSENT and "total" in q.text.lower()]
        assert len(totals) <= 1 and not (totals and denied)
        summed += bool(totals)
    assert summed >= 20
