"""`smaller`: how many times fewer bytes the visual tokens of a prompt take, all things counted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.planes import DEPTHS, GRANULE, Planes, head_words
from kernels.reference import Text, expanded
from rotatek.bridge.state_layers import key_layers
from rotatek.cache.bytes import storage_bytes
from rotatek.compare.columns import title_of
from rotatek.compare.report import Column
from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Finished
from rotatek.errors import SettingError
from rotatek.inputs.request import make_request
from rotatek.methods.channels import RotateK
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.batched_rotation import held
from rotatek.methods.channels.bit_allocation import BitDemand, allot_bytes
from rotatek.methods.channels.layer_batch import BitStore
from rotatek.methods.channels.store import Store
from rotatek.methods.settings import Settings
from tests.fixtures import Picture
from tests.tiny import tiny_qwen

NEAR = 0.03  # of the bytes that were asked for
POCKETS = {"pocket": (10, 2, 4, 128), "pocket-smol": (30, 3, 9, 64)}  # layers, kv heads, heads, d


def states(
    layer: int, tokens: list[int], shape: tuple[int, int, int, int], dtype: torch.dtype
) -> LayerStates:
    """One layer's random states, whose channels fall in size as those of Keys do."""
    _, kv, heads, d = shape
    generator = torch.Generator().manual_seed(layer)
    fall = (0.97 - 0.01 * layer) ** torch.arange(d)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, d, generator=generator).mul(fall).to(dtype)

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
@pytest.mark.parametrize("tokens", [64, 97, 150, 280, 437, 1100, 3000])
def test_live_bytes_are_within_three_percent_of_what_was_asked(name: str, tokens: int) -> None:
    shape = POCKETS[name]
    for times in (4, 8, 16, 20, 32):
        layers = [states(i, [tokens], shape, torch.bfloat16) for i in range(shape[0])]
        got = plain(layers) / weight(stores(RotateK(smaller=times), layers))
        assert got == pytest.approx(times, rel=NEAR)


def test_a_model_of_float32_is_as_many_times_smaller() -> None:
    shape = POCKETS["pocket"]
    layers = [states(i, [300], shape, torch.float32) for i in range(shape[0])]
    got = plain(layers) / weight(stores(RotateK(smaller=16), layers))
    assert got == pytest.approx(16, rel=NEAR)


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
            column = 4 + (d if planes.axes is None else 1)
            total += 2 * int(head_words(planes.counts[row : row + 1], tokens).sum()) + 28 * heads
            total += int(planes.counts[row, :, 0].sum()) * column
    return total


@pytest.mark.parametrize("tokens", [[384, 380], [1100, 300], [640, 97, 437]])
@pytest.mark.parametrize("times", [8, 16])
def test_each_prompt_of_a_batch_has_the_bytes_that_it_has_alone(
    tokens: list[int], times: float
) -> None:
    """And the same bits: what pads it is not charged to it."""
    shape = POCKETS["pocket"]
    layers = [states(i, tokens, shape, torch.bfloat16) for i in range(shape[0])]
    both = stores(RotateK(smaller=times), layers)
    for row, count in enumerate(tokens):
        own = 2 * 2 * 2 * 128 * count * len(layers)
        assert own / weighs_alone(both, layers, row) == pytest.approx(times, rel=NEAR)
        single = stores(RotateK(smaller=times), [alone(one, row) for one in layers])
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
    layers = [states(i, [300, 0 if i % 2 else 300], shape, torch.bfloat16) for i in range(10)]
    found = stores(RotateK(smaller=16), layers)
    for row in range(2):
        own = sum(2 * 2 * 2 * 128 * int(one.lengths[row]) for one in layers)
        assert own / weighs_alone(found, layers, row) == pytest.approx(16, rel=NEAR)
    for store in found[1::2]:
        assert not any(int(planes.counts[1].sum()) for planes in planes_of(store))


def test_a_short_prompt_comes_as_near_as_it_can() -> None:
    """Means and positions of its heads alone may weigh more than the budget; 8 bits, less."""
    shape = POCKETS["pocket"]
    layers = [states(i, [20], shape, torch.bfloat16) for i in range(shape[0])]
    least = stores(RotateK(smaller=64), layers)
    assert all(not int(p.counts.sum()) for s in least for p in [s.visual.key_planes] if p)
    layers = [states(i, [600], shape, torch.bfloat16) for i in range(shape[0])]
    most = stores(RotateK(smaller=2), layers)
    bits = [int(p.counts.sum()) * 2 for s in most for p in [s.visual.key_planes] if p]
    assert sum(bits) <= 8 * 2 * 128 * shape[0]


