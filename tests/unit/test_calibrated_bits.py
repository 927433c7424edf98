"""Bits on axes of a calibration: nothing solved, no row held, and no other file accepted."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from kernels.planes import rows_of
from kernels.reference import Visual, attend_reference
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cli import ask
from rotatek.cli.main import parser_for
from rotatek.engine.decode import decode, prefill
from rotatek.engine.engine import Engine
from rotatek.engine.events import Token
from rotatek.errors import CalibrationUnusable, SettingError
from rotatek.inputs.request import make_request
from rotatek.methods.calibration import PREFILL, Calibrator
from rotatek.methods.channels.batched_rotation import LayerGroup, held
from rotatek.methods.channels.bit_bases import find_axes
from rotatek.methods.channels.mixed_precision import moments
from rotatek.methods.rotation.stored_bases import load_axes
from rotatek.methods.settings import Settings
from rotatek.models import Embedded, VisionLanguageModel
from tests.fixtures import Picture, at_once
from tests.tiny import tiny_qwen
from tests.unit.test_bits import Counted, D, states, stored

NEW = 6


@pytest.fixture(scope="module")
def vlm() -> VisionLanguageModel:
    return tiny_qwen()


@pytest.fixture
def prompt(vlm: VisionLanguageModel, picture: Picture) -> Embedded:
    return vlm.embed(vlm.prompt(make_request(picture(200, 150), "what?", NEW)))


@pytest.fixture
def file(vlm: VisionLanguageModel, picture: Picture, tmp_path: Path) -> str:
    """Learned from two other prompts."""
    found = Calibrator()
    for seed in (1, 2):
        asked = make_request(picture(160 + 40 * seed, 150, seed=seed), "which?", 1)
        embedded = vlm.embed(vlm.prompt(asked))
        prefill(vlm, embedded, RotateKCache(vlm.model, embedded.inputs(), PREFILL, recorder=found))
    found.save(tmp_path / "axes.safetensors", vlm.name)
    return str(tmp_path / "axes.safetensors")


def filled(
    vlm: VisionLanguageModel, embedded: Embedded, **options: Any
) -> tuple[RotateKCache, Tensor]:
    cache = RotateKCache(vlm.model, embedded.inputs(), Settings.of(**options))
    return cache, prefill(vlm, embedded, cache)[0]


def layer_file(path: Path, layers: int = 1, seed: int = 0) -> str:
    """Learned from `states` as they are."""
    found = Calibrator()
    for layer in range(layers):
        own = states(layer, tokens=(150,))
        found.record(replace(own, layer=layer, made={}) if not seed else states(layer, (80,)))
    found.save(path, "states")
    return str(path)


# The axes


def test_axes_learned_from_one_prompt_are_its_own(tmp_path: Path) -> None:
    """The same energies, and the same bits along them, with nothing solved."""
    own = states(tokens=(150,))
    (shared,) = load_axes(layer_file(tmp_path / "x"), 1)
    sides = moments(LayerGroup([own]))
    lent = [
        side._replace(shared=[axes])
        for side, axes in zip(sides, shared.on(own.keys.device), strict=True)
    ]
    both = find_axes(sides, D).energy, find_axes(lent, D).energy
    for mine, theirs in zip(*both, strict=True):
        least = 1e-6 * float(mine.max())  # what float32 leaves of the largest
        torch.testing.assert_close(theirs, mine, rtol=2e-2, atol=least)
        kept = theirs[..., :32].sum() / theirs.sum()
        assert float(kept) == pytest.approx(float(mine[..., :32].sum() / mine.sum()))


def test_a_prefill_with_a_calibration_solves_nothing(tmp_path: Path) -> None:
    layers = [states(i) for i in range(3)]
    axes = load_axes(layer_file(tmp_path / "x", 3), 3)
    lent = [replace(one, basis=each) for one, each in zip(layers, axes, strict=True)]
    with Counted() as counted:
        found = stored(lent, bits=1)
    assert not counted.calls["_linalg_eigh"]
    with Counted() as counted:
        stored([states(i) for i in range(3)], bits=1)
    assert counted.calls["_linalg_eigh"]
    for visual, each in zip(found, axes, strict=True):
        basis = held(visual.key_planes).basis
        assert basis.data_ptr() == each.on(basis.device)[0].rows.data_ptr()


@pytest.mark.parametrize(("bits", "bar"), [(8, 1e-2), (4, 5e-2), (2, 0.2)])
def test_attention_on_anothers_axes_is_near_the_full_one(
    tmp_path: Path, bits: float, bar: float
) -> None:
    """All axes of a space hold whatever another prompt's tokens are; ragged, with text beside."""
    own = states(tokens=(150, 90))
    (axes,) = load_axes(layer_file(tmp_path / "x", seed=1), 1)
    (visual,) = stored([replace(own, basis=axes)], bits=bits)
    q, text = own.queries[:, :, -1:], held(own.text)
    plain = attend_reference(q, Visual(own.keys, own.values, own.lengths), text, D**-0.5)
    got = attend_reference(q, visual, text, D**-0.5)
    assert float((got - plain).norm() / plain.norm()) <= bar
    planes = held(visual.key_planes)
    assert planes.axes is not None and planes.axes.dtype == torch.uint8
    assert rows_of(planes).shape[2] == int(planes.counts[..., 0].max())


