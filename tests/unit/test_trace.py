"""A trace: its queries are the answer's, its ingredients one head's own, its size capped."""

import pytest
import torch
from PIL import Image

from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import decode, prefill
from rotatek.engine.engine import Engine
from rotatek.engine.events import Finished
from rotatek.inputs.request import make_request
from rotatek.inputs.token_grid import Grid
from rotatek.inspect import trace_analysis
from rotatek.inspect.trace import Trace, TraceRecorder
from rotatek.methods.settings import BASELINE, Settings


def traced(engine: Engine, settings: Settings, tokens: int) -> tuple[Trace, RotateKCache]:
    """One run by hand: its trace, and the cache it left."""
    torch.manual_seed(0)
    image = Image.effect_noise((168, 112), 90).convert("RGB")
    prompt = engine.vlm.prompt(make_request(image, "Which?", tokens), 4096)
    embedded = engine.vlm.embed(prompt, settings.pruning)
    recorder = TraceRecorder(16)
    cache = RotateKCache(engine.vlm.model, embedded.inputs(), settings, recorder=recorder)
    logits, _ = prefill(engine.vlm, embedded, cache)
    list(decode(engine.vlm, embedded, cache, logits, tokens))
    rows = cache.plan.kept_rows
    kept = None if rows is None else rows[0][prompt.visual[0]].numpy()
    return recorder.finish((Grid(4, 6),), prompt.visual_tokens, kept), cache


def test_answer_queries_give_the_attention_that_decoding_had(engine: Engine) -> None:
    settings = Settings.of(keep_channels=0.25, solver="eigh")  # as the figures find their axes
    trace, cache = traced(engine, settings, 4)
    assert trace.steps == (0, 1, 2, 3)
    for layer, head, step in ((0, 0, 1), (2, 1, 3)):
        view = trace_analysis.attention_view(trace, layer, head, settings.channels, step)
        visual = cache.layers[layer].store.visual
        group = trace.layers[layer].answer.shape[1] // trace.shape[1]
        rows = trace.layers[layer].answer[step - 1, head * group : (head + 1) * group]
        query = torch.from_numpy(rows.astype("float32"))
        small = (query @ visual.basis[0, head].float()) @ visual.keys[0, head].float().T
        scores = (small + (query @ visual.mean[0, head])[:, None]) * query.shape[-1] ** -0.5
        seen = scores.mean(0)[torch.from_numpy(trace.layers[layer].token).long()]
        assert torch.allclose(torch.from_numpy(view.approximate), seen, atol=1e-2)
        assert view.attention.sum() == pytest.approx(1, abs=1e-4)
        assert view.score_error > 0


def test_a_head_s_ingredients_are_its_group_s_and_its_own(engine: Engine) -> None:
    trace, cache = traced(engine, Settings.of(channels="full"), 3)
    assert trace.shape == (4, 2)
    for layer, head in ((0, 0), (3, 1)):
        states, whole = trace.head(layer, head), cache.layers[layer].store.visual.keys[0, head]
        seen = whole[torch.from_numpy(trace.layers[layer].token).long()]
        assert torch.allclose(states.keys, seen, rtol=2e-3, atol=2e-3)
        assert states.queries.shape == (7, trace.layers[layer].queries.shape[1], 32)
        assert torch.allclose(states.mean, whole.mean(0), atol=1e-4)
        centred = whole - whole.mean(0)
        assert torch.allclose(states.covariance, centred.T @ centred, rtol=1e-3, atol=1e-2)
        assert torch.equal(trace.query(layer, head, 0), states.queries[:, -1])


def test_what_follows_the_answer_is_not_recorded(engine: Engine) -> None:
    request = make_request(Image.new("RGB", (112, 112), "teal"), "Which?", 5)
    columns = {"whole": BASELINE, "r": Settings()}
    done = [e for e in engine.compare(request, columns) if isinstance(e, Finished)]
    (trace,) = [e.trace for e in done if e.trace is not None]
    assert len(trace.steps) <= 6 and trace.layers[0].answer.shape[0] == len(trace.steps) - 1
    assert 0 < trace.nbytes < 4_000_000
    recorder = TraceRecorder(8, done=True)
    recorder.layers = [None]  # type: ignore[list-item]
    recorder.step(0, torch.zeros(1, 2, 1, 4))
    assert not recorder.answer.rows and not recorder.answer.steps
