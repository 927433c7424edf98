"""What stored pictures cost: launches and copies that are not made, and work done meanwhile."""

import threading
from collections.abc import Generator
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from kernels import reference
from rotatek.bridge.cache_argument import with_cache
from rotatek.bridge.state_layers import key_layers
from rotatek.engine.decode import feed
from rotatek.engine.engine import Engine
from rotatek.engine.row_group_layer import RowGroupLayer
from rotatek.methods.settings import Settings
from rotatek.pictures import Pictures
from rotatek.pictures.indexing import made_ahead
from tests import fixtures
from tests.launches import Launches
from tests.questions import read, words
from tests.tiny import tiny_qwen

BITS = Settings.of(smaller=8)
SIZES = [(150, 120), (90, 200), (60, 60)]


@pytest.fixture
def shown(picture: fixtures.Picture) -> list[Image.Image]:
    return [picture(*size, seed=seed) for seed, size in enumerate(SIZES)]


def launches(work: Any) -> int:
    with Launches() as counted:
        work()
    return counted.count


@pytest.mark.parametrize("inference", [True, False])
def test_a_copy_is_a_cache_of_its_own(shown: list[Image.Image], inference: bool) -> None:
    vlm = tiny_qwen()
    (cache,) = read(vlm, Settings.of(smaller=8), shown[0])
    before = [tensor.clone() for _, tensor in cache.tensors()]
    with torch.inference_mode(inference), torch.no_grad():
        one, other = cache.fork(20), cache.fork(20)
        for layer, own in zip(key_layers(one), key_layers(cache), strict=True):
            assert layer.store is own.store
            assert layer.text.room >= own.text.longest + 20 and not layer.text.static
        where = [layer.text.keys.data_ptr() for layer in key_layers(one)]
        ids, behind = words(20, 1), cache.notes.next_position
        first = feed(vlm, ids, behind, one)[0]
        assert [layer.text.keys.data_ptr() for layer in key_layers(one)] == where
        assert torch.equal(feed(vlm, ids, behind, other)[0], first)
        assert torch.equal(feed(vlm, ids, behind, cache.fork())[0], first)
    for (_, tensor), was in zip(cache.tensors(), before, strict=True):
        assert torch.equal(tensor, was)


def test_a_copy_may_be_read_outside_of_inference_mode(shown: list[Image.Image]) -> None:
    vlm = tiny_qwen()
    (cache,) = read(vlm, BITS, shown[0])
    with torch.inference_mode():
        copy = cache.fork(4)
    ids, behind = words(4, 1), cache.notes.next_position
    wanted = feed(vlm, ids, behind, cache.fork())[0]
    with torch.no_grad():
        positions = vlm.positions_at((behind[:, None] + torch.arange(4)).flatten())
        positions = positions[..., 0].unflatten(-1, ids.shape)
        out = vlm.model(input_ids=ids, position_ids=positions, **with_cache(vlm.model, copy))
    torch.testing.assert_close(out.logits[:, -1].float(), wanted, atol=1e-4, rtol=1e-4)


def test_values_are_cleared_once_for_rows_that_stay(
    shown: list[Image.Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is beyond a page's tokens changes nothing, and no step copies all Values."""
    pictures = Pictures(Engine(tiny_qwen()), BITS)
    pages = [pictures.add(image) for image in shown]
    wanted = [pictures.ask([page], "what?", 24)[0].text for page in pages]
    plain, allocate = reference._masked, RowGroupLayer._allocate
    masked: list[int] = []

    def seen(values: Tensor, live: Tensor) -> Tensor:
        masked.append(values.shape[2])
        return plain(values, live)

    def dirty(layer: RowGroupLayer, *given: Any) -> bool:
        before, moved = layer._tensors.get("values"), allocate(layer, *given)
        values = layer._tensors.get("values")
        if values is not None and values is not before:
            values[values == 0] = float("nan")  # all but the pages' own numbers
        return moved

    monkeypatch.setattr(RowGroupLayer, "_allocate", dirty)
    fed = pictures.asker._join

    def join(*given: Any) -> None:
        fed(*given)
        masked.clear()
        monkeypatch.setattr(reference, "_masked", seen)

    monkeypatch.setattr(pictures.asker, "_join", join)
    assert [one.text for one in pictures.ask(pages, "what?", 24)] == wanted
    longest = max(page.visual_tokens for page in pages)
    assert masked and longest not in masked  # of texts alone
    pictures.close()


def test_what_is_made_ahead_comes_in_order_and_ends_in_order() -> None:
    made, ended = list[int](), threading.Event()

    def items() -> Generator[int]:
        try:
            for number in range(4):
                made.append(number)
                yield number
            raise ValueError("the fifth")
        finally:
            ended.set()

    found = list[int]()
    with pytest.raises(ValueError, match="the fifth"):
        for number in made_ahead(items()):
            found.append(number)
            assert len(made) <= number + 2
    assert found == made == [0, 1, 2, 3] and ended.is_set()
    made.clear()
    ended.clear()
    some = made_ahead(items())
    assert next(some) == 0
    some.close()  # waits for the one that is being made
    assert ended.is_set() and len(made) <= 2
    assert list(made_ahead(one for one in "")) == []
