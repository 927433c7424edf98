"""Pictures read without a question: exact where nothing is compressed, and the same ever after."""

import math
import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from rotatek import Engine, Full, Pictures, RotateKCache, Sampling, errors, make_request
from rotatek.engine.events import Finished
from rotatek.engine.passes import empty_cache, feed, fill, prefill, prefills_of, turn_of
from rotatek.inputs.request import Limits
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from rotatek.pictures.reading import PictureReader, check_cut, cut
from tests import fixtures
from tests.families import EVERY, tiny_gemma3
from tests.tiny import QWEN_TEMPLATE, TINY, tiny_qwen

FULL = Settings(channels=Full())
BITS = Settings.of(smaller=8)
QUESTION = "what is the <|im_end|> total?"
KINDS = EVERY | {"a window of 64": partial(tiny_gemma3, window=64)}
FORMS: dict[str, dict[str, Any]] = {
    "everything": {"channels": "full"},
    "channels": {"keep_channels": 0.25},
    "bits": {"smaller": 8},
    "sparse": {"channels": "spark"},
    "fewer tokens": {"tokens": "fastv", "keep_tokens": 0.4, "keep_channels": 1.0},
    "fewer from the tower": {"tokens": "visionzip", "keep_tokens": 0.45, "channels": "think"},
}


@pytest.fixture
def shown(picture: fixtures.Picture) -> list[Image.Image]:
    return [picture(150, 120, seed=1), picture(90, 200, seed=2), picture(150, 120, seed=3)]


def afresh(vlm: VisionLanguageModel, image: Image.Image, question: str) -> Tensor:
    """Logits behind a whole chat in a plain cache."""
    from transformers.cache_utils import DynamicCache

    prompt = vlm.prompt(make_request(image, question, 4))
    return prefill(vlm, vlm.embed(prompt), DynamicCache(config=vlm.model.config))[0]


def stored(vlm: VisionLanguageModel, cache: RotateKCache, question: str) -> Tensor:
    """Logits behind a question to a picture that was read without it."""
    ids = cut(vlm, question, [vlm.placeholder])[1]
    return feed(vlm, torch.tensor([ids]), cache.notes.next_position, cache.fork())[0]


def read(reader: PictureReader, image: Image.Image) -> RotateKCache:
    images = make_request(image, "?").images
    return reader.read(images, reader.look(images))


@pytest.mark.parametrize("family", KINDS)
def test_where_nothing_is_compressed_a_stored_picture_is_exact(
    family: str, picture: fixtures.Picture
) -> None:
    """The two halves of the chat are its ids, and their logits those of the chat read at once."""
    vlm = KINDS[family]()
    image = picture(150, 120, seed=4)
    request = make_request(image, QUESTION, 4)
    pixels = vlm.look(request)
    head, tail = cut(vlm, request.question, pixels.texts)
    ids = vlm.prompt(request, pixels=pixels).ids[0].tolist()
    assert ids[-len(tail) :] == tail and [i for i in ids if i not in vlm.visual_ids] == [
        i for i in head + tail if i not in vlm.visual_ids
    ]
    cache = read(PictureReader(vlm, FULL), image)
    assert cache.get_seq_length() == cache.notes.tokens == len(ids) - len(tail)
    for question in (request.question, "why?"):
        wanted = afresh(vlm, image, question)
        got = stored(vlm, cache, question)
        torch.testing.assert_close(got, wanted, atol=2e-4, rtol=2e-4)
        assert int(got.argmax()) == int(wanted.argmax())


def test_answers_are_those_of_the_uncompressed_model(
    engine: Engine, shown: list[Image.Image]
) -> None:
    """Of each picture, and of a few pages in one prompt, with the positions of one prompt."""
    pictures = Pictures(engine, FULL)
    asked: list[Image.Image | list[Image.Image]] = [*shown, shown]
    held = [pictures.add(images) for images in asked]
    assert [page.pages for page in held] == [1, 1, 1, 3]
    for images, answer in zip(asked, pictures.ask(held, "what?", 8), strict=True):
        events = engine.answer(make_request(images, "what?", 8), BASELINE)
        (done,) = [event for event in events if isinstance(event, Finished)]
        assert (answer.text, answer.tokens) == (done.answer, done.new_tokens)
        assert math.isclose(answer.confidence, done.metrics["confidence"], rel_tol=1e-3)


