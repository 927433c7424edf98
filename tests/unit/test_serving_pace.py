"""How long a token waits while others' prompts are read, by a clock that only work moves."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from transformers.cache_utils import DynamicCache

from rotatek.attention import decoder_layers
from rotatek.decode import prefill
from rotatek.engine import Engine
from rotatek.events import Token
from rotatek.inputs import make_request
from rotatek.models import Embedded, Prompt, VisionLanguageModel
from rotatek.serving import scheduler
from rotatek.settings import Settings
from tests.fixtures import Picture
from tests.tiny import tiny_qwen

LAYER_S = {"step": 0.001, "prompt": 0.01}
PROMPTS = 5


def test_a_token_waits_for_one_piece_of_a_prompt_at_most(
    picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two steps: a prefill's patience and the layer that it ends in, whoever queues."""
    engine, now, steps = Engine(tiny_qwen()), [0.0], list[float]()
    layers, over = decoder_layers(engine.vlm.model), threading.Event()
    clock = SimpleNamespace(perf_counter=lambda: now[0])
    for module in ("steps", "turns"):
        monkeypatch.setattr(f"rotatek.serving.{module}.time", clock)
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
