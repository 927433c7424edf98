"""Records of an answer: a trace's figures and a column's attention agree with the caches."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from kernels.reference import Narrow, project_query
from rotatek import BASELINE, Engine, FastV, KeepAll, RotateK, RotateKCache, Settings, make_request
from rotatek.bridge.scope import own_calls
from rotatek.engine.conversation import Conversation
from rotatek.engine.damage import damages
from rotatek.engine.events import Event, Finished, Token
from rotatek.engine.passes import prefill
from rotatek.inputs.request import Request
from rotatek.inputs.token_grid import Grid
from rotatek.inspect import trace_analysis
from rotatek.inspect.answer_attention import AnswerAttention, AnswerAttentionRecorder
from rotatek.inspect.trace import Trace, TraceRecorder
from rotatek.methods.channels import CHANNELS, ChannelMethod, SparK
from rotatek.methods.channels.what_if import WhatIf
from tests.families import EVERY
from tests.fixtures import Picture, decode, present, tokens_of
from tests.tiny import tiny_qwen

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
    with own_calls(queries=queries):
        logits, _ = prefill(engine.vlm, embedded, cache)
        list(decode(engine.vlm, embedded, cache, logits, tokens))
    return recorder.finish((Grid(6, 4),), prompt.visual_tokens, None, queries), cache


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


# -- what if only some heads were compressed, and how much each one hurts ----------------------

RANK = 4  # of one head's Keys: two channels, which rotary positions turn with their partners
LAYER, HEAD = 2, 1


@pytest.fixture(scope="module")
def narrow() -> Engine:
    """A tiny model, one of whose heads has Keys of few directions."""
    vlm = tiny_qwen()
    attention = vlm.model.model.language_model.layers[LAYER].self_attn
    with torch.no_grad():
        rows = torch.arange(32 * HEAD + RANK // 2, 32 * HEAD + 16)
        for part in (attention.k_proj.weight, attention.k_proj.bias):
            part[rows] = part[rows + 16] = 0
    return Engine(vlm)


@pytest.fixture
def request_(picture: Callable[..., Image.Image]) -> Request:
    return make_request(picture(168, 112), "Which?", 24)


@pytest.mark.parametrize("pruner", [KeepAll(), FastV(keep=0.5)])
@pytest.mark.parametrize("keep", [0.25, 0.5])
def test_with_every_head_it_is_the_real_cache(
    narrow: Engine, request_: Request, pruner: KeepAll | FastV, keep: float
) -> None:
    like = RotateK(keep=keep)
    columns = {"real": Settings(pruner, like), "none": Settings(pruner, WhatIf(like))}
    columns["every"] = Settings(pruner, WhatIf(like, whole=True))
    heads = frozenset((layer, head) for layer in range(4) for head in range(2))
    columns["named"] = Settings(pruner, WhatIf(like, heads))
    said = tokens_of(narrow.compare(request_, {"full": BASELINE, **columns}))
    assert said["every"] == said["real"] == said["named"]
    assert said["none"] == said["full"] or pruner.kept_share < 1
    assert said["real"] != said["full"], "compression has to change something for this to show"


def test_a_head_of_no_more_directions_than_are_kept_has_no_damage(
    narrow: Engine, request_: Request
) -> None:
    like, answer = RotateK(keep=RANK / 32), tokens_of(narrow.compare(request_, {"x": BASELINE}))
    found = {one[:2]: one.kl for one in damages(narrow, request_, like, answer["x"])}
    assert list(found) == [(layer, head) for layer in range(4) for head in range(2)]
    spared = found.pop((LAYER, HEAD))
    assert spared < 1e-6 and all(kl > 100 * spared and kl > 1e-5 for kl in found.values())


def test_damage_is_what_the_column_of_that_head_loses(narrow: Engine, request_: Request) -> None:
    like, head = RotateK(keep=0.25), (1, 0)
    column = Settings(channels=WhatIf(like, frozenset({head})))
    events = narrow.compare(request_, {"full": BASELINE, "only": column})
    told = [(e.token_id, e.kl) for e in events if isinstance(e, Token) and e.kl is not None]
    agreed = [token for token, _ in told]
    one = next(one for one in damages(narrow, request_, like, agreed[:-1]) if one[:2] == head)
    lost = sum(kl for _, kl in told) / (len(told) - 1)  # the first one lost nothing
    assert one.kl == pytest.approx(lost, rel=1e-3, abs=1e-7)
