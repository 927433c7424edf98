"""Tokens that every head chooses for itself: formulas, stores of heads, attention over them."""

import math

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from kernels.reference import Text
from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Failed, Finished, Prefilled
from rotatek.inputs.request import make_request
from rotatek.methods.channels import CHANNELS, LayerStates
from rotatek.methods.settings import BASELINE, Settings
from rotatek.methods.tokens import AdaKV, SnapKV
from rotatek.methods.tokens.adakv import head_counts
from rotatek.methods.tokens.by_head import HeadPruner, HeadStores, pooled, window_attention
from rotatek.methods.tokens.snapkv import best, worth
from tests.fixtures import Picture
from tests.tiny import scramble, tiny_qwen

HEADS, GROUP, W, D, N, M = 2, 3, 4, 16, 40, 20
LENGTHS, SPOKEN = (40, 25), (20, 12)


def states() -> LayerStates:
    """One layer of two samples, padded, whose window is the end of its text."""
    generator = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> Tensor:
        return 2 * torch.randn(*shape, generator=generator)

    alive = torch.tensor([[True] * W, [False, *[True] * (W - 1)]])
    keys, values = draw(2, HEADS, N, D), draw(2, HEADS, N, D)
    keys[1, :, LENGTHS[1] :] = values[1, :, LENGTHS[1] :] = 0
    text = Text(draw(2, HEADS, M, D), draw(2, HEADS, M, D), torch.tensor(SPOKEN))
    queries = draw(2, HEADS * GROUP, W, D)
    return LayerStates(keys, values, torch.tensor(LENGTHS), queries, alive, 0, text=text)


def plain_attention(layer: LayerStates, sample: int, head: int) -> list[float]:
    """SnapKV's votes of one head, query by query in float64."""
    n, m, total = LENGTHS[sample], SPOKEN[sample], [0.0] * LENGTHS[sample]
    assert layer.text is not None
    real = [w for w in range(W) if bool(layer.window_alive[sample, w])]
    for g in range(GROUP):
        for w in real:
            query = layer.queries[sample, head * GROUP + g, w].double()
            sees = m - (W - 1 - w)  # of the text: itself and what is before
            rows = torch.cat([layer.keys[sample, head, :n], layer.text.keys[sample, head, :sees]])
            scores = (rows.double() @ query / math.sqrt(D)).tolist()
            top = sum(math.exp(s - max(scores)) for s in scores)
            for token in range(n):
                total[token] += math.exp(scores[token] - max(scores)) / top
    return [one / (GROUP * len(real)) for one in total]


def plain_pool(votes: list[float]) -> list[float]:
    return [max(votes[max(0, n - 3) : n + 4]) for n in range(len(votes))]


def test_votes_are_the_windows_attention_text_in_the_softmax() -> None:
    layer = states()
    found = window_attention(layer)
    for sample, length in enumerate(LENGTHS):
        for head in range(HEADS):
            wanted = plain_attention(layer, sample, head)
            assert found[sample, head, :length].tolist() == pytest.approx(wanted, abs=1e-5)
            assert (found[sample, head, length:] == 0).all()
    assert pooled(found, 7)[0, 0].tolist() == pytest.approx(plain_pool(found[0, 0].tolist()))


def chosen_by(pruner: HeadPruner, layer: LayerStates) -> Tensor:
    """Which tokens stay, [B, Hkv, N] bool."""
    return pruner.kept_by_head(layer, pruner.counts(layer.lengths))


@pytest.mark.parametrize("keep", [0.05, 0.3, 1.0])
def test_snapkv_keeps_the_best_of_each_head(keep: float) -> None:
    layer = states()
    kept = chosen_by(SnapKV(keep), layer)
    for sample, length in enumerate(LENGTHS):
        for head in range(HEADS):
            votes = plain_pool(plain_attention(layer, sample, head))
            count = max(1, round(keep * length))
            chosen = kept[sample, head].nonzero()[:, 0].tolist()
            assert len(chosen) == count and max(chosen) < length
            least = min(votes[token] for token in chosen)
            rest = [votes[token] for token in range(length) if token not in chosen]
            assert not rest or least >= max(rest) - 1e-6


def test_adakv_hands_out_what_snapkv_gives_evenly() -> None:
    """A fifth of the budget is every head's; the rest goes to the best tokens of all heads."""
    layer = states()
    scores, kept = worth(layer), chosen_by(AdaKV(0.5), layer)
    even = chosen_by(SnapKV(0.5), layer)
    for sample, length in enumerate(LENGTHS):
        assert int(kept[sample].sum()) == int(even[sample].sum())
        count = round(0.5 * length)
        floor = int(0.2 * count)
        flat = sorted(
            ((float(scores[sample, h, n]), h) for h in range(HEADS) for n in range(length)),
            reverse=True,
        )
        for head in range(HEADS):
            own = sum(1 for _, h in flat[: (count - floor) * HEADS] if h == head) + floor
            assert int(kept[sample, head].sum()) == own
            assert torch.equal(
                kept[sample, head], best(scores[sample, head], torch.tensor(own))
            )  # fmt: skip


def test_what_a_short_head_cannot_keep_goes_to_the_others() -> None:
    scores = torch.rand(1, 3, 10)
    scores[0, 0] += 5  # wants more than it has
    found = head_counts(scores, torch.tensor([8]))
    assert found[0, 0] == 10 and int(found.sum()) == 24 and int(found.max()) <= 10
    assert head_counts(scores, torch.tensor([10])).tolist() == [[10, 10, 10]]
    assert head_counts(scores, torch.tensor([1])).sum() == 3


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    shape = LlamaConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=300,
    )  # fmt: skip
    return scramble(LlamaForCausalLM(shape), 0)


