"""Records of an answer: a trace's figures and a column's attention agree with the caches."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from kernels.reference import Narrow, Text, attend_reference, project_query
from rotatek import BASELINE, Engine, RotateKCache, Settings, make_request
from rotatek.bridge.attention import watched
from rotatek.engine.conversation import Conversation
from rotatek.engine.decode import prefill
from rotatek.engine.events import Event, Finished
from rotatek.inputs.token_grid import Grid
from rotatek.inspect import trace_analysis
from rotatek.inspect.answer_attention import AnswerAttention, AnswerAttentionRecorder, weights
from rotatek.inspect.trace import Trace, TraceRecorder
from rotatek.methods.channels import CHANNELS, ChannelMethod, RotateK, SparK
from tests.families import EVERY
from tests.fixtures import Picture, present
from tests.greedy import decode

D = 32  # of the tiny model's heads


METHODS = [
    # OSCAR turns a layer's heads alike, which no head's figure knows
    *(kind() for kind in CHANNELS.values() if kind.name != "oscar"),
    RotateK(weighting="none"),
    SparK(recovery="mean"),
]


def traced(engine: Engine, settings: Settings, tokens: int = 2) -> tuple[Trace, RotateKCache]:
    """One run by hand: its trace of every visual token, and the cache it left."""
    noise = np.random.default_rng(3).integers(0, 255, (6, 4, 3), dtype=np.uint8)
    image = Image.fromarray(noise).resize((112, 168))
    prompt = engine.vlm.prompt(make_request(image, "Which?", tokens), 4096)
    embedded = engine.vlm.embed(prompt, settings.pruning)
    recorder = TraceRecorder(512)
    cache = RotateKCache(engine.vlm.model, embedded.inputs(), settings, recorder=recorder)
    queries = AnswerAttentionRecorder.of(cache.plan.layers, every=True)
    with watched(queries):
        logits, _ = prefill(engine.vlm, embedded, cache)
        list(decode(engine.vlm, embedded, cache, logits, tokens))
    return recorder.finish((Grid(6, 4),), prompt.visual_tokens, None, queries.recorded), cache


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_heads_scores_and_masks_are_those_of_a_real_cache(
    engine: Engine, method: ChannelMethod
) -> None:
    stored = method.with_keep(0.25)
    if isinstance(stored, RotateK):  # a basis that figures too find in the end
        stored = RotateK(0.25, stored.weighting, solver="eigh")
    trace, cache = traced(engine, Settings(channels=stored))
    k = round(D * stored.key_share)
    generator = torch.Generator().manual_seed(0)
    for layer, head in ((0, 1), (2, 0), (3, 1)):
        visual = cache.layers[layer].store.read()
        query = torch.randn(1, visual.values.shape[1], 1, 5, D, generator=generator)
        projected, bias = project_query(query, visual)
        scores = projected @ visual.keys[:, :, None].transpose(-1, -2)
        if bias is not None:
            scores = scores + bias.reshape(*scores.shape[:-1], 1)
        states = trace.head(layer, head)
        shown = query[0, head, 0] @ method.reconstruction(states, k).T
        # a trace holds Keys in float16
        off = (shown - scores[0, head, 0]).norm() / scores[0, head, 0].norm()
        assert off < 2e-2, (layer, head, float(off))
        for most in (1, k, D) if stored.drops_channels else ():
            one = stored.with_keep(most / D).for_figures().compress(states.as_layer())
            mask = trace_analysis.masks(trace, layer, head, {"it": stored}, most)["it"]
            assert mask.shape == states.keys.shape and (mask.sum(1) == most).all()
            assert isinstance(one.visual, Narrow) and mask.sum() == one.visual.keys.numel()


def test_answer_queries_give_the_attention_that_decoding_had(engine: Engine) -> None:
    settings = Settings.of(keep_channels=0.25, solver="eigh")  # as the figures find their axes
    trace, cache = traced(engine, settings, 4)
    assert trace.steps == (0, 1, 2, 3)
    for layer, head, step in ((0, 0, 1), (2, 1, 3)):
        view = trace_analysis.attention_view(trace, layer, head, settings.channels, step, D // 4)
        visual = cache.layers[layer].store.visual
        group = trace.layers[layer].answer.shape[1] // trace.shape[1]
        rows = trace.layers[layer].answer[step - 1, head * group : (head + 1) * group]
        query = torch.from_numpy(rows.astype("float32"))
        small = (query @ visual.basis[0, head].float()) @ visual.keys[0, head].float().T
        scores = (small + (query @ visual.mean[0, head])[:, None]) * query.shape[-1] ** -0.5
        assert torch.allclose(torch.from_numpy(view.approximate), scores.mean(0), atol=1e-2)
        assert view.attention.sum() == pytest.approx(1, abs=1e-4) and view.score_error > 0
    whole = trace_analysis.attention_view(trace, 1, 1, RotateK(1.0), 0, D)
    assert whole.score_error < 1e-3


def finished(events: list[Event]) -> dict[str, Finished]:
    return {event.column: event for event in events if isinstance(event, Finished)}


def test_weights_are_those_of_the_attention() -> None:
    """Values that name their token turn the attention's output into its weights."""
    torch.manual_seed(0)
    d, text, visual = 16, 4, 9
    keys, queries = torch.randn(1, 2, visual + text, d), torch.randn(1, 4, 3, d)
    names = torch.eye(d)[None, None, : visual + text].expand(1, 2, -1, -1)
    parts = [(part[:, :, :visual], part[:, :, visual:]) for part in (keys, names)]
    seen = Narrow(parts[0][0], parts[1][0])
    others = Text(parts[0][1], parts[1][1])
    found = weights(queries[0], seen, others, steps=(0, 1, 2), fed=2)
    expected = attend_reference(queries, seen, others, d**-0.5)[0, :, :, :visual].mean(0)
    assert np.allclose(found, expected.numpy(), atol=1e-6)


def rows(seen: AnswerAttention | None) -> NDArray[np.float64]:
    return present(seen).cells.astype(float) / 255


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_5"])
def test_every_method_attends_where_its_own_cache_leads(family: str, picture: Picture) -> None:
    """A further question has attention of its own."""
    engine, talk = Engine(EVERY[family]()), Conversation()
    columns = {"plain": BASELINE, "lossless": Settings.of(keep_channels=1.0)} | {
        name: Settings.of(tokens="fastv", keep_tokens=0.4, channels=name) for name in CHANNELS
    }
    request = make_request(picture(150, 120, seed=1), "Which?", 6)
    found = finished(list(engine.compare(request, columns, conversation=talk)))
    seen = {name: rows(event.attention) for name, event in found.items()}
    assert np.abs(seen["plain"] - seen["lossless"]).max() < 0.02
    for name, one in seen.items():
        assert one.shape == (len(present(found[name].attention).steps), seen["plain"].shape[1])
        assert (one.max(axis=1) == 1).all()
    assert (seen["plain"] == 0).all(0).mean() < (seen["full"] == 0).all(0).mean()
    later = finished(list(engine.follow(talk, "And which?", 6)))
    for name in ("plain", "rotatek"):
        assert present(later[name].attention).steps[0] == 0
        assert not np.array_equal(rows(later[name].attention), seen[name])
    talk.close()