@pytest.mark.parametrize("form", FORMS)
def test_a_question_changes_nothing_and_a_batch_is_as_each_alone(
    form: str, engine: Engine, shown: list[Image.Image], tmp_path: Path
) -> None:
    settings, drawn = Settings.of(**FORMS[form]), Sampling(temperature=1.0, seed=6)
    pictures = Pictures(engine, settings, tmp_path)
    names = [pictures.add(image).name for image in shown]
    first = pictures.ask(names, "what?", 8)
    for own in (Sampling(), drawn):
        together = pictures.ask(names, "what?", 8, own)
        alone = [pictures.ask(name, "what?", 8, own)[0] for name in names]
        assert [a.text for a in together] == [a.text for a in alone]
    pictures.ask(names, "and something longer, to fill the buffers of text?", 24)
    assert pictures.ask(names, "what?", 8) == first
    again = Pictures(engine, settings, tmp_path)  # from the files
    assert [a.text for a in again.ask(names, "what?", 8)] == [a.text for a in first]
    assert again.counts == {"loaded": 3}


def test_the_same_picture_again_costs_nothing(
    engine: Engine, shown: list[Image.Image], tmp_path: Path
) -> None:
    pictures = Pictures(engine, BITS, tmp_path)
    first, done = pictures.add(shown[0]), engine.scheduler.counters.steps
    again = pictures.add(shown[0].copy())
    other = Pictures(engine, BITS, tmp_path).add(shown[0])
    assert first == again == other and pictures.counts["read"] == 1
    assert engine.scheduler.counters.steps == done
    assert first.cache_bytes < first.full_bytes and 0 < first.file_bytes < first.full_bytes


def test_a_template_that_begins_with_the_question_is_refused() -> None:
    vlm = tiny_qwen()
    vlm.tokenizer.chat_template = QWEN_TEMPLATE.replace("m['content']", "m['content'] | reverse")
    with pytest.raises(errors.TextBeforePicture):
        Pictures(vlm, BITS)
    vlm.tokenizer.chat_template = QWEN_TEMPLATE.replace(
        "{%- for m in messages -%}", "{{ messages | length }}{%- for m in messages -%}"
    )
    check_cut(vlm)  # what does not depend on the question may stand before the picture


def test_memory_is_bounded_and_says_so(
    engine: Engine, shown: list[Image.Image], tmp_path: Path
) -> None:
    room = Pictures(engine, BITS)
    sizes = [room.add(image).cache_bytes for image in shown]
    room.close()
    tight = Pictures(engine, BITS, tmp_path, memory=sum(sizes[:2]) + 1)
    names = [tight.add(image).name for image in shown]
    assert tight.held_bytes <= sum(sizes[:2]) + 1
    assert tight.counts["left_memory"] >= 1
    assert [a.error for a in tight.answers(names, "what?", 4, batch=1)] == [""] * 3
    assert tight.counts["loaded"] >= 1 and tight.held_bytes <= sum(sizes[:2]) + 1
    nowhere = Pictures(engine, BITS, memory=max(sizes))
    gone, *_, here = [nowhere.add(image) for image in shown]
    with pytest.raises(errors.UserError, match="no longer in memory"):
        nowhere.ask(gone, "what?")
    assert nowhere.ask(here, "what?", 4) and nowhere.add(shown[0]) == gone
    before = engine.admission.held
    nowhere.close()
    assert engine.admission.held < before


def test_the_folder_is_bounded_too(
    engine: Engine, shown: list[Image.Image], tmp_path: Path
) -> None:
    pictures = Pictures(engine, BITS, tmp_path)
    first, second = (pictures.add(image) for image in shown[:2])
    two = first.file_bytes + second.file_bytes
    bound = Pictures(
        engine, BITS, tmp_path, disk=two + min(first.file_bytes, second.file_bytes) // 2
    )
    paths = [
        fixtures.present(fixtures.present(bound.store).path(page.name)) for page in (first, second)
    ]
    os.utime(paths[0], (10**9, 10**9))  # as if neither had been used for years
    bound.ask(first, "what?", 2)  # used since: the other one goes
    os.utime(paths[1], (10**9, 10**9))
    third = bound.add(shown[2])
    assert set(bound.names()) == {first.name, third.name}
    assert bound.counts["left_folder"] == 1 and bound.find(second.name) is None


