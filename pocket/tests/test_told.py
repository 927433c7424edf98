"""Attention targets: the visual token labelled as showing a byte of an answer does show it."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from pocket.document import Document, Question
from pocket.glyphs import CLASS_OF
from pocket.models import tokenizer
from pocket.models.config import PATCH
from pocket.models.llava import build_llava, llava_config
from pocket.models.llava_forward import TileForward, told_layer
from pocket.models.llava_tiles import join, order, tile_places, tiling, views
from pocket.training.answer_positions import told_places
from pocket.training.data import BatchOptions
from pocket.training.growth import places as grown_from
from pocket.training.llava_data import ROUND, lengths, make_tiles, token_of
from pocket.training.packing import pack
from pocket.training.sample_reuse import uses

SMALL = 112


def _document(written: str, *asked: tuple[str, str]) -> Document:
    """`written` in one line, a glyph every ten pixels."""
    glyphs = [[CLASS_OF[c], 5 + 10 * i, 50] for i, c in enumerate(written)]
    questions = [Question(kind, f"{kind}?", answer) for kind, answer in asked]
    size = (10 * len(written), 100)
    return Document(Image.new("RGB", size), np.array(glyphs, np.float32), questions)


def _told(document: Document, answer: str) -> dict[str, int]:
    """Which glyph each byte of ``answer`` is said to be, by the glyph's number."""
    question = next(q for q in document.questions if q.answer == answer)
    _, labels, _ = pack(random.Random(1), [question], 96)
    where = told_places(labels, document, np.arange(len(document.glyphs)))
    return {
        f"{i}{chr(b)}": int(w) for i, (b, w) in enumerate(zip(labels, where, strict=True)) if w >= 0
    }


def test_a_byte_is_told_where_its_glyph_stands() -> None:
    document = _document(
        "Total£20.10Paid7", ("value", "£20.10"), ("text", "Total Paid"), ("cell", "7")
    )
    assert list(_told(document, "£20.10").values()) == [5, 5, 6, 7, 8, 9, 10]  # two bytes a £
    assert list(_told(document, "Total Paid").values()) == [0, 1, 2, 3, 4, 11, 12, 13, 14]
    assert not _told(document, "7")  # one glyph may stand anywhere


def test_what_is_not_printed_or_not_once_is_not_told() -> None:
    document = _document(
        "12yes1212ab", ("count", "12"), ("yes_no", "yes"), ("value", "12"), ("x", "zz")
    )
    assert not _told(document, "yes") and not _told(document, "zz") and not _told(document, "12")
    document = _document("12ab", ("value", "12"))
    assert list(_told(document, "12").values()) == [0, 1]
    document.questions.append(Question("count", "count?", "12"))
    assert not _told(document, "12")  # the count of something, or what is printed


