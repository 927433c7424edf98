"""`smaller`: what is allotted, by which loss, and that all that is stored is counted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.planes import DEPTHS, GRANULE, head_words
from kernels.reference import Narrow, Packed, Text, attend_reference
from rotatek import Engine, RotateK, RotateKCache, Settings, make_request
from rotatek.bridge.layers import attention_of, decoder_layers
from rotatek.cache.measures import storage_bytes
from rotatek.engine.events import Answer
from rotatek.engine.passes import prefill
from rotatek.errors import ModeUnsupported
from rotatek.methods.channels.base import LayerStates, Store
from rotatek.methods.channels.bit_allocation import BitDemand, allot_bytes
from rotatek.methods.channels.bits import LayerGroup, measured
from tests.families import tiny_gemma3
from tests.fixtures import Picture
from tests.tiny import tiny_qwen

NEAR = 0.03  # of the bytes that were asked for
POCKETS = {"pocket": (10, 2, 4, 128), "pocket-smol": (30, 3, 9, 64)}  # layers, kv heads, heads, d
HEADS, GROUP, D, WINDOW = 2, 2, 64, 8
HEAD = (HEADS, HEADS * GROUP, D)


def held(thing: Any) -> Any:
    """What is there."""
    assert thing is not None
    return thing


def states(
    layer: int, tokens: Sequence[int], head: tuple[int, int, int] = HEAD, text: int = 24,
    dtype: torch.dtype = torch.bfloat16,
) -> LayerStates:  # fmt: skip
    """One layer's random states, whose channels fall in size as those of Keys do; head: numbers of
    kv heads and of heads, and their width."""
    kv, heads, d = head
    generator = torch.Generator().manual_seed(layer)
    fall = (0.97 - 0.01 * layer) ** torch.arange(d)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, d, generator=generator).mul(fall).to(dtype)

    B, N = len(tokens), max(tokens)
    own = Text(draw(B, kv, text), draw(B, kv, text), torch.full((B,), text))
    lengths = torch.tensor(tokens, dtype=torch.int32)
    dead = (torch.arange(N) >= lengths[:, None])[:, None, :, None]
    keys, values = ((draw(B, kv, N) + 0.5).masked_fill(dead, 0) for _ in range(2))
    alive = torch.ones(B, WINDOW, dtype=torch.bool)
    return LayerStates(keys, values, lengths, draw(B, heads, WINDOW), alive, layer, text=own)


def test_heads_of_no_whole_granules_are_refused_in_the_prompt() -> None:
    """Not behind the first token, where a stream has begun."""
    with pytest.raises(ModeUnsupported, match="keep_channels"):
        RotateK(smaller=4).check(states(0, [30], (2, 4, GRANULE + 8)))


def prompt(name: str, tokens: Sequence[int]) -> list[LayerStates]:
    """Every layer of an embedded model."""
    layers, *head = POCKETS[name]
    return [states(i, tokens, (head[0], head[1], head[2])) for i in range(layers)]


def stored(layers: Sequence[LayerStates], **options: Any) -> list[Store]:
    """What a prompt of these layers leaves."""
    return list(RotateK(**options).compress_together(layers))


def counts(store: Store) -> list[Tensor]:
    """Channels of Keys and of Values with a digit of each level."""
    assert isinstance(store.visual, Packed)
    return [store.visual.keys.counts, store.visual.values.counts]


def same_bits(some: Sequence[Store], others: Sequence[Store]) -> bool:
    pairs = zip(some, others, strict=True)
    return all(all(map(torch.equal, counts(one), counts(other))) for one, other in pairs)


# The loss, and the allotment


def test_rates_are_what_errors_do_to_the_output() -> None:
    """Random errors of logits and of Values move the output by what the rates say."""
    own = states(0, [150], text=0, dtype=torch.float32)
    generator = torch.Generator().manual_seed(1)
    sides, size = measured(LayerGroup([own]), "paper").sides, 1e-2
    flat = own.queries.unflatten(1, (HEADS, GROUP)).flatten(2, 3)  # [1, Hkv, G W, d]
    scores = flat @ own.keys.mT * D**-0.5
    plain = scores.softmax(-1) @ own.values
    moved = torch.zeros(2, HEADS)
    for _ in range(64):
        noise = size * torch.randn(scores.shape, generator=generator)
        worse = own.values + size * torch.randn(own.values.shape, generator=generator)
        outs = (scores + noise).softmax(-1) @ own.values, scores.softmax(-1) @ worse
        for row, out in enumerate(outs):
            moved[row] += (out - plain).square().sum(-1).mean((0, 2)) / size**2 / 64
    torch.testing.assert_close(moved[0], sides[0].rate[0], rtol=0.1, atol=0)
    torch.testing.assert_close(moved[1], D * sides[1].rate[0], rtol=0.1, atol=0)


def test_what_changes_no_score_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys over 100 and queries times 100; and layers measured whenever they weigh enough."""
    layers = [states(i, [150, 90], dtype=torch.float32) for i in range(3)]
    plain = stored(layers, smaller=8)
    odd = replace(
        layers[1],
        keys=layers[1].keys / 100,
        queries=layers[1].queries * 100,
        text=held(layers[1].text)._replace(keys=held(layers[1].text).keys / 100),
        made={},
    )
    scaled = [replace(layers[0], made={}), odd, replace(layers[2], made={})]
    assert same_bits(stored(scaled, smaller=8), plain)
    monkeypatch.setattr("rotatek.methods.channels.bits.TOGETHER", 2048)
    assert same_bits(stored([replace(one, made={}) for one in layers], smaller=8), plain)


