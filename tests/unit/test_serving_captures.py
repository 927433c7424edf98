"""The number of captures of a step while many visitors come and go, and that a captured step serves
them all. Steps are recorded in place of CUDA graphs (`tests.recorded`)."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.cache_utils import DynamicCache

from rotatek.bridge.fitness import decoder_layers
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.batch import RunningBatch
from rotatek.engine.prefill import empty_cache, fill, plan_for
from rotatek.engine.row_group import RowGroup
from rotatek.engine.scheduler import Scheduler
from rotatek.engine.sequences import Sequence
from rotatek.inputs.request import make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from tests.tiny import tiny_qwen

CLIENTS = 64
MIXED = [
    BASELINE,
    Settings.of(keep_channels=0.25),
    Settings.of(smaller=8),
]
# Sizes are 4, 16, 32 and 64 rows; pictures of 20 to 60 tokens and two lengths of text.
MOST = {"one setting": 5, "bits": 5, "mixed": 10}
EXPECTED = {"one setting": 3, "bits": 3, "mixed": 10}  # capacity is made for a dozen at once


class Passes:
    """The number of runs of a model's layers: a replay runs none of them."""

    def __init__(self, vlm: VisionLanguageModel) -> None:
        self.count = 0
        decoder_layers(vlm.model)[0].register_forward_pre_hook(self.one_more)

    def one_more(self, *_: Any) -> None:
        self.count += 1


class Idle:
    """A captured step whose replay computes nothing: what is left is the scheduler's own work."""

    made: list["Idle"] = []

    def __init__(self, device: torch.device, work: Callable[[], None]) -> None:
        work()
        self.replays = 0
        Idle.made.append(self)

    def replay(self) -> None:
        self.replays += 1


def seat(vlm: VisionLanguageModel, number: int, settings: Settings) -> Sequence:
    """A visitor with a picture, a question and an answer's length of his own."""
    chance = random.Random(number)
    noise = np.random.default_rng(number).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    size = (28 * chance.randint(5, 10), 28 * chance.randint(4, 6))
    words, limit = " ".join(["word"] * chance.randint(1, 20)), chance.randint(8, 24)
    image = Image.fromarray(noise).resize(size)
    embedded = vlm.embed(vlm.prompt(make_request(image, words, limit)))
    plan = plan_for(vlm, embedded, settings.pruning)
    cache = empty_cache(vlm, embedded, settings, plan)
    logits, _ = fill(vlm, embedded, plan, [cache])
    if isinstance(cache, RotateKCache):
        cache.release_steps()
    made = Sequence(str(number), settings, cache, plan, embedded, request=number)
    made.start(logits, limit)
    return made


def served(scheduler: Scheduler, seats: list[Sequence]) -> list[list[int]]:
    """One comes after every second step, and all are answered to their ends."""
    said: list[list[int]] = [[] for _ in seats]
    for count in range(1, len(seats) + 200):
        if count <= len(seats):
            scheduler.join([seats[count - 1]])
        for _ in range(2):
            for number, one in enumerate(seats[:count]):
                pick = None if one.ended and not one.sampled else scheduler.next(one)
                said[number] += [] if pick is None else [pick.token]
    return said


@pytest.mark.parametrize(("expected", "most"), [(0, MOST), (12, EXPECTED)], ids=["0", "12"])
@pytest.mark.parametrize("kind", MOST)
def test_captures_are_few_and_serve_everybody(
    kind: str, expected: int, most: dict[str, int], recorded: list,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """64 clients with pictures, questions and answers of mixed lengths, up to a dozen at a time."""
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", frozenset())
    vlm = tiny_qwen()
    settings = {"one setting": MIXED[1:2], "bits": MIXED[2:3], "mixed": MIXED}[kind]
    chosen = [settings[number % len(settings)] for number in range(CLIENTS)]
    scheduler = Scheduler(vlm, expected=lambda: expected)
    scheduler.graphs = True
    seats = [seat(vlm, n, one) for n, one in enumerate(chosen)]
    passes = Passes(vlm)
    said = served(scheduler, seats)
    done, replays = scheduler.counters, sum(graph.replays for graph in recorded)
    assert scheduler.captures == len(recorded) <= most[kind]
    # A step is recorded, and not run once more before.
    assert passes.count == done.steps - replays + scheduler.captures
    assert replays > 0.6 * done.steps
    assert done.failed == done.shed == scheduler.running == scheduler.bytes == 0
    for number in range(0, CLIENTS, 7):
        alone = Scheduler(vlm)
        assert served(alone, [seat(vlm, number, chosen[number])])[0] == said[number]


def test_places_for_those_who_are_expected_cost_nobody_his_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many are admitted: capacity for all at once, 64 at most, or where memory is missing for who
    is here, who says the same."""
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", frozenset())
    vlm, fit = tiny_qwen(), RowGroup.fit

    def full(self: RowGroup, alike: Any, room: int, coarse: bool, growth: float = 1.0) -> int:
        if growth > 1.0:
            fit(self, alike[:1], room, coarse)  # some layers have moved by then
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return fit(self, alike, room, coarse, growth)

    answers = []
    for there, expected, places in ((fit, 12, 16), (fit, 200, 64), (full, 200, 4)):
        monkeypatch.setattr(RowGroup, "fit", there)
        scheduler = Scheduler(vlm, expected=partial(int, expected))
        batch = scheduler._batch = RunningBatch(DynamicCache(config=vlm.model.config))
        batch.freeze()
        one = seat(vlm, 0, MIXED[1])
        scheduler.join([one])
        assert len(batch.order) == places
        answers.append([pick.token for pick in iter(partial(scheduler.next, one), None)])
    assert answers[0] == answers[1] == answers[2]