@pytest.mark.parametrize("size", [(112, 112), (196, 112), (224, 140), (448, 392)])
def test_a_told_token_shows_the_glyph(size: tuple[int, int]) -> None:
    """A dot where the glyph is: of the tiles, the target token changes most, or nearly."""
    plan = tiling(*size, SMALL)
    packing, patches = order(plan), (SMALL // PATCH) ** 2
    shown = token_of(packing, plan.tiles * patches)
    rng = random.Random(size[0])
    for _ in range(12):
        left, top = rng.randint(5, size[0] - 11), rng.randint(5, size[1] - 11)
        plain, dotted = Image.new("RGB", size, "white"), Image.new("RGB", size, "white")
        dotted.paste((0, 0, 0), (left, top, left + 6, top + 6))
        pixels = []
        for image in (plain, dotted):
            base, grid = (torch.from_numpy(v.copy())[None] for v in views(image, plan))
            pixels.append(join(base, grid, plan)[0].float().mean(-1))
        changed = (pixels[1] - pixels[0]).abs().view(plan.tiles, 8, PATCH, 8, PATCH).sum((2, 4))
        by_token = torch.cat((changed.flatten(), torch.zeros(1)))[packing]  # row ends: nothing
        centre = np.array([[5, left + 2.5, top + 2.5], [5, -4, 3]], np.float32)
        told, outside = shown[tile_places(centre, plan)]
        assert outside == -1 and told >= patches  # after the base view
        assert by_token[told] > 0 and by_token[told] >= 0.2 * by_token[patches:].max()


def test_batches_tell_places_in_every_use_and_lengths_are_few() -> None:
    batch = make_tiles(BatchOptions(4, 12_000, echo=2, alone=1.0), SMALL, 3, 0.9)
    first, other = uses(batch)
    assert batch.alone and first.alone and first.places.shape == first.text.shape
    assert not torch.equal(first.places, other.places)
    for use in (first, other):
        known = use.places >= 0
        assert known.float().sum() > 0.2 * (use.labels >= 0).float().sum()
        assert bool((use.labels[known] >= 0).all()) and int(use.places.max()) < len(batch.order)
        assert bool((batch.order[use.places[known]] >= 64).all())  # no row's end, no base view
    for visual, size in ((1176, (336, 336)), (2928, (672, 672)), (1700, (560, 308))):
        text, whole = lengths(visual, *size)
        assert whole % ROUND == 0 and whole - text - visual == 7 and 320 <= text < 640 + ROUND


def test_telling_places_teaches_one_head_to_look_there() -> None:
    model = build_llava(llava_config(3, 1, 256, 128, 2, side=SMALL), seed=2)
    batch = make_tiles(BatchOptions(7, 3_000, echo=1), SMALL, 0, 0.0)
    forward = TileForward(model, compile_blocks=False)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    seen = []
    for _ in range(12):
        _, visual = forward.see(batch)
        told = forward.read(visual, batch)[1]
        told.backward()
        optimiser.step()
        optimiser.zero_grad()
        seen.append(told.item())
    assert seen[0] == pytest.approx(np.log(len(batch.order)), abs=0.5)  # at first, anywhere
    assert seen[-1] < seen[0] - 1


def test_hidden_turns_are_told_what_a_sequence_of_their_own_is_told() -> None:
    model = build_llava(llava_config(3, 1, 256, 128, 2, side=SMALL), seed=2)
    batch = make_tiles(BatchOptions(7, 3_000, alone=1.0), SMALL, 0, 0.0)
    forward = TileForward(model, compile_blocks=False)
    ends = (batch.text[0] == tokenizer.VISION_END).nonzero().flatten().tolist()
    first = replace(batch, weights=batch.weights.clone(), alone=False)
    only = replace(batch, weights=batch.weights.clone())
    for made in (first, only):
        made.weights[1:] = 0
        made.weights[0, ends[1] :] = 0
    with torch.no_grad():
        visual = forward.see(batch)[1]
        told = [forward.read(visual, made)[1] for made in (first, only)]
        later = replace(batch, weights=batch.weights.clone())
        later.weights[1:] = 0
        later.weights[0, : ends[1]] = 0
        moved = replace(
            later, **{n: getattr(later, n).roll(-ends[1], 1) for n in ("text", "weights", "places")}
        )
        moved.alone = False  # the second turn, alone at the beginning of its sequence
        moved.weights[0, -ends[1] :] = 0
        third = ends[2] - ends[1] if len(ends) > 2 else len(batch.text[0]) - ends[1]
        later.weights[0, ends[1] + third :] = 0
        moved.weights[0, third:] = 0
        apart = [forward.read(visual, made)[1] for made in (later, moved)]
    assert told[0] > 0 and torch.allclose(told[0], told[1], atol=1e-4)
    assert apart[0] > 0 and torch.allclose(apart[0], apart[1], atol=1e-4)


def test_the_told_layer_of_the_trained_shape_grows_from_that_of_the_shipped_one() -> None:
    depth = llava_config().text_config.num_hidden_layers
    assert grown_from(5, depth)[told_layer(depth)] == (told_layer(5), False)
