"""Bits a number: what is allotted, by which loss, and what is then stored."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.cache_utils import DynamicCache

from kernels.planes import GRANULE, Channels, coordinates_of, depths_of, pack, steps_along
from kernels.reference import Text, Visual, attend_reference, opened
from rotatek.bridge.fitness import attention_of, decoder_layers
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.token_plan import TokenPlan
from rotatek.compare.columns import matched, title_of
from rotatek.engine.decode import decode, prefill
from rotatek.errors import ModeUnsupported, SettingError
from rotatek.inputs.request import make_request
from rotatek.methods import rotation
from rotatek.methods.channels import RotateK, mixed_precision
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.batched_rotation import LayerGroup, held
from rotatek.methods.channels.bit_allocation import BitDemand, allot_bits
from rotatek.methods.channels.mixed_precision import importance_of, token_shares
from rotatek.methods.settings import Settings
from tests.families import tiny_gemma3
from tests.fixtures import Picture
from tests.launches import Launches, kernels_replaced
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


def spent(visuals: list[Visual]) -> float:
    """Mean bits of a number of the tokens."""
    return float(torch.stack([d.float() for v in visuals for d in depths(v)]).mean())


# The option


def test_bits_stand_for_what_they_replace() -> None:
    plain = RotateK(bits=0.75)
    assert RotateK(bits=0.75, keep=0.1) == plain
    assert plain.nominal_share == plain.key_share == plain.value_share == 0.75 / 16
    assert plain.with_keep(0.125).bits == 2
    assert plain.with_share(0.0625).bits == 1
    assert RotateK(bits=12).nominal_share == 0.5  # nothing is stored between 8 bits and 16
    assert RotateK(bits=16).nominal_share == 1
    assert title_of(Settings(channels=plain)) == "RotateK (0.75 bits)"
    assert plain.of_paper() == RotateK()
    assert RotateK(bits=0) == RotateK()  # forms and programs that need a number say 0
    assert RotateK(bits=0.75, calibration="bases.safetensors").calibration is not None
    settings = Settings.of(bits=0.75)
    assert Settings.from_dict(settings.as_dict()) == settings


@pytest.mark.parametrize("bits", [-1, 0.1, 17, float("nan"), "two"])
def test_bits_out_of_range_are_refused(bits: Any) -> None:
    with pytest.raises(SettingError, match=r"bits.*\[0.25, 16\]"):
        Settings.of(bits=bits)


def test_columns_of_a_comparison_keep_the_same_share() -> None:
    columns = matched(Settings.of(bits=0.75))
    shares = [one.nominal_kv for name, one in columns.items() if name != "baseline"]
    assert shares == pytest.approx([0.75 / 16] * len(shares), rel=1e-4)
    assert columns["rotatek as in its paper"].channels == RotateK()


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


def test_a_token_not_looked_at_still_counts() -> None:
    mass = torch.tensor([[0.9, 0.1, 0.0, 7.0]])
    shares = token_shares(mass, torch.tensor([3]))[0, 0]
    assert float(shares.sum()) == pytest.approx(1)
    assert shares[3] == 0  # padding
    assert 0 < float(shares[2]) < float(shares[1]) < float(shares[0])


# The allotment


@pytest.mark.parametrize("bits", [0.25, 0.75, 2.0, 8.0])
def test_the_budget_is_spent_and_not_passed(bits: float) -> None:
    visuals = stored([states(i) for i in range(3)], bits=bits)
    granule = 8 * GRANULE / (3 * 2 * HEADS * D)  # a group's deepest step, over all numbers
    assert bits - granule <= spent(visuals) <= bits
    for visual in visuals:
        for depth in depths(visual):
            assert bool((depth.diff(dim=-1) <= 0).all())  # a channel of more energy has no fewer


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
    plain = stored(layers, bits=1)
    scaled = stored([replace(layers[0], made={}), odd, replace(layers[2], made={})], bits=1)
    for one, other in zip(plain, scaled, strict=True):
        assert all(map(torch.equal, depths(one), depths(other)))


def test_more_tokens_earn_no_more_bits() -> None:
    """Where a layer holds more tokens, a channel's bits cost more bytes there."""
    loss = torch.logspace(0, -3, D).expand(1, HEADS, D)
    few, many = (torch.tensor([n]) for n in (256, 1024))
    claims = [BitDemand(loss[None], tokens[None], 0, D) for tokens in (few, many)]
    found = allot_bits(claims, 1.0)
    assert int(found[0].sum()) > int(found[1].sum())


