"""Text in 8 bits behind a recent window, in whole models: prompts, steps, batches, files, bytes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rotatek.cache.bytes import storage_bytes
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.text_buffer import TextBuffer
from rotatek.engine.batch import RunningBatch
from rotatek.engine.decode import decode, decode_one_token, feed, prefill
from rotatek.errors import SettingError
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import Embedded, VisionLanguageModel
from tests.fixtures import Picture
from tests.tiny import TINY

NEW = 24
OPTIONS: dict[str, Any] = {"text_dtype": "int8", "text_window": 16}
FORMS: dict[str, dict[str, Any]] = {
    "rotatek": {"channels": "rotatek", "keep_channels": 0.25},
    "bits": {"channels": "rotatek", "bits": 2.0},
    "full": {"channels": "full"},
}


def question(vlm: VisionLanguageModel, picture: Picture, words: int = 12) -> Embedded:
    text = " ".join(["what is the total"] * words)
    return vlm.embed(vlm.prompt(make_request(picture(120, 90, seed=words), text, 2)))


def filled(vlm: VisionLanguageModel, prompt: Embedded, form: str) -> tuple[RotateKCache, Tensor]:
    cache = RotateKCache(vlm.model, prompt.inputs(), Settings.of(**FORMS[form], **OPTIONS))
    return cache, prefill(vlm, prompt, cache)[0]


@pytest.fixture
def vlm() -> VisionLanguageModel:
    return TINY["qwen2_5_vl"]()


def test_it_is_off_by_default_and_then_changes_nothing() -> None:
    assert Settings.of().channels.recent_text is None
    assert Settings.of(channels="full").is_baseline
    assert not Settings.of(channels="full", text_dtype="int8").is_baseline
    assert Settings.of(**OPTIONS).channels.recent_text == 16
    assert "8-bit text" in Settings.of(bits=0.75, **OPTIONS).channels.extensions
    for wrong in ({"text_dtype": "int3"}, {"text_window": 4}):
        with pytest.raises(SettingError):
            Settings.of(**wrong)


@pytest.mark.parametrize("form", FORMS)
def test_bytes_are_those_of_the_tensors_and_fewer(
    form: str, vlm: VisionLanguageModel, picture: Picture
) -> None:
    prompt = question(vlm, picture, 40)
    cache, _ = filled(vlm, prompt, form)
    plain = RotateKCache(vlm.model, prompt.inputs(), Settings.of(**FORMS[form]))
    prefill(vlm, prompt, plain)
    count = cache.bytes()
    assert count.total == sum(count.parts.values())
    assert count.total == storage_bytes([*(t for _, t in cache.tensors()), *cache.marks()])
    text = cache.layers[0].text
    length, window = text.longest, 16
    B, heads, _, d = text.keys.shape
    slots = -(-(length - window + 1) // 16) * 16
    ring = 2 * window * d * text.keys.element_size()
    assert count.parts["text"] == len(cache.layers) * B * heads * (
        ring + slots * (2 * d + 4) + 4 * d
    )
    assert count.parts["text"] < plain.bytes().parts["text"] / 2


@pytest.mark.parametrize("form", FORMS)
def test_a_text_that_fits_its_window_is_as_at_full_width(
    form: str, vlm: VisionLanguageModel, picture: Picture
) -> None:
    prompt = question(vlm, picture, 2)
    steps = []
    for extra in ({}, {"text_dtype": "int8", "text_window": 512}):
        cache = RotateKCache(vlm.model, prompt.inputs(), Settings.of(**FORMS[form], **extra))
        logits, _ = prefill(vlm, prompt, cache)
        steps.append([step.logits for step in decode(vlm, prompt, cache, logits, 8)])
        assert cache.layers[0].text.longest < 512
    for one, other in zip(*steps, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_old_text_is_close_and_recent_text_exact(
    form: str, vlm: VisionLanguageModel, picture: Picture
) -> None:
    prompt = question(vlm, picture, 20)
    steps = []
    for extra in ({}, OPTIONS):
        cache = RotateKCache(vlm.model, prompt.inputs(), Settings.of(**FORMS[form], **extra))
        logits, _ = prefill(vlm, prompt, cache)
        tokens = logits.argmax(-1)
        steps.append(decode_one_token(vlm, tokens, prompt.next_position, cache, None))
    error = (steps[0] - steps[1]).norm() / steps[0].norm()
    assert 0 < float(error) < 0.02


def test_a_question_fed_at_once_or_token_by_token_leaves_the_same(
    vlm: VisionLanguageModel, picture: Picture
) -> None:
    prompt = question(vlm, picture)
    ids = torch.arange(40)[None] % 30 + 5
    found = []
    for step in (40, 1, 7):
        cache, _ = filled(vlm, prompt, "rotatek")
        for start in range(0, 40, step):
            piece = ids[:, start : start + step]
            logits, _ = feed(vlm, piece, prompt.next_position + start, cache)
        found.append((logits, cache.layers[0].text))
    for logits, text in found[1:]:
        assert float((logits - found[0][0]).norm() / logits.norm()) < 0.01
        assert text.longest == found[0][1].longest
        assert torch.allclose(text.keys, found[0][1].keys, atol=1e-4)  # of the first layer


def test_a_trial_step_is_forgotten(vlm: VisionLanguageModel, picture: Picture) -> None:
    prompt = question(vlm, picture)
    cache, logits = filled(vlm, prompt, "rotatek")
    cache.reserve(4 * NEW)
    held = [layer.text.growing.data_ptr() for layer in cache.layers]
    before, rings = cache.counters(), [layer.text.keys.clone() for layer in cache.layers]
    for token in (3, 4, 5):
        decode_one_token(vlm, torch.tensor([token]), prompt.next_position, cache, None)
    cache.rewind(before)
    assert all(torch.equal(a.text.keys, b) for a, b in zip(cache.layers, rings, strict=True))
    assert held == [layer.text.growing.data_ptr() for layer in cache.layers]
    other, _ = filled(vlm, prompt, "rotatek")
    for position in range(20):
        args = (torch.tensor([7]), prompt.next_position + position)
        one, two = (decode_one_token(vlm, *args, each, None) for each in (cache, other))
        assert torch.equal(one, two)


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_a_batch_answer_as_alone_and_come_back(
    form: str, vlm: VisionLanguageModel, picture: Picture
) -> None:
    prompts = [question(vlm, picture, words) for words in (3, 20, 9)]
    alone, caches, firsts = [], [], []
    for prompt in prompts:
        cache, logits = filled(vlm, prompt, form)
        alone.append([s.tokens[0] for s in decode(vlm, prompt, cache, logits, NEW)])
        cache, logits = filled(vlm, prompt, form)
        caches.append(cache)
        firsts.append(logits)
    plain = RotateKCache(vlm.model, prompts[0].inputs(), Settings.of(**FORMS[form]))
    firsts.append(prefill(vlm, prompts[0], plain)[0])
    positions = torch.cat([prompt.next_position for prompt in [*prompts, prompts[0]]])
    batch = RunningBatch(plain)
    numbers = [row[0] for row in batch.join([*caches, plain], NEW)]
    # text at full width is apart, and so is a row whose planes take twice as much
    assert len(batch.layers[0].groups) == (3 if form == "bits" else 2)
    tokens = {n: int(each.argmax()) for n, each in zip(numbers, firsts, strict=True)}
    said: dict[int, list[int]] = {n: [] for n in numbers}
    place = dict(zip(numbers, positions.tolist(), strict=True))
    for step in range(NEW):
        if step == 10:  # one leaves, and the others continue at other indices
            batch.leave([numbers[1]], {numbers[1]: caches[1]})
            part = said.pop(numbers[1])
            assert part == alone[1][:10]
            count = caches[1].layers[0].text
            assert count.longest == int(count.lengths[0])
        order = [n for n in batch.order if n is not None]
        counters = batch.counters()
        ids = torch.tensor([tokens[n] for n in order])
        at = torch.tensor([place[n] + step for n in order])
        if step % 5 == 0:  # a step that fails is taken back and made again
            decode_one_token(vlm, ids + 1, at, batch, None)
            batch.rewind(counters)
        logits = decode_one_token(vlm, ids, at, batch, None)
        batch.stepped()
        for row, number in enumerate(order):
            said[number].append(tokens[number])
            tokens[number] = int(logits[row].argmax())
    assert said[numbers[0]] == alone[0] and said[numbers[2]] == alone[2]
    slots = [slots for layer in batch.layers for slots in layer.groups]
    pools = [group.pools for group in batch._groups.values()]
    count = storage_bytes(t for each in (*slots, *pools) for t in each.tensors())
    assert batch.bytes == count
    logits = decode_one_token(
        vlm, torch.tensor([alone[1][10]]), prompts[1].next_position + 10, caches[1], None
    )
    assert int(logits.argmax()) == alone[1][11]


def test_a_stored_cache_goes_on_as_the_saved_one(
    vlm: VisionLanguageModel, picture: Picture, tmp_path: Path
) -> None:
    prompt = question(vlm, picture, 20)
    cache, logits = filled(vlm, prompt, "rotatek")
    plain = RotateKCache(vlm.model, prompt.inputs(), Settings.of(**FORMS["rotatek"]))
    prefill(vlm, prompt, plain)
    assert cache.save(tmp_path / "one") < plain.save(tmp_path / "two")
    loaded = RotateKCache.load(tmp_path / "one", vlm.model)
    assert loaded.settings == cache.settings
    assert [t.nbytes for _, t in loaded.tensors()] == [t.nbytes for _, t in cache.tensors()]
    for position in range(20):
        args = (logits.argmax(-1), prompt.next_position + position)
        logits, other = (decode_one_token(vlm, *args, each, None) for each in (cache, loaded))
        assert torch.equal(logits, other)


def test_samples_of_a_ragged_batch_follow_their_own_lengths() -> None:
    keys, values = torch.randn(2, 3, 2, 50, 8).unbind(0)
    lengths = torch.tensor([50, 20, 5], dtype=torch.int32)
    whole = TextBuffer(keys, values, lengths, True)
    made = TextBuffer.behind_window(whole, 16)
    made.select(lambda t: t[[2, 0, 1]])
    for row, source in enumerate((2, 0, 1)):
        count = int(lengths[source])
        row_of = slice(source, source + 1)
        own = [each[row_of, :, :count] for each in (keys, values)]
        alone = TextBuffer(own[0], own[1], lengths[row_of], False)
        single = TextBuffer.behind_window(alone, 16)
        assert single.past is not None and made.past is not None
        older = max(count - 16, 0)
        assert torch.equal(single.keys[0][:, : min(count, 16)], made.keys[row][:, : min(count, 16)])
        assert torch.equal(single.past.data[0, :, :older], made.past.data[row, :, :older])


def test_a_text_shorter_than_its_window_keeps_the_window_in_a_file() -> None:
    keys, values = torch.randn(2, 1, 2, 7, 8).unbind(0)
    short = TextBuffer(keys, values, torch.tensor([7], dtype=torch.int32), False)
    made = TextBuffer.behind_window(short, 16)
    (again,) = TextBuffer.all_copied([TextBuffer.of(made.state())])
    for _ in range(30):
        new = torch.randn(2, 1, 2, 1, 8).unbind(0)
        made.append(*new)
        again.append(*new)
    for one, other in zip(made.opened(), again.opened(), strict=True):
        assert torch.equal(one, other)
