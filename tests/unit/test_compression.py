"""Layers solved together at the end of prefill, against one by one; and on which stream."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from rotatek import compression, rotation
from rotatek.channels import CHANNELS, Prefill, rotatek
from rotatek.compression import Filling, OutputMetrics, RotateKCache, SharedPrefill
from rotatek.config import Settings
from rotatek.decode import prefill
from rotatek.inputs import make_request
from tests.tiny import TINY

Picture = Callable[..., Image.Image]
HEADS, D = 2, 32
LENGTHS = ((40, 40), (40, 33), (24, 24), (40, 40))  # of two samples; fewer behind a FastV layer
CHOICES = [
    {},
    {"weighting": "none"},
    {"weighting": "consistent"},
    {"values": "rotate", "keep_values": 0.5},
]


def states(layer: int, dtype: torch.dtype = torch.float32) -> Prefill:
    """One layer's random states, of the spectrum that Keys have, and zero beyond each length."""
    generator = torch.Generator().manual_seed(layer)
    lengths = torch.tensor(LENGTHS[layer], dtype=torch.int32)
    rows = int(lengths.max())
    keys = torch.randn(2, HEADS, rows, D, generator=generator) * 0.9 ** torch.arange(D)
    values = torch.randn(2, HEADS, rows, D, generator=generator)
    alive = rotation.token_mask(lengths, rows)[:, None, :, None]
    queries = torch.randn(2, 2 * HEADS, 6, D, generator=generator)
    kept = [t.masked_fill(~alive, 0.0).to(dtype) for t in (keys, values)]
    return Prefill(
        *kept, lengths, queries.to(dtype), torch.ones(2, 6, dtype=torch.bool), layer
    )  # fmt: skip


def stored(prefills: list[Prefill], settings: Settings) -> list[Any]:
    """The layers' visual tokens when all of them are settled."""
    method = CHANNELS["rotatek"]
    stores = [method.compress(each, settings) for each in prefills]
    method.finish(stores, settings)
    return [store.read() for store in stores]


def same(first: Any, second: Any) -> bool:
    """Whether two layers' tensors agree in every bit."""
    pairs = zip(first, second, strict=True)
    return all(
        torch.equal(a, b) and a.dtype == b.dtype if isinstance(a, Tensor) else a == b
        for a, b in pairs
    )


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Samples of every solve of Keys."""
    counts: list[int] = []
    work = rotation.top_basis

    def counted(covariance: Tensor, *rest: Any) -> Tensor:
        counts.append(len(covariance))
        return work(covariance, *rest)

    monkeypatch.setattr(rotation, "top_basis", counted)
    return counts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("extra", CHOICES, ids=str)
def test_solved_together_or_one_by_one_is_the_same_bit_for_bit(
    extra: dict, dtype: torch.dtype, solved: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(keep_channels=0.25, **extra)
    together = stored([states(i, dtype) for i in range(4)], settings)
    assert solved.count(8) == 1  # all layers' Keys; rotated Values stay a layer at a time
    del solved[:]
    monkeypatch.setattr(rotatek, "HELD_BYTES", 0)
    apart = stored([states(i, dtype) for i in range(4)], settings)
    assert solved and set(solved) == {2}
    for one, other in zip(together, apart, strict=True):
        assert one.keys.shape[-1] == one.basis.shape[-1] == 8
        assert same(one, other)


def test_layers_of_many_bytes_do_not_wait(
    solved: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, method = Settings(keep_channels=0.25), CHANNELS["rotatek"]
    prefills = [states(i) for i in range(4)]
    wanted = stored([states(i) for i in range(4)], settings)
    del solved[:]
    monkeypatch.setattr(rotatek, "HELD_BYTES", prefills[2].keys.nbytes)
    stores: list[Any] = [method.compress(each, settings) for each in prefills]
    assert [store.waiting is not None for store in stores] == [False, False, True, False]
    assert solved == [2, 2, 2]
    method.finish(stores, settings)
    assert solved == [2, 2, 2, 2]
    assert all(store.waiting is None for store in stores)
    assert all(same(store.read(), want) for store, want in zip(stores, wanted, strict=True))


@pytest.mark.parametrize(
    "extra", [{"solver": "eigh"}, {"widths": "adaptive"}, {"cache_dtype": "fp8"}], ids=str
)
def test_what_no_launch_can_share_is_solved_a_layer_at_a_time(extra: dict) -> None:
    store: Any = CHANNELS["rotatek"].compress(states(0), Settings(keep_channels=0.25, **extra))
    assert store.waiting is None


def test_states_that_two_caches_share_are_solved_once(solved: list[int]) -> None:
    shared = [states(i) for i in range(4)]
    first = stored(shared, Settings(keep_channels=0.25))
    second = stored([replace(each) for each in shared], Settings(keep_channels=0.25))
    third = stored(shared, Settings(keep_channels=0.5))
    assert solved == [8, 8]
    assert all(same(a, b) for a, b in zip(first, second, strict=True))
    assert [layer.keys.shape[-1] for layer in third] == [16] * 4


@pytest.mark.parametrize("family", TINY)
def test_models_fill_the_same_caches_either_way(
    family: str, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    vlm = TINY[family]()
    settings = Settings(keep_channels=0.25)
    prompt = vlm.prompt(make_request(picture(150, 120, seed=0), "what is the total?", 2))
    embedded = vlm.embed(prompt, settings)

    def filled(shared: bool) -> list[tuple[str, Tensor]]:
        cache = RotateKCache(vlm.model, embedded.inputs(), settings)
        prefill(vlm, embedded, SharedPrefill(cache.plan, [cache]) if shared else cache)
        return list(cache.tensors())

    found = [filled(False), filled(True)]
    monkeypatch.setattr(rotatek, "HELD_BYTES", 0)
    wanted = filled(False)
    for each in found:
        assert [part for part, _ in each] == [part for part, _ in wanted]
        assert all(torch.equal(a, b) for (_, a), (_, b) in zip(each, wanted, strict=True))


def test_layers_are_settled_on_the_stream_that_filled_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[str] = []

    class Main:
        def wait_stream(self, stream: str) -> None:
            log.append(f"wait for {stream}")

    class Method:
        def finish(self, stores: list[Any], settings: Settings) -> None:
            log.append("finish")

    @contextmanager
    def on(stream: str) -> Iterator[None]:
        log.append(f"on {stream}")
        yield
        log.append(f"off {stream}")

    monkeypatch.setattr(compression, "side_stream", str)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Main())
    method: Any = Method()
    filling = Filling(method, Settings(), None, OutputMetrics())
    filling.devices.add(torch.device("cuda", 1))
    filling.finish()
    assert log == ["on cuda:1", "finish", "off cuda:1", "wait for cuda:1"]
