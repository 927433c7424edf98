"""The arm for stored bytes: its transform, its bits, and what a file of it weighs."""

import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import stored_keys
from benchmarks.__main__ import main
from benchmarks.kvtc import BITS, Calibration, Kvtc, KvtcStore, Rope, allotted, quantised, step_of
from benchmarks.real_keys import Row
from benchmarks.tests.test_real_keys import CONTEXT, text, tiny
from rotatek.methods.channels import LayerStates

__all__ = ["text"]


def states(seed: int, layer: int = 0) -> LayerStates:
    """One sample whose heads share directions."""
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(32, 32, generator=torch.Generator().manual_seed(layer))
    mixed = mixed * 0.8 ** torch.arange(32)[:, None]
    both = torch.randn(2, 60, 32, generator=generator) @ mixed + 1
    keys, values = both.unflatten(2, (2, 16)).transpose(1, 2)[:, None]
    alive = torch.ones(1, 4, dtype=torch.bool)
    return LayerStates(keys, values, torch.tensor([60]), torch.zeros(1, 4, 4, 16), alive, layer)


@torch.inference_mode()
def test_the_rotary_embedding_comes_off_and_on() -> None:
    """As the model puts it on: Keys of the same token differ in nothing but their place."""
    model, _ = tiny()
    rope, places = Rope(model), torch.arange(4, 14)
    keys = torch.randn(1, 2, 10, 16)
    turned = rope.turned(keys, places, 0)
    assert torch.allclose(rope.turned(turned, places, 0, back=True), keys, atol=1e-5)
    out = model.model(torch.full((1, 14), 7), use_cache=True)
    cache = out.cache if hasattr(out, "cache") else out.past_key_values
    plain = rope.turned(cache.layers[0].keys[:, :, 4:], places, 0, back=True)
    assert float((plain - plain[:, :, :1]).abs().max()) < 1e-4


def test_bits_are_those_of_the_least_error() -> None:
    generator = torch.Generator().manual_seed(1)
    error = torch.rand(4, len(BITS), generator=generator).sort(-1, descending=True).values
    for budget in (0, 5, 9, 16, 32):
        found = allotted(error, budget / 4)
        assert int(found.sum()) <= budget
        cost = sum(float(error[i, BITS.index(int(b))]) for i, b in enumerate(found))
        every = (
            sum(float(error[i, c]) for i, c in enumerate(chosen))
            for chosen in itertools.product(range(len(BITS)), repeat=4)
            if sum(BITS[c] for c in chosen) <= budget
        )
        assert cost == pytest.approx(min(every))


def test_steps_are_those_of_a_gaussian() -> None:
    assert step_of(2) == pytest.approx(1.224, abs=0.01)  # Max (1960): three levels
    numbers = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(2)) * 3
    codes, steps = quantised(numbers, torch.tensor([2, 4]))
    wrong = (codes * steps.float() - numbers).square().mean(0) / 9
    assert wrong.tolist() == pytest.approx([0.190, 0.0130], rel=0.05)
    assert codes[:, 0].unique().tolist() == [-1, 0, 1]
    assert (quantised(numbers, torch.tensor([0, 0]))[0] == 0).all()


def test_more_bits_err_less_and_weigh_what_is_deflated() -> None:
    found = Calibration(Rope(tiny()[0]), torch.arange(4, 64))
    for seed in (1, 2):
        for layer in (0, 1):
            found.record(states(seed, layer))
    errors, sizes, other = [], [], states(3)
    for bits in (0.5, 2.0, 6.0):
        store = Kvtc.made(found, bits).compress(other)
        assert isinstance(store, KvtcStore)
        read = store.read()
        errors.append(float((read.keys - other.keys).square().mean() / other.keys.var()))
        sizes.append(sum(code.nbytes for code in store.codes))
        for code in store.codes:
            assert len(zlib.decompress(code.deflated)) == 60 * len(code.steps)
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.02
    assert sizes == sorted(sizes) and sizes[-1] < 2 * 60 * 32 * 2 * 0.55


def test_every_arm_is_weighed(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stored_keys, "load", tiny)
    words = f"stored-keys tiny {text} --contexts {CONTEXT} --segments 1 --out {tmp_path}".split()
    assert main(words) == 0
    said = capsys.readouterr().out
    for name in ("RotateK 2 bits", "KIVI 2 bits", "TurboQuant 4 bits", "KVTC 0.75 bits"):
        assert name in said
    kept, means = tmp_path / "stored-rows.csv", tmp_path / "stored.csv"
    whole, before = kept.read_text(), means.read_text()
    lines = whole.splitlines(keepends=True)
    kept.write_text("".join(lines[:-2]))  # cut short
    added = list[str]()
    rows_of = stored_keys.rows_of

    def seen(*given: Any) -> Iterator[Row]:
        added.extend(given[4])
        return rows_of(*given)

    monkeypatch.setattr(stored_keys, "rows_of", seen)
    assert main(words) == 0 and added == ["KVTC 0.75 bits", "KVTC 0.5 bits"]
    assert kept.read_text() == whole and means.read_text() == before
    added.clear()
    monkeypatch.delattr(stored_keys, "calibrated")  # nothing is left to do
    assert main(words) == 0 and not added
