"""Several filled caches that read a text in one pass, as each of them does alone."""

from typing import Any

import pytest
import torch
from torch import Tensor

from kernels import dispatch
from rotatek.bridge.state_layers import key_layers
from rotatek.cache import prefill_layer
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine import side_by_side
from rotatek.engine.decode import feed
from rotatek.engine.side_by_side import SideBySide
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from tests import fixtures
from tests.questions import read, words
from tests.tiny import tiny_qwen

SIZES = [(90, 120), (150, 120), (60, 200), (150, 120)]
JOINED: dict[str, dict[str, Any]] = {
    "bits": {"bits": 1},
    "0.75 bits": {"bits": 0.75},
    "turned Values": {"bits": 1, "values": "rotate"},
    "fewer tokens": {"bits": 1, "tokens": "divprune", "keep_tokens": 0.5},
}
APART: dict[str, dict[str, Any]] = {
    "channels": {"keep_channels": 0.25},
    "8-bit text": {"bits": 1, "text_dtype": "int8", "text_window": 16},
    "nothing": {"keep_channels": 1.0},
}


class Calls:
    """Attention calls of all caches at once, and of each alone."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.joined = self.alone = 0
        plain = dispatch.attend

        def together(query: Tensor, *given: Any) -> Tensor:
            self.joined += 1
            return plain(query, *given)

        def apart(query: Tensor, *given: Any) -> Tensor:
            self.alone += 1
            return plain(query, *given)

        patch.setattr(side_by_side, "attend", together)
        patch.setattr(prefill_layer, "attend", apart)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


@pytest.fixture
def qwen() -> VisionLanguageModel:
    return tiny_qwen()


def caches_of(
    vlm: VisionLanguageModel, picture: fixtures.Picture, form: dict[str, Any], count: int = 4
) -> list[RotateKCache]:
    images = [picture(*size, seed=seed) for seed, size in enumerate(SIZES[:count])]
    return read(vlm, Settings.of(**form), *images)


def asked(vlm: VisionLanguageModel, ids: Tensor, behind: list[Tensor], cache: Any) -> Tensor:
    return feed(vlm, ids.expand(len(behind), -1), torch.cat(behind), cache)[0]


def check(
    vlm: VisionLanguageModel, caches: list[RotateKCache], lengths: tuple[int, ...], room: int,
    near: float = 1e-3,
) -> None:  # fmt: skip
    """Several texts one after the other, and a next token of each cache alone."""
    one, other = ([cache.fork(room) for cache in caches] for _ in range(2))
    together = SideBySide(one)
    behind = [cache.notes.next_position for cache in caches]
    for number, length in enumerate(lengths):
        ids = words(length, number)
        found = asked(vlm, ids, behind, together)
        pairs = zip(other, behind, strict=True)
        wanted = torch.cat([asked(vlm, ids, [at], cache) for cache, at in pairs])
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
        behind = [at + length for at in behind]
        assert together.get_seq_length() == max(cache.get_seq_length() for cache in other)
    for mine, alone, at in zip(one, other, behind, strict=True):
        assert mine.get_seq_length() == alone.get_seq_length()
        for layer, own in zip(key_layers(mine), key_layers(alone), strict=True):
            assert layer.text.longest == own.text.longest
            assert torch.equal(layer.text.lengths, own.text.lengths)
        for turn, length in enumerate((1, 40, 1)):
            parts = [asked(vlm, words(length, turn), [at], cache) for cache in (mine, alone)]
            torch.testing.assert_close(*parts, atol=near, rtol=near)
            mine.make_growing()
            alone.make_growing()
            at = at + length


@pytest.mark.parametrize("form", JOINED)
def test_planes_of_one_form_attend_in_one_call(
    qwen: VisionLanguageModel, picture: fixtures.Picture, calls: Calls, form: str
) -> None:
    caches = caches_of(qwen, picture, JOINED[form])
    check(qwen, caches, (9, 2, 5), 16)
    assert calls.joined == 3 * len(key_layers(caches[0]))


@pytest.mark.parametrize("form", APART)
def test_other_forms_attend_for_themselves(
    qwen: VisionLanguageModel, picture: fixtures.Picture, calls: Calls, form: str
) -> None:
    check(qwen, caches_of(qwen, picture, APART[form]), (9, 2), 16, near=3e-2)  # 8 bits are rounded
    assert not calls.joined and calls.alone


def test_two_caches_are_too_few(
    qwen: VisionLanguageModel, picture: fixtures.Picture, calls: Calls
) -> None:
    check(qwen, caches_of(qwen, picture, JOINED["bits"], 2), (9,), 16)
    assert not calls.joined


def test_where_the_text_has_no_room_each_grows_alone(
    qwen: VisionLanguageModel, picture: fixtures.Picture, calls: Calls
) -> None:
    caches = caches_of(qwen, picture, JOINED["bits"])
    check(qwen, caches, (3, 400, 5), 3)
    assert calls.joined == len(key_layers(caches[0]))


def test_a_layer_of_another_form(
    qwen: VisionLanguageModel, picture: fixtures.Picture, calls: Calls
) -> None:
    """One whose visual tokens a cache has dropped, or has in another form."""
    caches = caches_of(qwen, picture, JOINED["bits"])
    (dense,) = read(qwen, Settings.of(keep_channels=0.25), picture(90, 120, seed=0))
    for store in (None, key_layers(dense)[1].store):
        key_layers(caches[2])[1].store = store
        check(qwen, caches, (9, 5), 16)
    assert not calls.joined


def test_a_pass_that_breaks_off_can_be_rewound(
    qwen: VisionLanguageModel, picture: fixtures.Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches, ids = caches_of(qwen, picture, JOINED["bits"]), words(9, 1)
    behind = [cache.notes.next_position for cache in caches]
    wanted = asked(qwen, ids, behind, SideBySide([cache.fork(16) for cache in caches]))
    together, plain, made = SideBySide([cache.fork(16) for cache in caches]), dispatch.attend, 0
    counters, length = together.counters(), together.get_seq_length()

    def breaks(*given: Any) -> Tensor:
        nonlocal made
        made += 1
        if made == 2:
            raise RuntimeError("a fault")
        return plain(*given)

    monkeypatch.setattr(side_by_side, "attend", breaks)
    with pytest.raises(RuntimeError, match="a fault"):
        asked(qwen, ids, behind, together)
    together.rewind(counters)
    assert together.get_seq_length() == length
    torch.testing.assert_close(asked(qwen, ids, behind, together), wanted, atol=1e-4, rtol=1e-4)
