"""`smaller`: what is allotted, by which loss, and that all that is stored is counted."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from kernels.planes import (
    DEPTHS,
    GRANULE,
    Planes,
    depths_of,
    head_words,
)
from kernels.reference import Text, Visual, attend_reference, opened
from rotatek.bridge.fitness import attention_of, decoder_layers
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.compare.columns import title_of
from rotatek.compare.report import Column
from rotatek.engine.decode import decode, prefill
from rotatek.engine.engine import Engine
from rotatek.errors import ModeUnsupported, SettingError
from rotatek.inputs.request import make_request
from rotatek.methods import rotation
from rotatek.methods.channels import RotateK
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.bit_allocation import BitDemand, allot_bytes
from rotatek.methods.channels.bits import importance_of
from rotatek.methods.channels.layer_group import LayerGroup, held
from rotatek.methods.channels.store import Store
from rotatek.methods.settings import Settings
from tests.families import tiny_gemma3
from tests.fixtures import Picture
from tests.tiny import tiny_qwen

HEADS, GROUP, D, WINDOW = 2, 2, 64, 6


def states(layer: int = 0, tokens: tuple[int, ...] = (150, 90), text: int = 20) -> LayerStates:
    """One layer's random states, of the spectrum that Keys have, and zero beyond each length."""
    generator = torch.Generator().manual_seed(layer)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    B, N = len(tokens), max(tokens)
    lengths = torch.tensor(tokens, dtype=torch.int32)
    alive = rotation.token_mask(lengths, N)[:, None, :, None]
    fall = 0.9 ** torch.arange(D)
    keys, values = ((draw(B, HEADS, N, D) * fall + 0.5).masked_fill(~alive, 0.0) for _ in range(2))
    return LayerStates(
        keys,
        values,
        lengths,
        draw(B, HEADS * GROUP, WINDOW, D),
        torch.ones(B, WINDOW, dtype=torch.bool),
        layer,
        entering=lambda: torch.ones(B, 1, WINDOW, 4) / 2,
        text=Text(draw(B, HEADS, text, D), draw(B, HEADS, text, D), torch.tensor([text] * B)),
    )


def stored(layers: list[LayerStates], **options: Any) -> list[Visual]:
    """The decoded states of every layer."""
    method, stores = RotateK(**options), []
    for each in layers:
        stores.append(method.measure(each))
        method.pack(stores, last=each is layers[-1])
    return [store.read() for store in stores]


def depths(visual: Visual) -> list[Tensor]:
    """Bits of every Key channel and of every Value channel."""
    return [
        depths_of(held(planes).counts, D) for planes in (visual.key_planes, visual.value_planes)
    ]


# The option


def test_smaller_stands_for_what_it_replaces() -> None:
    one = RotateK(smaller=16)
    assert RotateK(smaller=16, keep=0.1) == one
    assert one.nominal_share == one.key_share == 1 / 16
    assert one.with_share(1 / 8).smaller == 8 and one.with_share(0.0).smaller == 64
    assert one.of_paper() == RotateK() == RotateK(smaller=0)
    assert title_of(Settings(channels=one)) == "RotateK (16 times smaller)"
    settings = Settings.of(smaller=16)
    assert Settings.from_dict(settings.as_dict()) == settings


@pytest.mark.parametrize("given", [{"smaller": 1.5}, {"smaller": 65}, {"smaller": "much"}])
def test_what_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=r"smaller.*\[2, 64\]"):
        Settings.of(**given)


# The loss


def test_looks_are_those_of_causal_attention() -> None:
    """Against one softmax a query; the window is the text's last rows, and sees no row behind."""
    own = states()
    seen = importance_of(LayerGroup([own]))
    M = held(own.text).keys.shape[2]
    for b, h in ((0, 0), (1, 1)):
        n = int(own.lengths[b])
        mass, key_rate, value_rate = torch.zeros(2, n), 0.0, 0.0
        for kv in range(HEADS):
            for g, w in [(g, w) for g in range(GROUP) for w in range(WINDOW)]:
                count = M - WINDOW + w + 1
                q = own.queries[b, kv * GROUP + g, w]
                keys = torch.cat([own.keys[b, kv, :n], held(own.text).keys[b, kv, :count]])
                values = torch.cat([own.values[b, kv, :n], held(own.text).values[b, kv, :count]])
                p = (keys @ q * D**-0.5).softmax(0)
                mass[kv] += p[:n]
                away = (values[:n] - p @ values).square().sum(-1)
                if kv == h:
                    key_rate += float((p[:n].square() * away).sum())
                    value_rate += float(p[:n].square().sum())
        rows = GROUP * WINDOW
        torch.testing.assert_close(seen.mass[b, :n], mass.mean(0) / rows)
        assert float(seen.key_rate[b, h]) == pytest.approx(key_rate / rows, rel=1e-4)
        assert float(seen.value_rate[b, h]) == pytest.approx(value_rate / rows, rel=1e-4)