def filled(model: PreTrainedModel, settings: Settings, samples: int = 1) -> RotateKCache:
    """A cache of a prompt whose first part counts as a picture."""
    ids = torch.randint(0, 300, (2, 120), generator=torch.Generator().manual_seed(1))[:samples]
    visual = torch.zeros_like(ids, dtype=torch.bool)
    visual[0, 5:90] = True
    visual[1:, 5:60] = True
    cache = RotateKCache(model, {"visual": visual}, settings)
    model(input_ids=ids, **with_cache(model, cache), use_cache=True)
    return cache


def said(model: PreTrainedModel, cache: RotateKCache, tokens: int) -> Tensor:
    """Logits of further tokens."""
    ids = torch.arange(tokens)[None].expand(cache.layers[0].text.keys.shape[0], -1)
    out: Tensor = model(input_ids=ids, **with_cache(model, cache), use_cache=True).logits
    return out


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("tokens", ["snapkv", "adakv"])
@torch.inference_mode()
def test_every_method_stores_what_is_left(
    model: PreTrainedModel, tokens: str, channels: str
) -> None:
    few = Settings.of(tokens=tokens, keep_tokens=0.25, channels=channels)
    many = Settings.of(tokens=tokens, keep_tokens=1.0, channels=channels)
    small, large = filled(model, few), filled(model, many)
    parts = [cache.bytes() for cache in (small, large)]
    held = [count.total - count.parts["text"] - count.parts["lengths"] for count in parts]
    once = parts[0].parts["bases"] + parts[0].parts["masks"]  # which do not grow with tokens
    assert held[0] < 0.35 * held[1] + once
    tensors = [*(tensor for _, tensor in small.tensors()), *small.marks()]
    assert storage_bytes(tensors) == parts[0].total
    assert (small.plan.visual, small.plan.visual_kept) == (85, round(0.25 * 85))
    count = round(0.25 * 85) * 2
    for layer in small.layers:
        lengths = layer.store.read().lengths
        assert int(lengths.sum()) * (2 if lengths.dim() == 1 else 1) == count
    assert (
        torch.isfinite(said(model, small, 1)).all() and torch.isfinite(said(model, small, 5)).all()
    )


@torch.inference_mode()
def test_attention_over_heads_of_their_own_lengths_is_plain_attention(
    model: PreTrainedModel,
) -> None:
    """What heads left out weighs nothing: against a loop over heads, in a batch."""
    cache = filled(model, Settings(AdaKV(0.3), CHANNELS["full"]()), samples=2)
    layer = cache.layers[0]
    assert isinstance(layer.store, HeadStores)
    found, text = layer.store.read(), layer.text.read()
    assert found.lengths is not None and len(set(found.lengths.flatten().tolist())) > 1
    query = torch.randn(2, 4, 1, 16, generator=torch.Generator().manual_seed(2))
    attention = model.model.layers[0].self_attn
    got = layer.attend(
        attention, query, torch.zeros(2, 2, 1, 16), torch.zeros(2, 2, 1, 16), lambda: None
    )
    text = layer.text.read()
    for sample in range(2):
        spoken = int(text.lengths[sample])
        for head in range(4):
            n = int(found.lengths[sample, head // 2])
            keys, values = (
                torch.cat([seen[sample, head // 2, :n], said_[sample, head // 2, :spoken]])
                for seen, said_ in ((found.keys, text.keys), (found.values, text.values))
            )
            weights = (keys @ query[sample, head, 0] * attention.scaling).softmax(0)
            assert torch.allclose(weights @ values, got[sample, 0, head], atol=1e-5)


@torch.inference_mode()
def test_beams_follow(model: PreTrainedModel) -> None:
    cache = filled(model, Settings(AdaKV(0.3), CHANNELS["kivi"]()))
    alone = said(model, filled(model, cache.settings), 3)
    cache.batch_repeat_interleave(2)
    both = said(model, cache, 3)
    assert all(torch.allclose(row, alone[0], atol=1e-4) for row in both)


def test_the_engine_answers_and_follows_up(picture: Picture) -> None:
    """Rows of these pruners beside others in the running batch; no overlay of where they look."""
    engine, talk = Engine(tiny_qwen()), Conversation()
    columns = {"plain": BASELINE} | {
        name: Settings.of(tokens=name, keep_tokens=0.4, channels="kivi")
        for name in ("snapkv", "adakv")
    }
    request = make_request(picture(150, 120, seed=1), "Which?", 5)
    events = list(engine.compare(request, columns, conversation=talk))
    events += list(engine.follow(talk, "And which?", 5))
    assert not [event for event in events if isinstance(event, Failed)]
    done = [event for event in events if isinstance(event, Finished)]
    assert [event.column for event in done].count("adakv") == 2
    for end in done:
        assert (end.attention is None) == (end.column != "plain")
        assert sum(end.metrics["bytes"].values()) == end.metrics["kv_bytes"]
    for event in events:
        if isinstance(event, Prefilled) and event.column in ("snapkv", "adakv"):
            assert event.visual_kept < event.visual_tokens
    whole, small = (
        next(e for e in done if e.column == name).metrics["kv_bytes"] for name in ("plain", "adakv")
    )
    assert small < 0.75 * whole  # of which text is half
    talk.close()