# Bytes


def test_a_request_holds_no_row_of_the_basis(
    vlm: VisionLanguageModel, prompt: Embedded, file: str
) -> None:
    own, _ = filled(vlm, prompt, bits=0.75)
    first, _ = filled(vlm, prompt, bits=0.75, calibration=file)
    second, _ = filled(vlm, prompt, bits=2, calibration=file)
    for cache in (own, first, second):
        count = cache.bytes()
        live = storage_bytes([*(t for _, t in cache.tensors()), *cache.marks()])
        assert count.total == live == sum(count.parts.values())
    assert first.bytes().parts["bases"] < own.bytes().parts["bases"]
    assert 0 < own.bytes().shared < first.bytes().shared  # the output metrics; bases, too
    held_by = [
        [t.data_ptr() for la in c.layers for t in la.store.shared()] for c in (first, second)
    ]
    assert held_by[0] == held_by[1]
    assert len(held_by[0]) == 2 * len(first.layers)
    assert not set(held_by[0]) & {tensor.data_ptr() for _, tensor in first.tensors()}


# Side by side


def test_rows_with_axes_of_their_own_and_of_a_calibration_are_answered_together(
    vlm: VisionLanguageModel, picture: Picture, file: str
) -> None:
    kinds: list[dict[str, Any]] = [
        {"bits": 0.75},
        {"bits": 0.75, "calibration": file},
        {"keep_channels": 0.25},
    ]

    def said(engine: Engine, number: int) -> list[int]:
        asked = make_request(picture(120 + 30 * number, 140, seed=number), "what?", 8)
        events = engine.compare(asked, {"x": Settings.of(**kinds[number % 3])}, trace=False)
        return [event.token_id for event in events if isinstance(event, Token)]

    alone = [said(Engine(vlm), number) for number in range(6)]
    engine = Engine(vlm)
    assert at_once([partial(said, engine, number) for number in range(6)]) == alone
    assert engine.scheduler.bytes == 0


# Files


def test_a_stored_cache_goes_on_with_its_calibration_and_no_other(
    vlm: VisionLanguageModel, prompt: Embedded, file: str, tmp_path: Path
) -> None:
    cache, logits = filled(vlm, prompt, bits=0.75, calibration=file)
    path = tmp_path / "page.cache"
    size = cache.save(path)
    own, _ = filled(vlm, prompt, bits=0.75)
    assert size < own.save(tmp_path / "own.cache")
    wanted = [step.tokens for step in decode(vlm, prompt, cache, logits, NEW)]
    wrongs: list[dict[str, Any]] = [{}, {"calibration": _another(file, tmp_path)}]
    for wrong in wrongs:
        with pytest.raises(CalibrationUnusable, match=r"that very file|with this model"):
            RotateKCache.load(path, vlm.model, **wrong)
    loaded = RotateKCache.load(path, vlm.model, calibration=file)
    assert loaded.bytes().shared
    assert [step.tokens for step in decode(vlm, prompt, loaded, logits, NEW)] == wanted
    with pytest.raises(SettingError):
        RotateKCache.load(path, vlm.model, shelf=file)


def _another(file: str, folder: Path) -> str:
    """The same axes with one number changed."""
    parts = load_file(file)
    parts["layer.0"][0, 0, 0] += 1
    save_file(parts, folder / "other.safetensors")
    return str(folder / "other.safetensors")


def test_a_file_without_axes_or_of_another_model_is_refused(
    vlm: VisionLanguageModel, prompt: Embedded, file: str, tmp_path: Path
) -> None:
    bare = {name: each for name, each in load_file(file).items() if name.startswith("layer.")}
    save_file(bare, tmp_path / "bare.safetensors")
    with pytest.raises(CalibrationUnusable):
        filled(vlm, prompt, bits=0.75, calibration=str(tmp_path / "bare.safetensors"))
    four = layer_file(tmp_path / "other", 4)
    with pytest.raises(CalibrationUnusable):
        filled(vlm, prompt, bits=0.75, calibration=four)


def test_a_question_on_a_stored_cache_may_name_its_calibration() -> None:
    """Other settings stay refused: a stored cache keeps its own."""
    line = ["ask", "Which?", "--load-cache", "x.cache"]
    line += ["--calibration", "axes.safetensors"]
    args = parser_for(line).parse_args(line)
    assert ask._question_alone(args) == "Which?"