def test_columns_of_the_basis_are_paid_for() -> None:
    """With few tokens a column weighs as much as its bits: fewer channels are opened, deeper."""
    loss, count = torch.logspace(0, -3, 512).expand(1, HEADS, 512), torch.tensor([128])
    free, paid = (
        allot_bits([BitDemand(loss[None], count[None], column, 512)], 1.5)[0] for column in (0, 516)
    )
    assert int((paid > 0).sum()) < int((free > 0).sum())


# What is stored


@pytest.mark.parametrize(("bits", "bar"), [(8, 1e-2), (4, 5e-2), (2, 0.2)])
def test_attention_over_planes_is_near_the_full_one(bits: float, bar: float) -> None:
    own = states()
    (visual,) = stored([own], bits=bits)
    q = own.queries[:, :, -1:]
    plain = attend_reference(q, Visual(own.keys, own.values, own.lengths), held(own.text), D**-0.5)
    got = attend_reference(q, visual, held(own.text), D**-0.5)
    assert float((got - plain).norm() / plain.norm()) <= bar


def test_sixteen_bits_are_the_numbers_as_they_are() -> None:
    own = states()
    (visual,) = stored([own], bits=16)
    assert visual.key_planes is None
    assert torch.equal(visual.keys, own.keys)
    assert torch.equal(visual.values, own.values)


def test_samples_of_a_batch_are_stored_as_alone() -> None:
    """Padding changes neither bits nor levels."""
    (both,) = stored([states()], bits=1)
    own = states()
    cut: dict[str, Any] = {
        name: getattr(own, name)[1:] for name in ("lengths", "queries", "window_alive")
    }
    text = Text(*(part[1:] for part in held(own.text)[:3]))
    kept: dict[str, Any] = {"keys": own.keys[1:, :, :90], "values": own.values[1:, :, :90]}
    (alone,) = stored([replace(own, **cut, **kept, text=text, entering=None, made={})], bits=1)
    assert all(torch.equal(a[1:], b) for a, b in zip(depths(both), depths(alone), strict=True))
    first, second = opened(both), opened(alone)
    width = second.keys.shape[-1]
    assert torch.equal(first.keys[1:, :, :90, :width], second.keys)


def test_bytes_are_those_of_planes_and_rows(picture: Picture) -> None:
    """Live bytes are the tensors' storages; a head's basis has rows for its own channels only."""
    vlm = tiny_qwen()
    prompt = vlm.embed(vlm.prompt(make_request(picture(150, 120), "what?", 4)))
    cache = RotateKCache(vlm.model, prompt.inputs(), Settings.of(bits=0.75))
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


class Counted(TorchDispatchMode):
    """Counts the operations that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def calls(count: int) -> Counter[str]:
    """Operations that compress so many layers."""
    layers = [states(i) for i in range(count)]
    stored([states(i) for i in range(count)], bits=1)  # constants are made once
    with Counted() as counted:
        stored(layers, bits=1)
    return counted.calls


def packed_together(
    states: Tensor, channels: Channels, shares: Tensor, lengths: Tensor, values: bool
) -> tuple[Tensor, Tensor]:
    """What any device but a processor does without kernels."""
    coordinates = coordinates_of(states, channels)
    steps = steps_along(coordinates, channels, shares, lengths)
    return pack(coordinates, channels.counts, steps, values)[0], steps


def test_layers_are_taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One solve, as many waits whatever the layers, and a handful of slices for each more; on a
    processor pieces are smaller, and channels are packed head by head."""
    monkeypatch.setattr("rotatek.methods.channels.rotatek.PENDING_BYTES", 1 << 36)
    monkeypatch.setattr(mixed_precision, "pack_on_processor", packed_together)
    few, many = calls(2), calls(8)
    assert few["_linalg_eigh"] == many["_linalg_eigh"] == 1
    for waits in ("_local_scalar_dense", "nonzero", "index"):  # index: with a mask, it waits
        assert many[waits] == few[waits]
    assert many.total() - few.total() <= 6 * 20


def launches(count: int) -> int:
    """The launches on a GPU to compress so many layers, all in one piece."""
    layers = [replace(states(i), entering=None) for i in range(count)]
    with pytest.MonkeyPatch.context() as patch, Launches() as counted, kernels_replaced(counted):
        patch.setattr("rotatek.methods.channels.rotatek.PENDING_BYTES", 1 << 36)
        stored(layers, bits=1)
    return counted.count