def test_rates_are_what_errors_do_to_the_output() -> None:
    """Random errors of logits and of Values move the output by what the rates say."""
    own = states(tokens=(150,))
    seen, generator = importance_of(LayerGroup([own])), torch.Generator().manual_seed(1)
    text = Text(held(own.text).keys[..., :0, :], held(own.text).values[..., :0, :])
    own = replace(own, text=text, made={})
    seen, size = importance_of(LayerGroup([own])), 1e-2
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
    torch.testing.assert_close(moved[0], seen.key_rate[0], rtol=0.1, atol=0)
    torch.testing.assert_close(moved[1], D * seen.value_rate[0], rtol=0.1, atol=0)


# The allotment


def test_the_scale_of_keys_changes_no_bit() -> None:
    """Keys over 100 and queries times 100 are the same scores."""
    layers = [states(i) for i in range(3)]
    odd = replace(
        layers[1],
        keys=layers[1].keys / 100,
        queries=layers[1].queries * 100,
        text=held(layers[1].text)._replace(keys=held(layers[1].text).keys / 100),
        made={},
    )
    plain = stored(layers, smaller=8)
    scaled = stored([replace(layers[0], made={}), odd, replace(layers[2], made={})], smaller=8)
    for one, other in zip(plain, scaled, strict=True):
        assert all(map(torch.equal, depths(one), depths(other)))


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

NEAR = 0.03  # of the bytes that were asked for
POCKETS = {"pocket": (10, 2, 4, 128), "pocket-smol": (30, 3, 9, 64)}  # layers, kv heads, heads, d


def keys_like(layer: int, tokens: list[int], shape: tuple[int, int, int, int]) -> LayerStates:
    """One layer's random states, whose channels fall in size as those of Keys do."""
    _, kv, heads, d = shape
    generator = torch.Generator().manual_seed(layer)
    fall = (0.97 - 0.01 * layer) ** torch.arange(d)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, d, generator=generator).mul(fall).to(torch.bfloat16)

    B, N, text = len(tokens), max(tokens), 24
    alive = torch.ones(B, 8, dtype=torch.bool)
    own = Text(draw(B, kv, text), draw(B, kv, text), torch.full((B,), text))
    lengths = torch.tensor(tokens, dtype=torch.int32)
    dead = torch.arange(N) >= lengths[:, None]
    keys, values = (draw(B, kv, N).masked_fill(dead[:, None, :, None], 0) for _ in range(2))
    return LayerStates(keys, values, lengths, draw(B, heads, 8), alive, layer, text=own)


def stores(method: RotateK, layers: list[LayerStates]) -> list[Store]:
    """What a prompt of these layers leaves."""
    found: list[Store] = []
    for each in layers:
        found.append(method.measure(each))
        method.pack(found, last=each is layers[-1])
    return found


def weight(found: list[Store]) -> int:
    """Live bytes."""
    return storage_bytes(tensor for store in found for _, tensor in store.tensors())


def plain(layers: list[LayerStates]) -> int:
    """Bytes of the same tokens uncompressed."""
    each = 2 * layers[0].keys.shape[1] * layers[0].keys.shape[3] * layers[0].keys.element_size()
    return sum(int(one.lengths.sum()) * each for one in layers)


@pytest.mark.parametrize("name", POCKETS)
@pytest.mark.parametrize("tokens", [64, 280, 1100])
def test_live_bytes_are_within_three_percent_of_what_was_asked(name: str, tokens: int) -> None:
    shape = POCKETS[name]
    for times in (4, 8, 20):
        layers = [keys_like(i, [tokens], shape) for i in range(shape[0])]
        got = plain(layers) / weight(stores(RotateK(smaller=times), layers))
        assert got == pytest.approx(times, rel=NEAR)


def test_wide_and_narrow_heads_share_one_budget() -> None:
    """Five layers of narrow heads to one of wide ones, as Gemma 4 has them."""
    shapes = [(6, 2, 4, 128)] * 5 + [(6, 1, 4, 256)]
    layers = [keys_like(i, [280], shape) for i, shape in enumerate(shapes)]
    whole = sum(2 * kv * d * 2 * 280 for _, kv, _, d in shapes)
    assert whole / weight(stores(RotateK(smaller=8), layers)) == pytest.approx(8, rel=NEAR)


