"""Rows that differ in size from head to head: digits of many bits, heads of many widths."""

import random
from collections.abc import Iterator

import pytest
import torch
from PIL import Image
from transformers.cache_utils import DynamicCache

from rotatek.engine import decode
from rotatek.engine.batch import RunningBatch
from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Token
from rotatek.inputs.request import make_request
from rotatek.models import VisionLanguageModel
from tests.ragged import KINDS, ROOM, Alone, filled
from tests.tiny import tiny_qwen


@pytest.fixture(scope="module")
def vlm() -> VisionLanguageModel:
    return tiny_qwen()


@torch.inference_mode()
def step(vlm: VisionLanguageModel, batch: RunningBatch, rows: dict[int, Alone]) -> None:
    """One token for each row in the batch and alone: the same one."""
    here = [None if number is None else rows[number] for number in batch.order]
    zero = torch.zeros(1, dtype=torch.long)
    token = torch.cat([zero if one is None else one.token for one in here])
    place = torch.cat([zero if one is None else one.position for one in here])
    together = decode.decode_one_token(vlm, token, place, batch, None)
    batch.stepped()
    for row, one in zip(together, here, strict=True):
        if one is not None:
            own = decode.decode_one_token(vlm, one.token, one.position, one.cache, None)
            torch.testing.assert_close(row[None], own, atol=2e-3, rtol=2e-3)
            one.token, one.position = own.argmax(-1), one.position + 1
            assert int(row.argmax()) == int(one.token)


@pytest.mark.parametrize("frozen", [False, True], ids=["grown", "frozen"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_come_and_go_at_random(vlm: VisionLanguageModel, kind: str, frozen: bool) -> None:
    """In one group, whatever their sizes are: every step says what each row says alone, and who
    leaves takes along exactly what he brought and was given."""
    batch, chance = RunningBatch(DynamicCache(config=vlm.model.config)), random.Random(7)
    batch.static = frozen
    rows: dict[int, Alone] = {}
    for number in range(20):
        if len(rows) > 2 and chance.random() < 0.5:
            gone = chance.choice(list(rows))
            one, back = rows.pop(gone), filled(vlm, KINDS[kind], 0).cache
            batch.leave([gone], {gone: back})
            for (name, mine), (_, its) in zip(one.cache.tensors(), back.tensors(), strict=True):
                if name != "text":  # which may have other spare slots
                    assert torch.equal(mine, its), name
            assert back.get_seq_length() == one.cache.get_seq_length()
        joins = filled(vlm, KINDS[kind], number)
        ((row,),) = batch.join([filled(vlm, KINDS[kind], number).cache], ROOM if frozen else 0)
        rows[row] = joins
        step(vlm, batch, rows)
    assert len(batch.layers[0].groups) <= 2  # all but what is twice as large
    batch.leave(list(rows))
    assert batch.bytes == len(batch) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_room_that_is_given_back_is_nobodys(vlm: VisionLanguageModel, kind: str) -> None:
    """Under a graph, too: rows move together, say what they say alone, and are all that a step
    computes, up to the next size of a group."""
    batch, rows = RunningBatch(DynamicCache(config=vlm.model.config)), dict[int, Alone]()
    batch.freeze()
    joined = batch.join([filled(vlm, KINDS[kind], 3 * n).cache for n in range(7)], ROOM)
    for number, (row,) in enumerate(joined):
        rows[row] = filled(vlm, KINDS[kind], 3 * number)
    step(vlm, batch, rows)
    width, held = len(batch.order), batch.bytes
    gone = [row for number, row in enumerate(rows) if number not in (1, 4, 6)]
    for row in gone:
        del rows[row]
    batch.leave(gone)
    assert len(batch.order) == width
    batch.shrink()
    assert len(batch.order) <= 4 < width and batch.bytes < 0.6 * held
    for _ in range(3):
        step(vlm, batch, rows)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Answers end at their limit alone."""
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", frozenset())
    yield


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_goes_on_from_a_row_that_left(vlm: VisionLanguageModel, kind: str) -> None:
    """A second question, beside another visitor's row and alone."""
    image = Image.new("RGB", (140, 168), "red")
    image.paste("blue", (40, 40, 90, 120))
    first = make_request(image, "What is it?", 6)
    columns = {"x": KINDS[kind]}
    found = []
    for crowded in (True, False):
        engine, talk = Engine(vlm), Conversation()
        other = engine.compare(make_request(image.rotate(90), "And this?", 40), columns)
        for _ in range(6 if crowded else 0):
            next(other)
        told = [*engine.compare(first, columns, conversation=talk)]
        told += engine.follow(talk, "And then?", 6)
        said = [event.token_id for event in told if isinstance(event, Token)]
        found.append(said)
        other.close()  # type: ignore[attr-defined]
        talk.close()
        assert engine.state().live_bytes == engine.scheduler.bytes == 0
    assert found[0] == found[1] and len(found[0]) == 12