def test_bounds_and_stop(engine: Engine, shown: list[Image.Image]) -> None:
    small = Engine(engine.vlm, limits=Limits(max_prompt_tokens=400))
    pictures = Pictures(small, BITS)
    page = pictures.add(shown[0])
    (answer,) = pictures.answers(page, "x" * 390, 8)
    assert answer.error == errors.RequestTooLong.sentence and not answer.text
    stop = threading.Event()
    stop.set()
    with pytest.raises(errors.Stopped):
        list(pictures.answers(page, "what?", stop=stop))
    with pytest.raises(errors.Stopped):
        pictures.add(shown[1], stop)
    for wrong in ("", "\x00"):
        with pytest.raises(errors.QuestionEmpty):
            pictures.ask(page, wrong)
    with pytest.raises(errors.UserError, match="no longer in memory"):
        pictures.ask("0" * 40, "what?")
    assert small.scheduler.running == 0 and small.admission.running == 0


def test_an_answer_shows_where_it_looked(engine: Engine, shown: list[Image.Image]) -> None:
    """Uncompressed, it attends where the model attends that is asked afresh."""
    before = engine.admission.running  # other tests' stores
    pictures, image = Pictures(engine, FULL), shown[0]
    page = pictures.add(image)
    (answer,) = pictures.ask(page, "what?", 8)
    look = pictures.look(page, "what?", 8)
    said = "".join(look.pieces).strip()
    assert said == answer.text.rstrip("\ufffd") and look.attention is not None
    events = engine.answer(make_request(image, "what?", 8), BASELINE)
    (done,) = [event for event in events if isinstance(event, Finished)]
    assert done.attention is not None and look.attention.steps == done.attention.steps
    apart = look.attention.cells.astype(int) - done.attention.cells.astype(int)
    assert look.attention.cells.shape[1] == page.visual_tokens and abs(apart).max() <= 2
    assert [grid.rows * grid.columns for grid in look.grids] == [page.visual_tokens]
    pruned = Pictures(engine, Settings.of(tokens="fastv", keep_tokens=0.5))
    assert pruned.look(pruned.add(image), "what?", 8).attention is None
    pictures.close()
    pruned.close()
    assert engine.scheduler.running == 0 and engine.admission.running <= before


# -- weights by general questions, which are read behind a prompt and leave nothing but weights --

EXACT = Settings.of(keep_channels=1.0, weighting="general")


def filled(
    vlm: VisionLanguageModel, picture: fixtures.Picture, settings: Settings
) -> tuple[RotateKCache, Tensor, Tensor]:
    """A cache, the logits behind its prompt, and the next position."""
    prompt = vlm.prompt(make_request(picture(150, 120, seed=4), "what?", 4))
    ((_, embedded, plan, _),) = prefills_of(vlm, prompt, [settings])
    cache = empty_cache(vlm, embedded, settings, plan)
    return cache, fill(vlm, embedded, plan, [cache])[0], embedded.next_position


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava_next", "qwen3_5", "gemma3"])
def test_both_answers_are_exact_where_nothing_is_compressed(
    family: str, picture: fixtures.Picture
) -> None:
    """The first one's logits are the prompt's own, the next ones' know of no general question."""
    vlm = (TINY | EVERY)[family]()
    own, first, position = filled(vlm, picture, EXACT)
    plain, wanted, _ = filled(vlm, picture, BASELINE)
    torch.testing.assert_close(first, wanted, atol=2e-4, rtol=2e-4)
    assert own.get_seq_length() == plain.get_seq_length()
    turn = turn_of(vlm, "and why?").ids
    again, expected = (feed(vlm, turn, position, cache)[0] for cache in (own, plain))
    torch.testing.assert_close(again, expected, atol=5e-4, rtol=5e-4)
