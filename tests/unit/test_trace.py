"""A trace: its queries are the answer's, its bytes the cache's, and its size is capped."""

import pytest
import torch
from PIL import Image

from rotatek.cache.compressed import RotateKCache
from rotatek.decode import decode, prefill
from rotatek.engine import Engine
from rotatek.events import Finished
from rotatek.inputs import make_request
from rotatek.settings import BASELINE, Settings
from rotatek.trace import MAX_STEPS, Trace, TraceRecorder
from tests.tiny import tiny_qwen


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(tiny_qwen())


def traced(engine: Engine, settings: Settings, tokens: int) -> tuple[Trace, RotateKCache]:
    """One run by hand: its trace, and the cache it left."""
    torch.manual_seed(0)
    image = Image.effect_noise((168, 112), 90).convert("RGB")
    prompt = engine.vlm.prompt(make_request(image, "Which?", tokens), 4096)
    embedded = engine.vlm.embed(prompt, settings.tokens)
    recorder = TraceRecorder(16)
    cache = RotateKCache(
        engine.vlm.model, embedded.inputs(), settings, recorder=recorder, metrics=engine.vlm.metrics
    )
    logits, _ = prefill(engine.vlm, embedded, cache)
    list(decode(engine.vlm, embedded, cache, logits, tokens))
    rows = cache.plan.kept_rows
    kept = None if rows is None else rows[0][prompt.visual[0]].numpy()
    return recorder.finish(((4, 6),), prompt.visual_tokens, kept), cache


BYTES = [
    Settings.of(keep_channels=0.25),
    Settings.of(tokens="fastv", keep_tokens=0.5, keep_channels=0.5),
    Settings.of(keep_channels=0.25, widths="adaptive"),
    Settings.of(keep_channels=0.5, values="rotate", keep_values=0.25),
    Settings.of(keep_channels=0.25, widths="adaptive", values="rotate", keep_values=0.5),
    Settings.of(keep_channels=0.25, cache_dtype="int8"),
    Settings.of(keep_channels=0.25, widths="adaptive", values="rotate", cache_dtype="int8"),
]


@pytest.mark.parametrize("settings", BYTES)
def test_the_map_of_bytes_is_the_cache_to_the_byte(engine: Engine, settings: Settings) -> None:
    trace, cache = traced(engine, settings, 2)
    parts = cache.bytes().parts
    held = parts["visual_keys"] + parts["visual_values"] + parts["bases"]
    assert trace.bytes_map(settings).sum() == held


def test_adaptive_widths_are_the_cache_s_own(engine: Engine) -> None:
    settings = Settings.of(keep_channels=0.25, widths="adaptive")
    trace, cache = traced(engine, settings, 2)
    stored = [layer.store.visual.key_widths[0].tolist() for layer in cache.layers]
    assert trace.widths(settings).tolist() == stored
    assert (trace.widths(Settings.of(keep_channels=0.25)) == 8).all()


def test_answer_queries_give_the_attention_that_decoding_had(engine: Engine) -> None:
    settings = Settings.of(keep_channels=0.25, solver="eigh")  # as the figures find their axes
    trace, cache = traced(engine, settings, 4)
    assert trace.steps == (0, 1, 2, 3)
    for layer, head, step in ((0, 0, 1), (2, 1, 3)):
        look = trace.look(layer, head, settings, step)
        visual = cache.layers[layer].store.visual
        group = trace.layers[layer].answer.shape[1] // trace.shape[1]
        rows = trace.layers[layer].answer[step - 1, head * group : (head + 1) * group]
        query = torch.from_numpy(rows.astype("float32"))
        small = (query @ visual.basis[0, head].float()) @ visual.keys[0, head].float().T
        scores = (small + (query @ visual.mean[0, head])[:, None]) * query.shape[-1] ** -0.5
        seen = scores.mean(0)[torch.from_numpy(trace.layers[layer].token).long()]
        assert torch.allclose(torch.from_numpy(look.approximate), seen, atol=1e-2)
        assert look.attention.sum() == pytest.approx(1, abs=1e-4)
        assert look.score_error > 0


def test_a_long_answer_is_thinned_and_the_size_stays_capped() -> None:
    recorder = TraceRecorder(16)
    recorder.layers, recorder.answer = [None, None], [[], []]  # type: ignore[list-item]
    for token in range(1, 1001):
        for layer in range(2):
            recorder.step(layer, torch.full((1, 2, 1, 4), float(token)))
        assert len(recorder.answer[0]) == len(recorder.numbers) <= MAX_STEPS
    assert recorder.stride == 16 and recorder.numbers[:3] == [16, 32, 48]
    assert [row[0, 0].item() for row in recorder.answer[1]] == recorder.numbers


def test_what_follows_the_answer_is_not_recorded(engine: Engine) -> None:
    request = make_request(Image.new("RGB", (112, 112), "teal"), "Which?", 5)
    columns = {"whole": BASELINE, "r": Settings()}
    done = [e for e in engine.compare(request, columns) if isinstance(e, Finished)]
    (trace,) = [e.trace for e in done if e.trace is not None]
    assert len(trace.steps) <= 6 and trace.layers[0].answer.shape[0] == len(trace.steps) - 1
    assert 0 < trace.nbytes < 4_000_000
    recorder = TraceRecorder(8, done=True)
    recorder.answer = [[]]
    recorder.step(0, torch.zeros(1, 2, 1, 4))
    assert recorder.answer == [[]]