def weighs_alone(found: list[Store], layers: list[LayerStates], row: int) -> int:
    """Bytes of one prompt of a batch, as it would weigh alone."""
    total = 0
    for store, own in zip(found, layers, strict=True):
        tokens = int(own.lengths[row])
        if not tokens:
            continue
        total += 4 + 2 * 2 * own.keys.shape[1] * own.keys.shape[3]  # the count and both means
        for planes in (store.visual.key_planes, store.visual.value_planes):
            assert planes is not None
            heads, d = planes.counts.shape[1], own.keys.shape[3]
            column = 4 + d
            total += 2 * int(head_words(planes.counts[row : row + 1], tokens).sum()) + 28 * heads
            total += int(planes.counts[row, :, 0].sum()) * column
    return total


@pytest.mark.parametrize("tokens", [[384, 380], [640, 97, 437]])
def test_each_prompt_of_a_batch_has_the_bytes_that_it_has_alone(tokens: list[int]) -> None:
    """And the same bits: what pads it is not charged to it."""
    shape = POCKETS["pocket"]
    layers = [keys_like(i, tokens, shape) for i in range(shape[0])]
    both = stores(RotateK(smaller=8), layers)
    for row, count in enumerate(tokens):
        own = 2 * 2 * 2 * 128 * count * len(layers)
        assert own / weighs_alone(both, layers, row) == pytest.approx(8, rel=NEAR)
        single = stores(RotateK(smaller=8), [alone(one, row) for one in layers])
        for mine, other in zip(both, single, strict=True):
            pairs = zip(planes_of(mine), planes_of(other), strict=True)
            assert all(torch.equal(a.counts[row], b.counts[0]) for a, b in pairs)


def planes_of(store: Store) -> list[Planes]:
    """Of its Keys and of its Values."""
    return [held(store.visual.key_planes), held(store.visual.value_planes)]


def alone(own: LayerStates, row: int) -> LayerStates:
    """One row of a batch without what pads it."""
    one, tokens = slice(row, row + 1), int(own.lengths[row])
    text = held(own.text)
    return replace(
        own,
        keys=own.keys[one, :, :tokens],
        values=own.values[one, :, :tokens],
        lengths=own.lengths[one],
        queries=own.queries[one],
        window_alive=own.window_alive[one],
        text=Text(text.keys[one], text.values[one], held(text.lengths)[one]),
        made={},
    )


def test_a_prompt_without_tokens_in_a_layer_is_not_charged_for_it() -> None:
    """As where a sliding window has left all of its visual tokens."""
    shape = POCKETS["pocket"]
    layers = [keys_like(i, [300, 0 if i % 2 else 300], shape) for i in range(10)]
    found = stores(RotateK(smaller=16), layers)
    for row in range(2):
        own = sum(2 * 2 * 2 * 128 * int(one.lengths[row]) for one in layers)
        assert own / weighs_alone(found, layers, row) == pytest.approx(16, rel=NEAR)
    for store in found[1::2]:
        assert not any(int(planes.counts[1].sum()) for planes in planes_of(store))


def test_a_short_prompt_comes_as_near_as_it_can() -> None:
    """Means and positions of its heads alone may weigh more than the budget; 8 bits, less."""
    shape = POCKETS["pocket"]
    layers = [keys_like(i, [20], shape) for i in range(shape[0])]
    least = stores(RotateK(smaller=64), layers)
    assert all(not int(p.counts.sum()) for s in least for p in [s.visual.key_planes] if p)
    layers = [keys_like(i, [600], shape) for i in range(shape[0])]
    most = stores(RotateK(smaller=2), layers)
    bits = [int(p.counts.sum()) * 2 for s in most for p in [s.visual.key_planes] if p]
    assert sum(bits) <= 8 * 2 * 128 * shape[0]


@pytest.mark.parametrize(("times", "size"), [(4, (280, 224)), (64, (56, 56))])
def test_a_report_says_how_many_times_smaller_it_became(
    picture: Picture, times: int, size: tuple[int, int]
) -> None:
    """And where so short a prompt cannot come near, that it did not."""
    vlm = tiny_qwen()
    request = make_request(picture(*size), "what is it?", 8)
    column = Column("one", Settings.of(smaller=times))
    for event in Engine(vlm).compare(request, {"one": column.settings}, trace=False):
        if event.column is not None:
            column.take(event)
    filled, parts = column.prefilled, column.report()["kv_bytes_by_part"]
    assert filled is not None
    visual = sum(each for name, each in parts.items() if name not in ("text", "lengths"))
    found = vlm.full_bytes(filled.visual_tokens) / visual
    assert column.report()["visual_times_smaller"] == pytest.approx(found)
    near = found == pytest.approx(times, rel=NEAR)
    assert near == (times == 4)
    assert (column.missed == "") == near
    if not near:
        assert f"became {found:.1f} times smaller, not 64" in column.missed