def test_a_norm_behind_the_output_undoes_its_scale(picture: Picture) -> None:
    """Gemma norms an attention's output before it is added: an output projection 16 times as large
    changes no answer, so it may not change the bits."""

    def filled() -> list[Store]:
        embedded = vlm.embed(vlm.prompt(make_request(picture(150, 120), "what?", 4)))
        cache = RotateKCache(vlm.model, embedded.inputs(), Settings.of(smaller=4))
        prefill(vlm, embedded, cache)
        cache.filling.finish()
        return [held(layer.store) for layer in cache.layers]

    vlm = tiny_gemma3()
    before = filled()
    with torch.no_grad():
        held(attention_of(decoder_layers(vlm.model)[0])).o_proj.weight.mul_(16)
    assert same_bits(filled(), before)


def test_what_is_left_of_a_budget_is_filled_and_never_passed_by_more_than_it_missed() -> None:
    loss = torch.linspace(8, 0.1, 64)[None, None, None]
    claim = BitDemand(loss, torch.tensor([[300]]), 132)
    step = 384 * GRANULE * 2 // 8
    for bytes_ in range(4000, 60000, 777):
        depths = allot_bytes([claim], torch.tensor([float(bytes_)]))[0][0, 0, 0]
        assert bool((depths.diff() <= 0).all())
        took = int(depths.sum()) // 2 * step + int((depths > 0).sum()) * GRANULE * 132
        full = 4 * (DEPTHS[-1] // 2 * step + GRANULE * 132)
        assert abs(took - min(bytes_, full)) <= step + 1


# The bytes


def weight(found: list[Store]) -> int:
    """Live bytes."""
    return storage_bytes(tensor for store in found for _, tensor in store.tensors())


def plain(layers: Sequence[LayerStates], row: int = 0) -> int:
    """Bytes of a sample's tokens uncompressed."""
    return sum(4 * one.keys.shape[1] * one.keys.shape[3] * int(one.lengths[row]) for one in layers)


@pytest.mark.parametrize("name", POCKETS)
@pytest.mark.parametrize("tokens", [64, 1100])
def test_live_bytes_are_within_three_percent_of_what_was_asked(name: str, tokens: int) -> None:
    for times in (4, 20):
        layers = prompt(name, [tokens])
        got = plain(layers) / weight(stored(layers, smaller=times))
        assert got == pytest.approx(times, rel=NEAR)


def test_wide_and_narrow_heads_share_one_budget() -> None:
    """Five layers of narrow heads to one of wide ones, as Gemma 4 has them."""
    heads = [(2, 4, 128)] * 5 + [(1, 4, 256)]
    layers = [states(i, [280], head) for i, head in enumerate(heads)]
    assert plain(layers) / weight(stored(layers, smaller=8)) == pytest.approx(8, rel=NEAR)


def weighs_alone(found: list[Store], layers: list[LayerStates], row: int) -> int:
    """Bytes of one prompt of a batch, as it would weigh alone."""
    total = 0
    for store, own in zip(found, layers, strict=True):
        tokens, (_, kv, _, d) = int(own.lengths[row]), own.keys.shape
        if not tokens:
            continue
        total += 4 + 2 * 2 * kv * d  # the count and both means
        for each in counts(store):
            total += 2 * int(head_words(each[row : row + 1], tokens).sum()) + 28 * kv
            total += int(each[row, :, 0].sum()) * (4 + d)
    return total


def test_each_prompt_of_a_batch_has_the_bytes_that_it_has_alone() -> None:
    """What pads it is not charged to it."""
    layers = prompt("pocket", [640, 97, 437])
    both = stored(layers, smaller=8)
    for row in range(3):
        assert plain(layers, row) / weighs_alone(both, layers, row) == pytest.approx(8, rel=NEAR)


def test_a_prompt_without_tokens_in_a_layer_is_not_charged_for_it() -> None:
    """As where a sliding window has left all of its visual tokens."""
    layers = [states(i, [300, 0 if i % 2 else 300], (2, 4, 128)) for i in range(10)]
    found = stored(layers, smaller=16)
    for row in range(2):
        times = plain(layers, row) / weighs_alone(found, layers, row)
        assert times == pytest.approx(16, rel=NEAR)
    assert not any(int(each[1].sum()) for store in found[1::2] for each in counts(store))


@pytest.mark.parametrize(("times", "size"), [(4, (280, 224)), (64, (56, 56))])
def test_a_report_says_how_many_times_smaller_it_became(
    picture: Picture, times: int, size: tuple[int, int]
) -> None:
    """And where so short a prompt cannot come near, that it did not."""
    vlm = tiny_qwen()
    request = make_request(picture(*size), "what is it?", 8)
    column = Answer("one", Settings.of(smaller=times))
    for event in Engine(vlm).compare(request, {"one": column.settings}, trace=False):
        if event.column is not None:
            column.take(event)
    filled, report = held(column.prefilled), column.report()
    parts = report["kv_bytes_by_part"].items()
    visual = sum(each for name, each in parts if name not in ("text", "lengths"))
    found = vlm.full_bytes(filled.visual_tokens) / visual
    assert report["visual_times_smaller"] == pytest.approx(found)
    near = found == pytest.approx(times, rel=NEAR)
    assert near == (times == 4) == (column.missed == "")
    assert near or f"became {found:.1f} times smaller, not 64" in column.missed


@pytest.mark.parametrize(("times", "bar"), [(2, 0.02), (4, 0.1), (8, 0.4)])
def test_attention_over_planes_is_near_the_full_one(times: float, bar: float) -> None:
    own = states(0, [150, 90], dtype=torch.float32)
    (store,) = stored([own], smaller=times)
    q, text = own.queries[:, :, -1:], held(own.text)
    want = attend_reference(q, Narrow(own.keys, own.values, own.lengths), text, D**-0.5)
    got = attend_reference(q, store.visual, text, D**-0.5)
    assert float((got - want).norm() / want.norm()) <= bar
    assert isinstance(store.visual, Packed) and store.visual.keys.basis.dtype == torch.int8
    rows = torch.tensor([1, 0, 1])
    store.select(lambda tensor: tensor[rows])
    moved = attend_reference(q[rows], store.visual, Text(*(part[rows] for part in text)), D**-0.5)
    torch.testing.assert_close(moved, got[rows])
