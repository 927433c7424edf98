"""What stored pictures cost: launches and copies that are not made, and work done meanwhile."""

import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from kernels import reference
from rotatek.bridge.cache_argument import with_cache
from rotatek.bridge.state_layers import key_layers
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.text_buffer import TextBuffer
from rotatek.engine.decode import feed
from rotatek.engine.engine import Engine
from rotatek.engine.row_group_layer import RowGroupLayer
from rotatek.methods.settings import Settings
from rotatek.pictures import Pictures
from rotatek.pictures.indexing import index, made_ahead
from rotatek.pictures.reading import PictureNotes
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


def test_layers_of_one_form_are_copied_in_seven_launches(shown: list[Image.Image]) -> None:
    (cache,) = read(tiny_qwen(), BITS, shown[0])
    texts = [layer.text for layer in key_layers(cache)] * 7
    with torch.inference_mode():
        assert launches(lambda: TextBuffer.all_copied(texts, 20)) == 7
        made = TextBuffer.all_copied(texts, 20)
    alone = [text.copied(20) for text in texts]
    assert launches(lambda: TextBuffer.all_copied(texts, 20)) > 7  # gradients may be wanted
    for one, other in zip(made, alone, strict=True):
        pairs = zip((*one.tensors(), one.lengths), (*other.tensors(), other.lengths), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    held = [[*text.tensors(), text.lengths] for text in (*made[:1], *made)]
    assert storage_bytes(sum(held[1:], [])) == sum(t.nbytes for t in sum(held[1:], []))


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


def test_a_loaded_text_is_copied_once(shown: list[Image.Image], tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    vlm = tiny_qwen()
    (cache,) = read(vlm, BITS, shown[0])
    cache.save(tmp_path / "file", cache.notes)
    found: list[RotateKCache] = []

    def load() -> None:
        found.append(RotateKCache.load(tmp_path / "file", vlm.model, PictureNotes))

    with torch.inference_mode():
        fewer = launches(load)
        with pytest.MonkeyPatch.context() as patch:
            apart = staticmethod(lambda texts, tokens=0: [text.copied(tokens) for text in texts])
            patch.setattr(TextBuffer, "all_copied", apart)
            assert launches(load) >= fewer + 5 * len(key_layers(cache)) - 7
    load()
    for one in found:
        assert one.bytes().parts["text"] == cache.bytes().parts["text"]
        own = {layer.text.keys.untyped_storage().data_ptr() for layer in key_layers(one)}
        stores = {t.untyped_storage().data_ptr() for layer in key_layers(one)
                  for _, t in layer.store.tensors()}  # fmt: skip
        assert own.isdisjoint(stores)  # no store keeps a text's memory


def test_a_page_that_has_answered_is_not_copied_back(
    shown: list[Image.Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures, restored = Pictures(tiny_qwen(), BITS), list[int]()
    plain = RowGroupLayer.restored

    def counted(layer: RowGroupLayer, place: int) -> Any:
        restored.append(place)
        return plain(layer, place)

    monkeypatch.setattr(RowGroupLayer, "restored", counted)
    pages = [pictures.add(image) for image in shown]
    first = pictures.ask(pages, "what?", 6)
    assert not restored and len(first) == 3
    pictures.look(pages[0], "what?", 6)
    assert restored
    assert pictures.ask(pages, "what?", 6) == first
    pictures.close()


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


def test_visual_tokens_stay_where_they_are_while_the_text_grows(
    shown: list[Image.Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, plain = list[tuple[int, int]](), RowGroupLayer.attend

    def attend(layer: RowGroupLayer, *given: Any) -> Tensor:
        out = plain(layer, *given)
        if layer.layer == 0:
            where.append((layer._tensors["values"].data_ptr(), layer.keys.data_ptr()))
        return out

    monkeypatch.setattr(RowGroupLayer, "attend", attend)
    monkeypatch.setattr(
        type(pictures_vlm := tiny_qwen()), "stop_ids", property(lambda _: frozenset())
    )
    pictures = Pictures(pictures_vlm, BITS)
    pictures.ask(pictures.add(shown[0]), "what?", 60)
    visual, text = zip(*where, strict=True)
    assert len(set(visual)) == 1 and len(set(text)) > 1
    pictures.close()


def test_the_next_page_is_prepared_while_the_model_reads(
    shown: list[Image.Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("zstandard")
    pictures = Pictures(tiny_qwen(), BITS, tmp_path / "store")
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for image, path in zip(shown, paths, strict=True):
        image.save(path)
    look, model = pictures.reader.look, pictures.reader.read
    prepared, ahead = threading.Semaphore(0), list[int]()

    def looking(images: Any) -> Any:
        pixels = look(images)
        prepared.release()
        return pixels

    def reading(images: Any, pixels: Any) -> RotateKCache:
        assert prepared.acquire(timeout=20)  # its own
        if len(ahead) < 2:
            assert prepared.acquire(timeout=20), "the next page waits for this one"
            prepared.release()
        ahead.append(prepared._value)
        return model(images, pixels)

    monkeypatch.setattr(pictures.reader, "look", looking)
    monkeypatch.setattr(pictures.reader, "read", reading)
    found = list(index(pictures, paths))
    assert [page.path for page in found] == paths and all(page.fresh for page in found)
    assert ahead == [1, 1, 0]  # one page ahead, and no more
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