def test_what_is_left_of_a_budget_is_filled_and_never_passed_by_more_than_it_missed() -> None:
    loss = torch.linspace(8, 0.1, 64)[None, None, None]
    claim = BitDemand(loss, torch.tensor([[300]]), 132, 64)
    step = 384 * GRANULE * 2 // 8
    for bytes_ in range(4000, 60000, 777):
        depths = allot_bytes([claim], torch.tensor([float(bytes_)]))[0][0, 0, 0]
        assert bool((depths.diff() <= 0).all())
        took = int(depths.sum()) // 2 * step + int((depths > 0).sum()) * GRANULE * 132
        full = 4 * (DEPTHS[-1] // 2 * step + GRANULE * 132)
        assert abs(took - min(bytes_, full)) <= step + 1


# The option


def test_smaller_stands_for_what_it_replaces() -> None:
    one = RotateK(smaller=16)
    assert RotateK(smaller=16, keep=0.1) == one
    assert one.nominal_share == one.key_share == one.value_share == 1 / 16
    assert one.with_share(1 / 8).smaller == 8 and one.with_share(0.0).smaller == 64
    assert one.of_paper() == RotateK() == RotateK(smaller=0)
    assert title_of(Settings(channels=one)) == "RotateK (16 times smaller)"
    settings = Settings.of(smaller=16)
    assert Settings.from_dict(settings.as_dict()) == settings


@pytest.mark.parametrize("given", [{"smaller": 1.5}, {"smaller": 65}, {"smaller": "much"}])
def test_what_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=r"smaller.*\[2, 64\]"):
        Settings.of(**given)


def test_bits_and_smaller_together_are_refused() -> None:
    with pytest.raises(SettingError, match="left out where bits is given"):
        Settings.of(bits=1, smaller=16)


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


def leaning(layer: int, tokens: int, shape: tuple[int, int, int, int], mixes: bool) -> LayerStates:
    """States whose Keys are along a few directions of all channels, or along channels."""
    own = states(layer, [tokens], shape, torch.bfloat16)
    if not mixes:
        return own
    turn = torch.linalg.qr(torch.randn(shape[3], shape[3], generator=torch.manual_seed(9)))[0]
    fall = 0.7 ** torch.arange(shape[3])
    return replace(own, keys=((own.keys.float() * fall) @ turn.T).to(own.keys))


@pytest.mark.parametrize("mixes", [False, True])
def test_channels_are_turned_only_where_that_is_worth_the_bytes(
    mixes: bool, tmp_path: Path
) -> None:
    """Keys along channels stay as they are, beside a constant that is no request's; the bytes are
    those that were asked for, and what is read back is what was stored, from a file too."""
    shape = (3, 1, 4, 256)
    layers = [leaning(i, 1400 if mixes else 200, shape, mixes) for i in range(shape[0])]
    found = stores(RotateK(smaller=8), layers)
    assert plain(layers) / weight(found) == pytest.approx(8, rel=NEAR)
    for store, own in zip(found, layers, strict=True):
        assert isinstance(store, BitStore) and store.visual.key_planes is not None
        assert (store.visual.key_planes.axes is None) == mixes == ("k" not in store.unturned)
        read = expanded(store.read(), shape[3])
        away = (read[0].float() - own.keys.float()).square().mean() / own.keys.float().var()
        assert float(away) < 0.4
        bare = store.without_shared()
        if not mixes:
            assert bare.visual.key_planes is not None
            assert bare.visual.key_planes.basis.numel() == 0
        again = expanded(bare.with_shared(None).read(), shape[3])
        assert all(torch.equal(a, b) for a, b in zip(again, read, strict=True))


def test_stored_and_served_beside_each_other(picture: Picture, tmp_path: Path) -> None:
    """A cache whose channels are as they were decodes from a file, and in a running batch."""
    engine = Engine(tiny_qwen())
    settings = Settings.of(smaller=3)
    requests = [make_request(picture(*size, seed=4), "what?", 6) for size in ((150, 120), (90, 60))]
    alone = []
    for request in requests:
        conversation = Conversation()
        list(engine.compare(request, {"a": settings}, conversation=conversation))
        alone.append(conversation.columns[0].tokens)
        kept = [layer.store for layer in key_layers(conversation.columns[0].cache)]
        conversation.save(tmp_path / "one.cache")
        again = Conversation.load(tmp_path / "one.cache", engine.vlm)
        said = []
        for one in (conversation, again):
            done = [e for e in engine.follow(one, "and why?", 6) if isinstance(e, Finished)]
            said.append(done[0].answer)
            one.close()
        assert said[0] == said[1]
        assert all(isinstance(store, BitStore) for store in kept)
