"""Pictures of a later turn: compressed at that turn's own prefill, exact where nothing is lost."""

from typing import Any

import pytest
import torch
from transformers.cache_utils import DynamicCache

from kernels.reference import Text, Visual, attend_reference, expanded
from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.bytes import storage_bytes
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import decode, feed_turn, prefill
from rotatek.errors import ModeUnsupported
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import Embedded, VisionLanguageModel, collate
from tests.fixtures import Picture, half
from tests.tiny import scramble
from tests.unit.test_cache import CHOICES, states, stored
from tests.unit.test_other_families import CLASSES, IMAGE

NEW = 6
EXACT: dict[str, dict[str, Any]] = {
    "rotated": {"keep_channels": 1.0},
    "consistent": {"keep_channels": 1.0, "weighting": "consistent"},
    "think": {"channels": "think", "keep_channels": 1.0},
    "spark": {"channels": "spark", "keep_channels": 1.0},
    "full": {"channels": "full", "keep_channels": 1.0},
}


def turns(vlm: VisionLanguageModel, picture: Picture, more: int = 0) -> tuple[Embedded, Embedded]:
    """Two questions about a picture each, of different sizes."""
    first = make_request(picture(120, 90, seed=1), "what is it?", NEW)
    second = make_request(picture(90 + more, 150, seed=2), "and this?" + "?" * more, NEW)
    return vlm.embed(vlm.prompt(first)), vlm.embed(vlm.prompt(second))


def answers(
    vlm: VisionLanguageModel, both: tuple[Embedded, Embedded], cache: Any
) -> list[list[list[int]]]:
    """Tokens of both turns' answers, every row's."""
    said, (first, second) = [], both
    logits, _ = prefill(vlm, first, cache)
    steps = list(decode(vlm, first, cache, logits, NEW))
    said.append([step.tokens for step in steps])
    start = first.next_position + len(steps) - 1
    logits, turn, _ = feed_turn(vlm, second, start, cache)
    said.append([step.tokens for step in decode(vlm, turn, cache, logits, NEW)])
    return said


@pytest.mark.parametrize("kept", EXACT)
def test_nothing_left_out_is_the_plain_model(
    vlm: VisionLanguageModel, picture: Picture, kept: str
) -> None:
    both = turns(vlm, picture)
    cache = RotateKCache(vlm.model, both[0].inputs(), Settings.of(**EXACT[kept]))
    assert answers(vlm, both, cache) == answers(vlm, both, DynamicCache())
    tokens = sum(int(turn.visual.sum()) for turn in both)
    for layer in cache.layers:
        assert layer.store.read().keys.shape[2] == tokens


@pytest.mark.parametrize("tokens", ["none", "fastv"])
@pytest.mark.parametrize("extra", CHOICES, ids=str)
def test_a_turns_pictures_are_compressed(
    vlm: VisionLanguageModel, picture: Picture, tokens: str, extra: dict
) -> None:
    both = turns(vlm, picture)
    settings = Settings.of(**half(tokens), keep_channels=0.25, **extra)
    cache = RotateKCache(vlm.model, both[0].inputs(), settings)
    answers(vlm, both, cache)
    whole = RotateKCache(vlm.model, both[0].inputs(), Settings.of(channels="full"))
    answers(vlm, both, whole)
    count = cache.bytes()
    tensors = [*(t for _, t in cache.tensors()), *cache.marks()]
    assert count.total == sum(count.parts.values()) == storage_bytes(tensors)
    visual = ("visual_keys", "visual_values")
    held, full = (sum(one.bytes().parts[name] for name in visual) for one in (cache, whole))
    assert held < 0.8 * full
    rows = sum(turn.valid.shape[1] for turn in both)
    assert all(rows <= layer.logical < rows + 2 * NEW for layer in cache.layers)


def test_a_batch_equals_its_rows(vlm: VisionLanguageModel, picture: Picture) -> None:
    """Rows whose prompts and turns differ in text and in pictures."""
    rows = [turns(vlm, picture), turns(vlm, picture, more=60)]
    settings = Settings.of(keep_channels=0.5, weighting="none", solver="eigh")
    singles = []
    for row in rows:
        cache = RotateKCache(vlm.model, row[0].inputs(), settings)
        singles.append(answers(vlm, row, cache))
    both = collate([row[0] for row in rows]), collate([row[1] for row in rows])
    cache = RotateKCache(vlm.model, both[0].inputs(), settings)
    together = answers(vlm, both, cache)
    for turn in range(2):
        for number in range(2):
            found = [tokens[number] for tokens in together[turn]]
            wanted = [tokens[0] for tokens in singles[number][turn]]
            assert found[: len(wanted)] == wanted


