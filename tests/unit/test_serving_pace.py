"""The wait of a token while others' prompts are read, by a clock that only work moves."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.cache_utils import DynamicCache

from rotatek.bridge.attention import stoppable
from rotatek.bridge.fitness import decoder_layers
from rotatek.cache import device_timing
from rotatek.cache.device_timing import Pace
from rotatek.engine import scheduler
from rotatek.engine.decode import prefill
from rotatek.engine.device_turns import YieldToDecode
from rotatek.engine.engine import Engine
from rotatek.engine.events import Token
from rotatek.engine.prefill import empty_cache, fill, plan_for
from rotatek.inputs.request import make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import Embedded, Prompt, VisionLanguageModel
from tests.fixtures import Picture
from tests.tiny import tiny_qwen

LAYER_S = {"step": 0.001, "prompt": 0.015}
PROMPTS = 5


def test_a_token_waits_for_one_piece_of_a_prompt_at_most(
    picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two steps: a prefill's patience and the layer that it ends in, for any queue."""
    engine, now, steps = Engine(tiny_qwen()), [0.0], list[float]()
    layers, over = decoder_layers(engine.vlm.model), threading.Event()
    clocks = SimpleNamespace(perf_counter=lambda: now[0])
    for module in ("cache.device_timing", "engine.device_turns"):
        monkeypatch.setattr(f"rotatek.{module}.time", clocks)
    monkeypatch.setattr(scheduler, "LEAST_S", {})
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", frozenset())
    mine, turns = threading.current_thread(), engine.scheduler._turns

    def is_step() -> bool:
        return threading.current_thread() is mine

    def work(*_: Any) -> None:
        while not (is_step() or turns.contended or over.is_set()):
            time.sleep(0.0005)  # until the next token is asked for
        now[0] += LAYER_S["step" if is_step() else "prompt"]

    def read(prompt: Prompt) -> None:
        with engine.scheduler.prefill(None):
            embedded: Embedded = engine.vlm.embed(prompt)
            prefill(engine.vlm, embedded, DynamicCache())

    for layer in layers:
        layer.register_forward_pre_hook(work)
    layers[-1].register_forward_hook(lambda *_: steps.append(now[0]) if is_step() else None)
    prompts = [
        engine.vlm.prompt(make_request(picture(90, 120, seed=n), f"question {n}", 1))
        for n in range(PROMPTS)
    ]
    threads = [threading.Thread(target=read, args=(prompt,)) for prompt in prompts]
    count = 2 * PROMPTS * len(layers)
    request = make_request(picture(90, 120, seed=9), "and mine?", count)
    for event in engine.compare(request, {"x": Settings.of(keep_channels=0.25)}):
        if isinstance(event, Token) and not threads[0].ident:
            for thread in threads:
                thread.start()
    over.set()
    for thread in threads:
        thread.join(60)
    step = len(layers) * LAYER_S["step"]
    waits = [after - before - step for before, after in zip(steps, steps[1:], strict=False)]
    held = [wait for wait in waits[1:] if wait > step / 2]
    assert len(held) >= PROMPTS * (len(layers) - 1)  # prompts really were read in between
    assert max(held) <= scheduler.SHARE * step + LAYER_S["prompt"] + 1e-6
    assert max(held) < len(layers) * LAYER_S["prompt"]  # a whole prompt, were it not in pieces


class Device:
    """A GPU as far as clocks go: what is launched is done one after the other, beside the host."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.done = 0.0
        device = self

        class Event:
            def __init__(self, **_: Any) -> None:
                self.at = 0.0

            def record(self, *_: Any) -> None:
                self.at = device.done

            def synchronize(self) -> None:
                device.now = max(device.now, self.at)

        cuda = SimpleNamespace(Event=Event, current_stream=lambda _: None)
        cuda.synchronize = lambda *_: setattr(device, "now", max(device.now, device.done))
        monkeypatch.setattr(device_timing, "torch", SimpleNamespace(cuda=cuda))

    def launch(self, host: float, work: float) -> None:
        self.now += host
        self.done = max(self.done, self.now) + work


@pytest.mark.parametrize(("host", "work"), [(1.0, 1.0), (0.5, 2.0), (2.0, 0.5)])
def test_the_host_launches_while_the_device_works(
    host: float, work: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is slower sets the pace, and the device is never behind by more than a layer."""
    device, layers = Device(monkeypatch), 40
    pace = Pace(torch.device("cuda"))
    for _ in range(layers):
        device.launch(host, work)
        pace.follow()
        assert device.done - device.now <= work + 1e-9
    pace.wait()
    assert device.now <= layers * max(host, work) + min(host, work) + 1e-9


def test_a_prefill_gets_its_share_behind_the_step_that_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The step before it does not count as its own time, and others wait for a layer more at
    most."""
    device, step, work, gone = Device(monkeypatch), 8.0, 1.0, list[float]()
    monkeypatch.setattr(
        "rotatek.engine.device_turns.time", SimpleNamespace(perf_counter=lambda: device.now)
    )

    def give_way() -> None:
        assert device.done <= device.now
        gone.append(device.now)
        device.launch(0.1, step)

    turns = SimpleNamespace(contended=True, __exit__=give_way, __enter__=lambda: None)
    device.launch(0.1, step)
    patience = scheduler.SHARE * step + step
    steps = YieldToDecode(turns, lambda: patience, Pace(torch.device("cuda")))  # type: ignore[arg-type]
    for _ in range(200):
        device.launch(0.5, work)
        steps.checkpoint()
    turned = [after - before for before, after in zip([0.0, *gone], gone, strict=False)]
    assert len(gone) > 5 and max(turned) <= patience + 2 * work + 0.1 + 1e-9
    assert 200 * work / device.now > 0.9 * scheduler.SHARE / (scheduler.SHARE + 1)


@pytest.mark.parametrize("settings", [{"keep_channels": 0.25}, {"smaller": 4}])
def test_others_go_ahead_while_layers_are_compressed(
    settings: dict[str, float], picture: Picture
) -> None:
    """A prefill gives way in every layer, and once more before what all layers share is done."""
    vlm, looks = tiny_qwen(), [0]

    def look() -> bool:
        looks[0] += 1
        return False

    embedded = vlm.embed(vlm.prompt(make_request(picture(90, 120), "?", 1)))
    found = []
    for kind in (BASELINE, Settings.of(**settings)):
        plan, looks[0] = plan_for(vlm, embedded, kind.pruning), 0
        with stoppable(SimpleNamespace(is_set=look)):
            fill(vlm, embedded, plan, [empty_cache(vlm, embedded, kind, plan)])
        found.append(looks[0])
    assert found == [plan.layers, plan.layers + len(settings) + ("smaller" in settings)]
