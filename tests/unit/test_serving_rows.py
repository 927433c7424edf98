"""Caches decoded side by side: under a graph's rules, and in the company of others."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.cache_utils import Cache, DynamicCache

from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine import rows
from rotatek.engine.batch import RunningBatch
from rotatek.engine.decode import prefill
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from rotatek.models.base import Embedded, collate
from tests.launches import Launches
from tests.tiny import TINY
from tests.trial import Trial

STORED = [
    Settings.of(channels="spark", keep_channels=0.25),
    Settings.of(keep_channels=0.25),
    Settings.of(tokens="fastv", fastv_layer=1, keep_tokens=0.3, channels="think"),
    Settings.of(tokens="snapkv", keep_tokens=0.4, smaller=4),
]
LIMIT = 53


@pytest.fixture(params=sorted(TINY))
def vlm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> VisionLanguageModel:
    """A random model whose answers end now and then."""
    made = TINY[request.param]()
    ends = frozenset(range(0, made.text_config.vocab_size, 23))
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", property(lambda _: ends))
    return made


@pytest.fixture
def batch(vlm: VisionLanguageModel) -> Embedded:
    """Three questions of unequal length."""
    pixels = np.random.default_rng(3).integers(0, 256, (28, 35, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels).resize((280, 224))
    asked = ("Total?", "What is the name?", "How many items are there?")
    return collate([vlm.embed(vlm.prompt(make_request(picture, text, LIMIT))) for text in asked])


def run(vlm: VisionLanguageModel, batch: Embedded, chosen: list[Settings], graph: bool) -> Any:
    caches: list[Cache] = []
    logits = []
    for settings in chosen:
        cache = RotateKCache(vlm.model, batch.inputs(), settings)
        logits.append(prefill(vlm, batch, cache)[0])
        caches.append(cache)
    position = batch.next_position.repeat(len(chosen))
    decoded = rows.decode_caches(vlm, caches, torch.cat(logits), position, LIMIT, graph=graph)
    said = dict(decoded)
    return [said[part] for part in range(len(chosen))]


@pytest.mark.parametrize("compiled", [0, LIMIT], ids=["rows leave", "caches leave"])
def test_a_captured_step_says_the_same(
    vlm: VisionLanguageModel, batch: Embedded, monkeypatch: pytest.MonkeyPatch, compiled: int
) -> None:
    """Blocks of replays, a limit inside a block, static buffers, and rows or whole caches that
    leave, which the captured steps then no longer compute."""
    Trial.made = []
    computed: list[int] = []
    allocate = rows.GreedyRows._allocate

    def counted(greedy: rows.GreedyRows) -> None:
        allocate(greedy)
        computed.append(len(greedy.batch.order))

    monkeypatch.setattr(rows.GreedyRows, "_allocate", counted)
    monkeypatch.setattr(rows, "captured", Trial)
    monkeypatch.setattr(rows, "WORTH", 0)
    monkeypatch.setattr(rows, "COMPILED", compiled)
    alone = [run(vlm, batch, [settings], False)[0] for settings in STORED]
    computed.clear()
    assert run(vlm, batch, STORED, True) == alone
    assert len(Trial.made) > 1 and computed[-1] < computed[0]
    assert run(vlm, batch, STORED, False) == alone
    assert len({len(tokens) for part in alone for tokens in part}) > 3


def test_rows_come_and_go_without_moving_anything(vlm: VisionLanguageModel) -> None:
    """What a captured graph lives on: forty arrivals and departures leave every address as it is,
    a join copies the new row alone, and a departure is one transfer."""
    settings = Settings.of(keep_channels=0.25)
    image = Image.fromarray(np.random.default_rng(3).integers(0, 256, (84, 84, 3), dtype=np.uint8))
    embedded = vlm.embed(vlm.prompt(make_request(image, "Total?", LIMIT)))

    def filled() -> RotateKCache:
        cache = RotateKCache(vlm.model, embedded.inputs(), settings)
        prefill(vlm, embedded, cache)
        return cache

    batch = RunningBatch(DynamicCache(config=vlm.model.config))
    batch.freeze()
    here = [number for (number,) in batch.join([filled() for _ in range(6)], LIMIT)]
    moved, width = batch.moved, len(batch.order)
    for turn in range(40):
        with Launches() as left:
            batch.leave([here.pop(turn % 5)])
        cache = filled()
        with Launches() as joined:
            here += batch.join([cache], LIMIT)[0]
        assert left.count <= 2
        assert joined.count <= 6 * len(batch.layers) + 4
    assert batch.moved == moved and len(batch.order) == width and len(batch) == 6
    batch.leave(here)
    assert batch.bytes == 0