def test_generate_sees_new_pictures_by_itself(vlm: VisionLanguageModel, picture: Picture) -> None:
    prompts = [
        vlm.prompt(make_request(picture(120, 90, seed=1), "what is it?", NEW)),
        vlm.prompt(make_request(picture(90, 150, seed=2), "and this?", NEW)),
    ]
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    said = []
    for exact in (False, True):
        ids = prompts[0].ids
        first = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        cache: Any = DynamicCache()
        if exact:
            cache = RotateKCache(vlm.model, first, Settings.of(keep_channels=1.0))
        places, after = vlm.positions(prompts[0])
        ids = vlm.model.generate(
            **first, **prompts[0].pixels.tensors, position_ids=places, **options,
            **with_cache(vlm.model, cache),
        )  # fmt: skip
        grown = after + torch.arange(ids.shape[1] - prompts[0].ids.shape[1])
        own, _ = vlm.positions(prompts[1])
        parts = [places, grown.expand(*places.shape[:-1], -1), own + after + len(grown)]
        ids = torch.cat([ids, prompts[1].ids], 1)
        said.append(
            vlm.model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids),
                **prompts[1].pixels.tensors, position_ids=torch.cat(parts, -1),
                **with_cache(vlm.model, cache), **options,
            )
        )  # fmt: skip
    assert torch.equal(said[0], said[1])
    tokens = sum(prompt.visual_tokens for prompt in prompts)
    assert [layer.store.read().keys.shape[2] for layer in cache.layers] == [tokens] * 4


def test_a_first_prompt_without_a_picture(vlm: VisionLanguageModel, picture: Picture) -> None:
    first, second = turns(vlm, picture)
    words = ~first.visual[0]
    text = Embedded(
        first.embeds[:, words], torch.arange(int(words.sum()))[None].expand_as(
            first.positions[..., words]), first.visual[:, words], first.valid[:, words],
        torch.tensor([int(words.sum())]),
    )  # fmt: skip
    cache = RotateKCache(vlm.model, text.inputs(), Settings.of(keep_channels=1.0))
    found = answers(vlm, (text, second), cache)
    assert found == answers(vlm, (text, second), DynamicCache())
    assert all(layer.store is not None for layer in cache.layers)


def test_a_turn_comes_in_one_piece(vlm: VisionLanguageModel, picture: Picture) -> None:
    first, second = turns(vlm, picture)
    cache = RotateKCache(vlm.model, first.inputs(), Settings.of())
    prefill(vlm, first, cache)
    cache.expect(second.inputs())
    with torch.no_grad(), pytest.raises(ModeUnsupported, match="in one piece"):
        vlm.model(input_ids=torch.tensor([[65, 66]]), **with_cache(vlm.model, cache))


@pytest.mark.parametrize("extra", CHOICES, ids=str)
def test_what_is_stored_expands_to_what_attention_reads(extra: dict) -> None:
    for layer in stored([states(0), states(1)], Settings.of(keep_channels=0.25, **extra)):
        q = torch.randn(2, 4, 1, 32, generator=torch.Generator().manual_seed(7))
        text = Text(torch.randn(2, 2, 3, 32), torch.randn(2, 2, 3, 32))
        keys, values = expanded(layer, 32)
        wanted = attend_reference(q, layer, text, 0.2)
        found = attend_reference(q, Visual(keys, values, layer.lengths), text, 0.2)
        assert torch.allclose(found, wanted, atol=1e-4)


@pytest.mark.parametrize("name", CLASSES)
def test_classes_without_an_adapter(name: str) -> None:
    """Two turns with a picture each; positions count tokens, which both arms use."""
    torch.manual_seed(0)
    model, tokens, pixels = CLASSES[name]()
    scramble(model, 0)
    turn = torch.tensor([[1, 5, *[IMAGE] * tokens, 6, 7, 8, 9]])
    options: dict[str, Any] = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}

    def said(cache: Any) -> torch.Tensor:
        ids = turn[:, :0]
        for _ in range(2):
            ids = torch.cat([ids, turn], 1)
            inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **pixels}
            if name in ("Qwen3-VL", "Gemma3"):
                kind = "token_type_ids" if name == "Gemma3" else "mm_token_type_ids"
                inputs[kind] = (ids == IMAGE).long()
            places = torch.arange(ids.shape[1])[None]
            places = places.expand(3, 1, -1) if name == "Qwen3-VL" else places
            ids = model.generate(
                **inputs, position_ids=places, **with_cache(model, cache), **options
            )
        return ids

    first = {"input_ids": turn, "attention_mask": torch.ones_like(turn)}
    cache = RotateKCache(model, first, Settings.of(keep_channels=1.0))
    assert torch.equal(said(cache), said(DynamicCache()))
    assert all(layer.store.read().keys.shape[2] == 2 * tokens for layer in cache.layers)