# What is stored


@pytest.mark.parametrize(("times", "bar"), [(2, 0.02), (4, 0.1), (8, 0.4)])
def test_attention_over_planes_is_near_the_full_one(times: float, bar: float) -> None:
    own = states()
    (visual,) = stored([own], smaller=times)
    q = own.queries[:, :, -1:]
    plain = attend_reference(q, Visual(own.keys, own.values, own.lengths), held(own.text), D**-0.5)
    got = attend_reference(q, visual, held(own.text), D**-0.5)
    assert float((got - plain).norm() / plain.norm()) <= bar


def test_samples_of_a_batch_are_stored_as_alone() -> None:
    """Padding changes neither bits nor levels."""
    (both,) = stored([states()], smaller=8)
    own = states()
    cut: dict[str, Any] = {
        name: getattr(own, name)[1:] for name in ("lengths", "queries", "window_alive")
    }
    text = Text(*(part[1:] for part in held(own.text)[:3]))
    kept: dict[str, Any] = {"keys": own.keys[1:, :, :90], "values": own.values[1:, :, :90]}
    (alone,) = stored([replace(own, **cut, **kept, text=text, entering=None, made={})], smaller=8)
    assert all(torch.equal(a[1:], b) for a, b in zip(depths(both), depths(alone), strict=True))
    first, second = opened(both), opened(alone)
    width = second.keys.shape[-1]
    others = first.keys[1:, :, :90, :width] != second.keys
    assert float(others.float().mean()) < 1e-3  # padding moves sums, and a code may round over


def test_bytes_are_those_of_planes_and_rows(picture: Picture) -> None:
    """Live bytes are the tensors' storages; a head's basis has rows for its own channels only."""
    vlm = tiny_qwen()
    prompt = vlm.embed(vlm.prompt(make_request(picture(150, 120), "what?", 4)))
    cache = RotateKCache(vlm.model, prompt.inputs(), Settings.of(smaller=8))
    logits, _ = prefill(vlm, prompt, cache)
    plain = DynamicCache()
    prefill(vlm, prompt, plain)
    for layer in cache.layers:
        for planes in (layer.store.visual.key_planes, layer.store.visual.value_planes):
            assert planes.basis.dtype == torch.int8
            assert len(planes.basis) == len(planes.steps) == int(planes.counts[..., 0].sum())
    tensors = [*(t for _, t in cache.tensors()), *cache.marks()]
    held = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}
    count = cache.bytes()
    assert count.total == sum(s.nbytes() for s in held.values()) == sum(count.parts.values())
    assert len(list(decode(vlm, prompt, cache, logits, 4))) > 1
    with pytest.raises(ModeUnsupported, match="Beam search"):
        cache.reorder_cache(torch.tensor([0]))


# What it costs a prefill


def test_layers_measured_apart_are_stored_as_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is measured whenever it weighs enough; one budget still serves all of it."""
    together = stored([states(i) for i in range(3)], smaller=8)
    monkeypatch.setattr("rotatek.methods.channels.rotatek.PENDING_BYTES", 8)
    apart = stored([states(i) for i in range(3)], smaller=8)
    for one, other in zip(together, apart, strict=True):
        assert all(map(torch.equal, depths(one), depths(other)))


def test_the_order_of_tokens_changes_no_bit() -> None:
    own = states(tokens=(150,))
    order = torch.randperm(150, generator=torch.Generator().manual_seed(3))
    turned = replace(own, keys=own.keys[:, :, order], values=own.values[:, :, order], made={})
    (one,), (other,) = stored([own], smaller=8), stored([turned], smaller=8)
    assert all(map(torch.equal, depths(one), depths(other)))


def test_a_norm_behind_the_output_undoes_its_scale(picture: Picture) -> None:
    """Gemma norms an attention's output before it is added: an output projection 16 times as large
    changes no answer, so it may not change the bits."""

    def counts() -> list[Tensor]:
        prompt = vlm.embed(vlm.prompt(make_request(picture(150, 120), "what?", 4)))
        cache = RotateKCache(vlm.model, prompt.inputs(), Settings.of(smaller=4))
        prefill(vlm, prompt, cache)
        sides = [held(layer.store).visual for layer in cache.layers]
        return [held(p).counts for v in sides for p in (v.key_planes, v.value_planes)]

    vlm = tiny_gemma3()
    before = counts()
    with torch.no_grad():
        held(attention_of(decoder_layers(vlm.model)[0])).o_proj.weight.mul_(16)
    assert all(map(torch.equal, counts(), before))


# What the figure shows
