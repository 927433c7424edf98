"""Layers rotated together against one by one, and when they are; the storages they share."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.reference import Text, Visual, attend_reference, expanded
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.shared_prefill import SharedPrefill
from rotatek.engine.decode import prefill
from rotatek.inputs.request import make_request
from rotatek.methods import rotation
from rotatek.methods.channels import LayerStates, rotatek
from rotatek.methods.settings import Settings
from tests.fixtures import Picture, half
from tests.tiny import TINY

HEADS, D = 2, 32
LENGTHS = ((40, 40), (40, 33), (24, 24), (40, 40))  # of two samples; fewer behind a FastV layer
CHOICES: list[dict[str, Any]] = [
    {},
    {"weighting": "none"},
    {"solver": "eigh"},
]


def states(layer: int, dtype: torch.dtype = torch.float32) -> LayerStates:
    """One layer's random states, of the spectrum that Keys have, and zero beyond each length."""
    generator = torch.Generator().manual_seed(layer)
    lengths = torch.tensor(LENGTHS[layer], dtype=torch.int32)
    rows = int(lengths.max())
    keys = torch.randn(2, HEADS, rows, D, generator=generator) * 0.9 ** torch.arange(D)
    values = torch.randn(2, HEADS, rows, D, generator=generator)
    alive = rotation.token_mask(lengths, rows)[:, None, :, None]
    queries = torch.randn(2, 2 * HEADS, 6, D, generator=generator)
    keys, values = (t.masked_fill(~alive, 0.0).to(dtype) for t in (keys, values))
    real = torch.ones(2, 6, dtype=torch.bool)
    return LayerStates(keys, values, lengths, queries.to(dtype), real, layer)


def stored(prefills: list[LayerStates], settings: Settings) -> list[Any]:
    """The layers' visual tokens when all of them are settled."""
    method, stores = settings.channels, []
    for each in prefills:
        stores.append(method.measure(each))
        method.pack(stores, last=each is prefills[-1])
    return [store.read() for store in stores]


def same(first: Any, second: Any) -> bool:
    """Whether two layers' tensors agree in every bit."""
    pairs = zip(first, second, strict=True)
    return all(
        torch.equal(a, b) and a.dtype == b.dtype if isinstance(a, Tensor) else a == b
        for a, b in pairs
    )


def known(layer: int) -> dict[str, Any]:
    """A layer's own metric of its Values and eigenvectors from a file."""
    generator = torch.Generator().manual_seed(100 + layer)
    square = torch.randn(HEADS, D, 4 * D, generator=generator)
    metric = rotation.metric_root(square @ square.mT)
    basis = torch.linalg.qr(torch.randn(HEADS, D, D, generator=generator))[0]
    return {"value_metric": metric, "basis": basis}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("extra", CHOICES, ids=str)
@pytest.mark.parametrize("told", [False, True], ids=["alone", "metric and basis"])
def test_layers_together_or_one_by_one_are_the_same_bit_for_bit(
    extra: dict, dtype: torch.dtype, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> list[LayerStates]:
        return [replace(states(i, dtype), **(known(i) if told else {})) for i in range(4)]

    settings = Settings.of(keep_channels=0.25, **extra)
    together = stored(made(), settings)
    monkeypatch.setattr(rotatek, "PENDING_BYTES", 0)
    apart = stored(made(), settings)
    assert all(same(one, other) for one, other in zip(together, apart, strict=True))


@pytest.mark.parametrize("extra", CHOICES, ids=str)
def test_what_is_stored_expands_to_what_attention_reads(extra: dict) -> None:
    for layer in stored([states(0), states(1)], Settings.of(keep_channels=0.25, **extra)):
        q = torch.randn(2, 4, 1, 32, generator=torch.Generator().manual_seed(7))
        text = Text(torch.randn(2, 2, 3, 32), torch.randn(2, 2, 3, 32))
        keys, values = expanded(layer, 32)
        wanted = attend_reference(q, layer, text, 0.2)
        found = attend_reference(q, Visual(keys, values, layer.lengths), text, 0.2)
        assert torch.allclose(found, wanted, atol=1e-4)


def test_a_slice_that_starts_off_sixteen_bytes_is_copied() -> None:
    def odd(layer: int) -> LayerStates:
        p = states(layer)
        return replace(
            p, keys=p.keys[:1, :1, :33], values=p.values[:1, :1, :33], lengths=p.lengths[:1] - 7,
            queries=p.queries[:1], window_alive=p.window_alive[:1],
        )  # fmt: skip

    layers = stored([odd(0), odd(3)], Settings.of(keep_channels=0.1))
    assert layers[0].keys.shape == (1, 1, 33, 3)  # 396 bytes
    assert layers[1].keys.data_ptr() % 16 == 0
    assert layers[1].basis.storage_offset() > 0  # 384 bytes: a slice


@pytest.mark.parametrize("family", TINY)
@pytest.mark.parametrize("tokens", ["none", "fastv"])
@pytest.mark.parametrize("extra", [{}, CHOICES[-1]], ids=str)
def test_models_fill_the_same_caches_either_way(
    family: str, tokens: str, extra: dict, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    vlm = TINY[family]()
    settings = Settings.of(**half(tokens), keep_channels=0.25, **extra)
    prompt = vlm.prompt(make_request(picture(150, 120, seed=0), "what is the total?", 2))
    embedded = vlm.embed(prompt, settings.tokens)

    def filled(shared: bool) -> list[tuple[str, Tensor]]:
        cache = RotateKCache(vlm.model, embedded.inputs(), settings)
        prefill(vlm, embedded, SharedPrefill(cache.plan, [cache]) if shared else cache)
        assert cache.bytes().total == sum(cache.bytes().parts.values())
        return list(cache.tensors())

    found = [filled(False), filled(True)]
    monkeypatch.setattr(rotatek, "PENDING_BYTES", 0)
    wanted = filled(False)
    for each in found:
        assert [part for part, _ in each] == [part for part, _ in wanted]
        assert all(torch.equal(a, b) for (_, a), (_, b) in zip(each, wanted, strict=True))


def test_layers_that_share_a_storage_let_go_of_it(picture: Picture) -> None:
    vlm = TINY["qwen2_5_vl"]()
    prompt = vlm.prompt(make_request(picture(150, 120, seed=0), "what is the total?", 2))
    embedded = vlm.embed(prompt)
    cache = RotateKCache(vlm.model, embedded.inputs(), Settings.of(keep_channels=0.25))
    prefill(vlm, embedded, cache)
    before = cache.bytes().parts
    cache.batch_repeat_interleave(2)
    after = cache.bytes().parts
    assert all(after[part] == 2 * before[part] for part in before if part != "lengths")
