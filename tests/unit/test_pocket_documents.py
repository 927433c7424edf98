"""The generator: the same seeds give the same documents, answers are in them, glyphs are on ink."""

import random

import numpy as np
import pytest

from rotatek.pocket import fonts, tokens
from rotatek.pocket.config import PATCH, UNIT
from rotatek.pocket.data import curriculum, glyph_targets, make_batch, pack
from rotatek.pocket.degrade import degrade
from rotatek.pocket.generate import make_document, pick_size
from rotatek.pocket.glyphs import GLYPHS, N_CLASSES
from rotatek.pocket.questions import ABSENT
from rotatek.pocket.renderers import REGISTRY
from rotatek.pocket.renderers.look import text_length

READ = {"value", "cell", "title", "field", "total", "nth", "find", "reverse", "highest", "lowest"}


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
        document = make_document(seed, width, height, renderers=[name], harm=0)
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


@pytest.mark.parametrize("name", ["pages", "forms", "tables", "bars", "invoices", "plots"])
def test_glyph_centres_fall_on_ink(name: str) -> None:
    document = make_document(4, 560, 448, renderers=[name], harm=0)
    pixels = np.asarray(document.image, np.int16)
    inked = 0
    for _, x, y in document.glyphs:
        top, left = max(0, int(y) - 9), max(0, int(x) - 6)
        patch = pixels[top : top + 18, left : left + 12]
        inked += int(np.ptp(patch, axis=(0, 1)).max() > 40)
    assert len(document.glyphs) > 30
    assert inked / len(document.glyphs) > 0.95


def test_glyphs_follow_a_photograph_at_an_angle() -> None:
    moved = 0
    for seed in range(12):
        plain = make_document(seed, 448, 448, renderers=["signs"], harm=0)
        before = plain.glyphs.copy()
        harmed = degrade(random.Random(seed), plain, 1.0)
        if np.array_equal(before, harmed.glyphs):
            continue
        moved += 1
        assert len(before) == len(harmed.glyphs)
        assert np.abs(before[:, 1:] - harmed.glyphs[:, 1:]).max() < 0.3 * 448
        pixels = np.asarray(harmed.image, np.int16)
        ink = [
            np.ptp(pixels[int(y) - 12 : int(y) + 12, int(x) - 9 : int(x) + 9], axis=(0, 1)).max()
            > 30
            for _, x, y in harmed.glyphs
            if 12 <= x < 436 and 12 <= y < 436
        ]
        assert np.mean(ink) > 0.95
    assert moved >= 2


def test_targets_name_the_patch_in_the_order_of_the_vision_tower() -> None:
    document = make_document(1, 224, 168, renderers=["signs"], harm=0)
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
    assert len(answers) >= 3 and (labels == tokens.IM_END).sum() >= 3


def test_batches_are_equal_when_drawn_again_and_grow_with_the_curriculum() -> None:
    first, second = (make_batch(1, 4, 0.0, 300) for _ in range(2))
    for name, value in vars(first).items():
        assert value.equal(getattr(second, name)), name
    assert tuple(first.images.shape[1:]) == (224, 224, 3)
    sizes = [curriculum(random.Random(i), 0.9)[:2] for i in range(200)]
    tokens_of = [w * h // UNIT**2 for w, h in sizes]
    assert min(tokens_of) < 120 and 700 < max(tokens_of) <= 1024


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