def test_what_is_launched_does_not_grow_with_the_layers() -> None:
    """All heads of all layers are taken together: 28 layers launch what 4 do."""
    launches(1)  # constants are made once
    few, many = launches(4), launches(28)
    assert many <= few + 2
    assert many <= 190


def test_capped_columns_store_what_all_columns_would(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [states(i) for i in range(2)]
    whole = stored(layers, bits=0.5)
    monkeypatch.setattr(mixed_precision, "CAP", 48)
    capped = stored([states(i) for i in range(2)], bits=0.5)
    for one, other in zip(whole, capped, strict=True):
        assert all(map(torch.equal, depths(one), depths(other)))
        assert torch.equal(held(one.key_planes).data, held(other.key_planes).data)


def test_layers_measured_apart_are_stored_as_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is measured whenever it weighs enough; one budget still serves all of it."""
    together = stored([states(i) for i in range(3)], bits=1)
    monkeypatch.setattr("rotatek.methods.channels.rotatek.PENDING_BYTES", 8)
    apart = stored([states(i) for i in range(3)], bits=1)
    for one, other in zip(together, apart, strict=True):
        assert all(map(torch.equal, depths(one), depths(other)))


def test_the_order_of_tokens_changes_no_bit() -> None:
    own = states(tokens=(150,))
    order = torch.randperm(150, generator=torch.Generator().manual_seed(3))
    turned = replace(own, keys=own.keys[:, :, order], values=own.values[:, :, order], made={})
    (one,), (other,) = stored([own], bits=1), stored([turned], bits=1)
    assert all(map(torch.equal, depths(one), depths(other)))


@pytest.mark.parametrize(("options", "asks"), [({"bits": 0.75}, 4), ({"keep_channels": 0.25}, 0)])
def test_the_rows_of_the_stream_are_picked_out_only_when_asked(
    picture: Picture, monkeypatch: pytest.MonkeyPatch, options: dict[str, float], asks: int
) -> None:
    """Only bits ask for what a layer reads, once a layer, and nothing of it stays."""
    asked: list[Tensor | None] = []
    vlm, entering = tiny_qwen(), TokenPlan.entering

    def noted(plan: TokenPlan) -> Tensor | None:
        asked.append(entering(plan))
        return asked[-1]

    monkeypatch.setattr(TokenPlan, "entering", noted)
    prompt = vlm.embed(vlm.prompt(make_request(picture(150, 120), "what?", 4)))
    cache = RotateKCache(vlm.model, prompt.inputs(), Settings.of(**options))
    prefill(vlm, prompt, cache)
    assert len(asked) == asks
    assert all(rows is not None for rows in asked)
    assert entering(cache.plan) is None


def test_a_norm_behind_the_output_undoes_its_scale(picture: Picture) -> None:
    """Gemma norms an attention's output before it is added: an output projection 16 times as large
    changes no answer, so it may not change the bits."""

    def counts() -> list[Tensor]:
        prompt = vlm.embed(vlm.prompt(make_request(picture(150, 120), "what?", 4)))
        cache = RotateKCache(vlm.model, prompt.inputs(), Settings.of(bits=2))
        prefill(vlm, prompt, cache)
        sides = [held(layer.store).visual for layer in cache.layers]
        return [held(p).counts for v in sides for p in (v.key_planes, v.value_planes)]

    vlm = tiny_gemma3()
    before = counts()
    with torch.no_grad():
        held(attention_of(decoder_layers(vlm.model)[0])).o_proj.weight.mul_(16)
    assert all(map(torch.equal, counts(), before))


# What the figure shows


def test_channels_above_the_water_level_are_those_with_bits() -> None:
    spectra = 0.8 ** torch.arange(D).expand(3, HEADS, D) * torch.logspace(0, 2, 3)[:, None, None]
    chosen = RotateK(bits=0.75)
    depths, level = held(chosen.key_bits(spectra)), held(chosen.water_level(spectra))
    energy = spectra.unflatten(-1, (-1, GRANULE)).mean(-1)
    assert torch.equal(energy > level, depths.unflatten(-1, (-1, GRANULE))[..., 0] > 0)
    assert RotateK().water_level(spectra) is None
