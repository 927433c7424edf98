"""Axes beside a model's weights: `smaller` takes them where they serve it better."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernels.reference import expanded
from rotatek.errors import CalibrationUnusable
from rotatek.methods.calibration import Calibrator
from rotatek.methods.channels import RotateK
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.layer_batch import BitStore
from rotatek.methods.channels.store import Store
from rotatek.methods.rotation.stored_bases import AXES, LayerAxes, offered_axes
from tests.unit.test_times_smaller import NEAR, plain, planes_of, states, stores, weight

SHAPE = (4, 2, 4, 128)  # layers, kv heads, heads, d


def turned(layer: int, tokens: int, seed: int, other: int = 0) -> LayerStates:
    """States of one prompt, along directions that all prompts of the same `other` have."""
    own = states(layer, [tokens], SHAPE, torch.float32)
    generator = torch.Generator().manual_seed(1000 * other + layer)
    turn = torch.linalg.qr(torch.randn(128, 128, generator=generator))[0]
    fall = 0.9 ** torch.arange(128)
    keys, values = (
        torch.randn(part.shape, generator=torch.Generator().manual_seed(seed + 2 * layer + i))
        * fall
        @ turn.T
        for i, part in enumerate((own.keys, own.values))
    )
    states_ = {"keys": keys.bfloat16(), "values": values.bfloat16(), "layer": layer, "made": {}}
    text = own.text
    assert text is not None
    halves = text._replace(keys=text.keys.bfloat16(), values=text.values.bfloat16())
    return replace(own, queries=own.queries.bfloat16(), text=halves, **states_)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's, with axes learned from other prompts."""
    found, folder = Calibrator(), tmp_path_factory.mktemp("model")
    for seed in (50, 60, 70):
        for layer in range(SHAPE[0]):
            found.record(turned(layer, 600, seed))
    found.save(folder / AXES, "random", rows=48)
    return folder


def offering(
    folder: Path, tokens: int, other: int = 0
) -> tuple[list[LayerStates], list[Store], list[LayerAxes]]:
    """Layers of a prompt, what `smaller` stores of them, and what was offered."""
    axes = list(offered_axes(folder, SHAPE[0]) or ())
    layers = [replace(turned(layer, tokens, 5, other), basis=own) for layer, own in enumerate(axes)]
    return layers, stores(RotateK(smaller=16), layers), axes


def error(layers: list[LayerStates], found: list[Store]) -> float:
    """Share of the energy of Keys and Values that is lost."""
    lost = 0.0
    for own, store in zip(layers, found, strict=True):
        for whole, read in zip((own.keys, own.values), expanded(store.read(), 128), strict=True):
            lost += float((whole.float() - read.float()).square().mean() / whole.float().var())
    return lost / 2 / len(layers)


def test_a_small_prompt_takes_them_and_loses_less_at_the_same_bytes(folder: Path) -> None:
    layers, found, axes = offering(folder, 300)
    own = [replace(one, basis=None, made={}) for one in layers]
    without = stores(RotateK(smaller=16), own)
    for each in (found, without):
        assert plain(layers) / weight(each) == pytest.approx(16, rel=NEAR)
    assert error(layers, found) < 0.7 * error(layers, without)
    for store, lent in zip(found, axes, strict=True):
        assert isinstance(store, BitStore)
        assert (store.borrowed, store.calibration) == ("kv", lent.digest)
        sides = zip(planes_of(store), lent.on(torch.device("cpu")), strict=True)
        assert all(planes.basis.data_ptr() == side.rows.data_ptr() for planes, side in sides)


def test_a_prompt_that_they_do_not_fit_has_its_own(folder: Path) -> None:
    """The same bits as without them."""
    layers, found, _ = offering(folder, 3000, other=1)
    without = stores(RotateK(smaller=16), [replace(one, basis=None, made={}) for one in layers])
    for store, other in zip(found, without, strict=True):
        assert isinstance(store, BitStore) and not store.calibration
        pairs = zip(planes_of(store), planes_of(other), strict=True)
        assert all(a.axes is None and torch.equal(a.counts, b.counts) for a, b in pairs)


def test_a_stored_layer_opens_with_the_same_axes_alone(folder: Path) -> None:
    _, (store, *_), (axes, *_) = offering(folder, 300)
    assert isinstance(store, BitStore)
    bare = store.without_shared()
    again = bare.with_shared(axes)
    pairs = zip(expanded(again.read(), 128), expanded(store.read(), 128), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    for wrong in (None, replace(axes, digest="another")):
        with pytest.raises(CalibrationUnusable, match="beside the model's weights"):
            bare.with_shared(wrong)


def test_no_file_offers_nothing_and_another_models_is_refused(folder: Path, tmp_path: Path) -> None:
    assert offered_axes(tmp_path, 4) is None
    with pytest.raises(CalibrationUnusable):
        offered_axes(folder, 5)
    (tmp_path / AXES).write_bytes(b"noise" * 9)
    with pytest.raises(CalibrationUnusable):
        offered_axes(tmp_path, 4)
