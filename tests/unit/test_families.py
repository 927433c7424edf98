"""Every family through its adapter: the real processor's prompt, plain transformers' tokens."""

from typing import Any

import pytest
import torch
from PIL import Image

from rotatek.cache.compressed import RotateKCache
from rotatek.compare.columns import matched
from rotatek.decode import decode, prefill
from rotatek.engine import Engine
from rotatek.events import Failed, Finished
from rotatek.inputs import make_request
from rotatek.models import VisionLanguageModel, collate
from rotatek.settings import BASELINE, Settings
from tests.families import EVERY, real_processor, tiny_other
from tests.fixtures import Picture

# transformers 5.17's processor of InternVL counts tiles in a way that NumPy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
QUESTION = "What is the total?"
NEW = 8


@pytest.fixture(scope="module", params=EVERY)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def vlm(family: str) -> VisionLanguageModel:
    return EVERY[family]()


def processed(family: str, vlm: VisionLanguageModel, images: list[Image.Image]) -> dict[str, Any]:
    """The prompt as the family's own processor makes it."""
    shown = [{"type": "image"}] * len(images)
    message = {"role": "user", "content": [*shown, {"type": "text", "text": QUESTION}]}
    template = vlm.tokenizer.chat_template or vlm.template
    text = vlm.tokenizer.apply_chat_template(
        [message], chat_template=template, tokenize=False, add_generation_prompt=True
    )
    processor = real_processor(family, vlm)
    return dict(processor(images=images, text=[text], return_tensors="pt"))


def test_the_prompt_is_the_processors(
    family: str, vlm: VisionLanguageModel, picture: Picture
) -> None:
    for size in ((100, 60), (60, 150), (56, 56)):
        image = picture(*size)
        prompt = vlm.prompt(make_request(image, QUESTION))
        given = processed(family, vlm, [image])
        assert prompt.ids.tolist() == given["input_ids"].tolist()
        assert prompt.visual_tokens == sum(prompt.pixels.counts) == sum(prompt.pixels.runs)
        for name, tensor in prompt.pixels.tensors.items():
            assert torch.equal(tensor, torch.as_tensor(given[name])), name


def generated(vlm: VisionLanguageModel, inputs: dict[str, Any], **more: Any) -> list[int]:
    """Plain transformers' tokens; vision ids, which our answers never hold, are suppressed."""
    out = vlm.model.generate(
        **inputs, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False,
        suppress_tokens=list(vlm.banned_ids), **more,
    )  # fmt: skip
    return out[0, inputs["input_ids"].shape[1] :].tolist()


def answered(vlm: VisionLanguageModel, image: Image.Image, settings: Settings) -> list[int]:
    """Our tokens, ends of answers suppressed as above."""
    embedded = vlm.embed(vlm.prompt(make_request(image, QUESTION, NEW)), settings.pruning)
    cache = RotateKCache(vlm.model, embedded.inputs(), settings)
    logits, _ = prefill(vlm, embedded, cache)
    tokens: list[int] = []
    for step in decode(vlm, embedded, cache, logits, NEW):
        tokens += step.tokens
    return tokens


def test_full_width_is_plain_transformers(
    family: str, vlm: VisionLanguageModel, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", frozenset())
    image = picture(100, 60)
    inputs = processed(family, vlm, [image])
    if "batch_num_images" in inputs:  # one picture: the model's own default
        inputs.pop("batch_num_images")
    stop = vlm.model.generation_config.eos_token_id
    banned = (*vlm.banned_ids, stop)
    monkeypatch.setattr(type(vlm), "banned_ids", banned)
    plain = generated(vlm, inputs)
    for settings in (
        Settings.of(keep_channels=1.0),
        Settings.of(channels="full", keep_channels=1.0),
    ):
        assert answered(vlm, image, settings) == plain
        cache = RotateKCache(vlm.model, inputs, settings)
        assert generated(vlm, inputs, past_key_values=cache) == plain


def test_a_batch_is_its_singles(vlm: VisionLanguageModel, picture: Picture) -> None:
    settings = Settings.of(keep_channels=0.5)
    sizes = ((100, 60), (56, 56), (60, 150))
    prompts = [
        vlm.embed(vlm.prompt(make_request(picture(*size, seed=i), QUESTION * (i + 1), NEW)))
        for i, size in enumerate(sizes)
    ]
    batch = collate(prompts)
    cache = RotateKCache(vlm.model, batch.inputs(), settings)
    logits, _ = prefill(vlm, batch, cache)
    for row, single in enumerate(prompts):
        alone = RotateKCache(vlm.model, single.inputs(), settings)
        own, _ = prefill(vlm, single, alone)
        assert torch.allclose(logits[row], own[0], atol=2e-3), row
    steps = [step.tokens for step in decode(vlm, batch, cache, logits, NEW)]
    assert steps


def test_every_method_compares(vlm: VisionLanguageModel, picture: Picture) -> None:
    columns = {"all": BASELINE} | matched(Settings.of(tokens="fastv", keep_tokens=0.5))
    events = list(Engine(vlm).compare(make_request(picture(100, 60), QUESTION, NEW), columns))
    assert not [event.message for event in events if isinstance(event, Failed)]
    done = {event.column: event for event in events if isinstance(event, Finished)}
    assert set(done) == set(columns)
    traced = [event.trace for event in done.values() if event.trace is not None]
    assert len(traced) == 1 and traced[0].grids


def test_tokens_can_be_dropped_before_the_language_model(
    vlm: VisionLanguageModel, picture: Picture
) -> None:
    settings = Settings.of(tokens="visionzip", keep_tokens=0.5, keep_channels=0.5)
    prompt = vlm.prompt(make_request(picture(100, 60), QUESTION, NEW))
    whole, fewer = vlm.embed(prompt), vlm.embed(prompt, settings.pruning)
    assert fewer.kept is not None
    left = int(fewer.kept.sum())
    assert prompt.visual_tokens / 2 <= left < prompt.visual_tokens
    assert int(fewer.visual.sum()) == left
    assert fewer.embeds.shape[1] == whole.embeds.shape[1] - prompt.visual_tokens + left
    cache = RotateKCache(vlm.model, fewer.inputs(), settings)
    logits, _ = prefill(vlm, fewer, cache)
    assert len(list(decode(vlm, fewer, cache, logits, 3))) >= 1


def test_a_family_without_an_adapter_runs(picture: Picture) -> None:
    known = EVERY["llava"]()
    other = tiny_other(known)
    image = picture(100, 60)
    request = make_request(image, QUESTION, NEW)
    assert other.prompt(request).ids.tolist() == known.prompt(request).ids.tolist()
    assert other.prompt(request).pixels.grids == ()
    settings = Settings.of(keep_channels=0.5)
    assert answered(other, image, settings) == answered(known, image, settings)
    zip_ = {"zip": Settings.of(tokens="visionzip", keep_tokens=0.5)}
    (failed,) = [e for e in Engine(other).compare(request, zip_) if isinstance(e, Failed)]
    assert "Choose a pruner that acts inside it" in failed.message
