"""`allot="layers"`: what is packed together shares a budget; no layer waits for the last one."""

from dataclasses import replace

import pytest
import torch

from kernels.reference import expanded
from rotatek.methods.channels import RotateK
from rotatek.methods.channels import rotatek as method_file
from rotatek.methods.channels.batched_rotation import held, pending_bytes
from rotatek.methods.channels.layer_batch import BitStore
from rotatek.methods.channels.store import Store
from rotatek.methods.settings import Settings
from tests.unit.test_times_smaller import NEAR, plain, states, weight

SHAPE = (6, 2, 4, 64)  # layers, kv heads, heads, d


def filled(method: RotateK) -> tuple[list[Store], list[int]]:
    """The stores of a prompt, and after each layer how many still hold full Keys and Values."""
    layers = [states(i, [200], SHAPE, torch.float32) for i in range(SHAPE[0])]
    found: list[Store] = []
    waiting = []
    for each in layers:
        found.append(method.measure(each))
        method.pack(found, last=each is layers[-1])
        waiting.append(sum(isinstance(s, BitStore) and s.pending is not None for s in found))
    return found, waiting


@pytest.fixture
def two_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers' Keys are all that may wait."""
    one = pending_bytes(states(0, [200], SHAPE, torch.float32))
    monkeypatch.setattr(method_file, "WAITING_BYTES", 2 * one)


@pytest.mark.usefixtures("two_layers")
@pytest.mark.parametrize("method", [RotateK(bits=1), RotateK(smaller=16)])
def test_full_keys_go_layer_by_layer(method: RotateK) -> None:
    _, waiting = filled(replace(method, allot="layers"))
    assert waiting == [1, 0, 1, 0, 1, 0]
    _, waiting = filled(method)
    assert waiting == [1, 2, 3, 4, 5, 0]


@pytest.mark.usefixtures("two_layers")
def test_the_whole_keeps_its_budget() -> None:
    found, _ = filled(RotateK(smaller=8, allot="layers"))
    layers = [states(i, [200], SHAPE, torch.float32) for i in range(SHAPE[0])]
    assert plain(layers) / weight(found) == pytest.approx(8, rel=NEAR)
    for start in range(0, SHAPE[0], 2):
        part = slice(start, start + 2)
        assert plain(layers[part]) / weight(found[part]) == pytest.approx(8, rel=NEAR)


def test_a_prompt_that_waits_for_all_layers_is_stored_the_same() -> None:
    """Where all layers fit in what may wait, the two share the same budget, bit for bit."""
    for one, other in zip(
        filled(RotateK(bits=1, allot="layers"))[0], filled(RotateK(bits=1))[0], strict=True
    ):
        planes = [(s.visual.key_planes, s.visual.value_planes) for s in (one, other)]
        for mine, its in zip(*planes, strict=True):
            assert torch.equal(held(mine).data, held(its).data)


@pytest.mark.usefixtures("two_layers")
def test_what_is_stored_is_as_near_as_with_one_budget() -> None:
    layers = [states(i, [200], SHAPE, torch.float32) for i in range(SHAPE[0])]
    errors = []
    for allot in ("model", "layers"):
        found, _ = filled(RotateK(bits=2, allot=allot))
        off = [
            float((got - want).square().mean() / want.square().mean())
            for store, each in zip(found, layers, strict=True)
            for got, want in zip(expanded(store.read(), 64), (each.keys, each.values), strict=True)
        ]
        errors.append(sum(off))
    assert errors[1] < 1.5 * errors[0]


def test_without_bits_there_is_nothing_to_share() -> None:
    assert RotateK(allot="layers") == RotateK()
    assert Settings.of(bits=1, allot="layers") != Settings.of(bits=1)
