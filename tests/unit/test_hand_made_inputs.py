"""LFM2-VL and Molmo 2 on inputs made by hand, as their processors need torchvision: the adapters'
part, with a processor of a few lines for pictures of one size."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.conversation import Conversation
from rotatek.engine.decode import decode, prefill
from rotatek.engine.engine import Engine
from rotatek.engine.events import Failed, Finished
from rotatek.errors import ModelUnsupported
from rotatek.inputs.request import make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel, collate, load
from tests.fixtures import Picture
from tests.hand_made import MADE, tiny_made

QUESTION, NEW = "What is the total?", 6


@pytest.fixture(scope="module", params=MADE)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def vlm(family: str) -> VisionLanguageModel:
    return tiny_made(family)


def inputs(vlm: VisionLanguageModel, image: Image.Image) -> dict[str, Any]:
    """As the family's processor would make them for its template's prompt."""
    content = [{"type": "image"}, {"type": "text", "text": QUESTION}]
    text = vlm.tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    out = vlm.images(text=text.removeprefix(vlm.images.first), images=[image])
    if vlm.family == "molmo2":
        ids = torch.tensor(vlm.images.image_token_ids)
        out["mm_token_type_ids"] = torch.isin(out["input_ids"], ids).long()
    return out


def test_full_width_is_plain_transformers(
    family: str, vlm: VisionLanguageModel, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = picture(128, 64)
    given = inputs(vlm, image)
    prompt = vlm.prompt(make_request(image, QUESTION, NEW))
    assert prompt.ids.tolist() == given["input_ids"].tolist()
    assert prompt.visual_tokens == MADE[family][-1]
    banned = (*vlm.banned_ids, vlm.model.generation_config.eos_token_id)
    monkeypatch.setattr(type(vlm), "banned_ids", banned)
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", frozenset())
    how = {"max_new_tokens": NEW, "do_sample": False, "suppress_tokens": list(banned)}
    plain = vlm.model.generate(**given, **how)[0, prompt.ids.shape[1] :].tolist()
    vlm.check()
    settings = Settings.of(keep_channels=1.0)
    cache = RotateKCache(vlm.model, given, settings)
    ours = vlm.model.generate(**given, **how, **with_cache(vlm.model, cache))
    assert ours[0, prompt.ids.shape[1] :].tolist() == plain
    embedded = vlm.embed(prompt)
    cache = RotateKCache(vlm.model, embedded.inputs(), settings)
    logits, _ = prefill(vlm, embedded, cache)
    steps = decode(vlm, embedded, cache, logits, NEW)
    assert [token for step in steps for token in step.tokens] == plain


def test_a_batch_is_its_singles(vlm: VisionLanguageModel, picture: Picture) -> None:
    prompts = [
        vlm.embed(vlm.prompt(make_request([picture(128, 64, seed=i)] * i, QUESTION * i, NEW)))
        for i in (1, 2, 3)
    ]
    batch, settings = collate(prompts), Settings.of(keep_channels=0.5)
    together, _ = prefill(vlm, batch, RotateKCache(vlm.model, batch.inputs(), settings))
    for row, single in enumerate(prompts):
        alone = RotateKCache(vlm.model, single.inputs(), settings)
        own, _ = prefill(vlm, single, alone)
        assert torch.allclose(together[row], own[0], atol=2e-3), row


def test_the_overlay_covers_every_token(vlm: VisionLanguageModel, picture: Picture) -> None:
    """Of each picture twice: its tiles or crops, and a view of it."""
    pixels = vlm.prompt(make_request([picture(128, 64), picture(128, 64)], QUESTION)).pixels
    assert [grid.picture for grid in pixels.grids] == [0, 0, 1, 1]
    places = [
        grid.start + token
        for grid in pixels.grids
        for token in (grid.tokens or range(grid.rows * grid.columns))
    ]
    assert sorted(places) == list(range(sum(pixels.counts)))


@pytest.mark.parametrize("tokens", ["visionzip", "divprune"])
def test_tokens_can_be_dropped_before_the_language_model(
    vlm: VisionLanguageModel, picture: Picture, tokens: str
) -> None:
    settings = Settings.of(tokens=tokens, keep_tokens=0.5, keep_channels=0.5)
    prompt = vlm.prompt(make_request(picture(128, 64), QUESTION, NEW))
    fewer = vlm.embed(prompt, settings.pruning)
    assert fewer.kept is not None
    assert prompt.visual_tokens / 2 <= int(fewer.kept.sum()) < prompt.visual_tokens


def test_a_second_question_and_a_second_picture(vlm: VisionLanguageModel, picture: Picture) -> None:
    columns = {"all": BASELINE, "k": Settings.of(keep_channels=1.0)}
    talk, engine = Conversation(), Engine(vlm)
    first = make_request(picture(128, 64), "One?", NEW)
    events = list(engine.compare(first, columns, conversation=talk))
    events += list(engine.follow(talk, "Two?", NEW))
    events += list(engine.follow(talk, QUESTION, NEW, images=picture(128, 64, seed=1)))
    talk.close()
    assert not [event.message for event in events if isinstance(event, Failed)]
    answers = [event.answer for event in events if isinstance(event, Finished)]
    assert len(answers) == 6 and answers[::2] == answers[1::2]


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="torchvision is here")
def test_without_torchvision_loading_says_what_to_install(
    vlm: VisionLanguageModel, tmp_path: Path
) -> None:
    vlm.model.save_pretrained(tmp_path)
    vlm.tokenizer.save_pretrained(tmp_path)
    names = {"lfm2_vl": "Lfm2Vl", "molmo2": "Molmo2"}
    told = {
        "processor_class": f"{names[vlm.family]}Processor",
        "image_processor": {"image_processor_type": f"{names[vlm.family]}ImageProcessor"},
    }
    (tmp_path / "processor_config.json").write_text(json.dumps(told))
    with pytest.raises(ModelUnsupported, match="most often torchvision"):
        load(tmp_path, "cpu")
