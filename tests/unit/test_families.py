"""Every family through its adapter: the real processor's prompt, plain transformers' tokens."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from transformers.cache_utils import DynamicCache

from kernels.elementwise_reference import PLAIN
from rotatek import Engine, RotateKCache, Settings
from rotatek.bridge.scope import with_cache
from rotatek.cli.main import main
from rotatek.engine.events import Failed
from rotatek.engine.passes import prefill
from rotatek.inputs.messages import PICTURE, Message
from rotatek.inputs.request import make_chat, make_request
from rotatek.models import VisionLanguageModel, fused, load
from rotatek.models.fused import fuse
from rotatek.models.generic import Generic
from rotatek.models.loading import card_line
from rotatek.models.memory import weight_bytes
from tests.families import EVERY, real_processor, save_known, save_unknown, tiny_pixtral
from tests.fixtures import Picture, decode, inputs_of

# transformers 5.17's processor of InternVL counts tiles in a way that NumPy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
QUESTION = "What is the total?"
NEW = 8


STRANGER = "pixtral"  # without an adapter
EACH = {**EVERY, STRANGER: tiny_pixtral}
NESTED = ("gemma3", "gemma4", "smolvlm", "idefics3")  # processors that want a list a prompt


@pytest.fixture(scope="module", params=EACH)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def vlm(family: str) -> VisionLanguageModel:
    return EACH[family]()


def processed(
    family: str, vlm: VisionLanguageModel, images: list[Image.Image], *questions: str
) -> dict[str, Any]:
    """The prompts as the family's own processor makes them: a picture each."""
    texts = []
    for question in questions or [QUESTION]:
        content = [{"type": "image"}, {"type": "text", "text": question}]
        message = {"role": "user", "content": content}
        text = vlm.tokenizer.apply_chat_template(
            [message], tokenize=False, add_generation_prompt=True
        )
        texts.append(text)
    vlm.tokenizer.pad_token = vlm.tokenizer.pad_token or vlm.tokenizer.eos_token
    padding = {"padding": True, "padding_side": "left"} if len(texts) > 1 else {}
    given = [[image] for image in images] if family in NESTED else images
    processor = vlm.images if family == STRANGER else real_processor(family, vlm)
    inputs = dict(processor(images=given, text=texts, return_tensors="pt", **padding))
    inputs.pop("batch_num_images", None)  # a picture a prompt: the model's own default
    return inputs


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
        covered = sum(
            len(set(g.tokens or range(g.rows * g.columns)) - {-1}) for g in prompt.pixels.grids
        )
        assert covered == prompt.visual_tokens


# Templates that would make an answer of a system message, or have no such turn.
NO_SYSTEM = ("gemma3", "llava", "pixtral")


def as_stock(message: Message) -> dict[str, Any]:
    """A message as the stock processors take it."""
    parts = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"}
        for part in message.parts
    ]
    return {"role": message.role, "content": parts}


def test_parts_stand_where_the_processor_puts_them(
    family: str, vlm: VisionLanguageModel, picture: Picture
) -> None:
    """Texts and pictures in the order given, a system message before them, and earlier turns."""
    images = [picture(100, 60), picture(60, 150, seed=1), picture(56, 56, seed=2)]
    chat = [
        Message("system", ("Be brief.",)),
        Message("user", ("First:", PICTURE, "Second:", PICTURE, "Which is larger?")),
        Message("assistant", ("The second.",)),
        Message("user", ("And", PICTURE, QUESTION)),
    ]
    stock = list(chat)
    if family in NO_SYSTEM:
        first = Message("user", ("Be brief.\nFirst:", *chat[1].parts[1:]))
        stock = [first, *chat[2:]]
    text = vlm.tokenizer.apply_chat_template(
        [*map(as_stock, stock)], tokenize=False, add_generation_prompt=True
    )  # fmt: skip
    given = [images] if family in NESTED else images
    processor = vlm.images if family == STRANGER else real_processor(family, vlm)
    out = processor(images=given, text=[text], return_tensors="pt")
    wanted = torch.as_tensor(out["input_ids"])[0].tolist()
    prompt = vlm.prompt(make_chat(images, chat, 8))
    found = prompt.ids[0].tolist()
    if family == "llava_onevision":  # several pictures keep their tiles here
        wanted, found = ([i for i in ids if i not in vlm.visual_ids] for ids in (wanted, found))
    assert found == wanted
    assert {g.picture for g in prompt.pixels.grids} == {0, 1, 2}
    first_ones = make_request(images, "First:\nSecond:\nWhich is larger?\n" + QUESTION)
    assert prompt.visual_tokens == vlm.prompt(first_ones).visual_tokens


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
        assert generated(vlm, inputs, **with_cache(vlm.model, cache)) == plain


def test_generate_answers_a_batch(family: str, vlm: VisionLanguageModel, picture: Picture) -> None:
    """As plain transformers do at full width, and compressed as each prompt alone."""
    images, questions = [picture(100, 60), picture(60, 150, seed=1)], (QUESTION, "And the shop?")
    inputs = processed(family, vlm, images, *questions)
    options: dict[str, Any] = {
        "max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False,
        "suppress_tokens": list(vlm.banned_ids),
    }  # fmt: skip

    def said(given: dict[str, Any], settings: Settings | None) -> Tensor:
        cache = None if settings is None else RotateKCache(vlm.model, given, settings)
        out = vlm.model.generate(**given, **options, **with_cache(vlm.model, cache))
        return out[:, given["input_ids"].shape[1] :]

    assert torch.equal(said(inputs, Settings.of(keep_channels=1.0)), said(inputs, None))
    # Fewer tokens than channels: what weights make of directions without any is not defined.
    half = Settings.of(tokens="fastv", keep_tokens=0.5, keep_channels=0.5, weighting="none")
    alone = [
        said(processed(family, vlm, [image], question), half)
        for image, question in zip(images, questions, strict=True)
    ]
    assert torch.equal(said(inputs, half), torch.cat(alone))


def test_tokens_can_be_dropped_before_the_language_model(
    family: str, vlm: VisionLanguageModel, picture: Picture
) -> None:
    settings = Settings.of(tokens="visionzip", keep_tokens=0.5, keep_channels=0.5)
    request = make_request(picture(100, 60), QUESTION, NEW)
    if family == STRANGER:
        events = Engine(vlm).compare(request, {"zip": settings})
        (failed,) = [event for event in events if isinstance(event, Failed)]
        assert "Choose a pruner that acts inside it" in failed.message
        return
    prompt = vlm.prompt(request)
    whole, fewer = vlm.embed(prompt), vlm.embed(prompt, settings.pruning)
    assert fewer.kept is not None
    left = int(fewer.kept.sum())
    assert prompt.visual_tokens / 2 <= left < prompt.visual_tokens
    assert int(fewer.visual.sum()) == left
    assert fewer.embeds.shape[1] == whole.embeds.shape[1] - prompt.visual_tokens + left
    cache = RotateKCache(vlm.model, fewer.inputs(), settings)
    logits, _ = prefill(vlm, fewer, cache)
    assert len(list(decode(vlm, fewer, cache, logits, 3))) >= 1


@pytest.mark.parametrize("family", ["qwen2_5_vl", "llava_next", "gemma3", "qwen3_vl"])
def test_dropped_rows_change_nothing_for_those_that_stay(
    family: str, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropping rows inside the model is hiding them from the layers that follow: DeepStack still
    reaches the tokens that stay, and pictures still see themselves both ways."""
    vlm = EVERY[family]()
    prompt = vlm.prompt(make_request(picture(200, 160), QUESTION, NEW))
    embedded = vlm.embed(prompt)
    settings = Settings.of(
        tokens="fastv", fastv_layer=1, keep_tokens=0.5, channels="full", keep_channels=1.0
    )
    cache = RotateKCache(vlm.model, embedded.inputs(), settings)
    logits, _ = prefill(vlm, embedded, cache)
    assert cache.plan.kept_rows is not None
    hidden = ~cache.plan.kept_rows[0]
    assert 0 < int(hidden.sum()) < prompt.visual_tokens

    def hide(module: Any, args: tuple, kwargs: dict[str, Any]) -> tuple:
        mask, length = kwargs["attention_mask"], len(hidden)
        if mask is None:
            mask = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
        own = torch.eye(length, dtype=torch.bool)
        return args, {**kwargs, "attention_mask": (mask & ~hidden) | own}

    for layer in vlm.model.get_decoder().layers[1:]:
        layer.register_forward_pre_hook(hide, with_kwargs=True)
    masked, _ = prefill(vlm, embedded, DynamicCache())
    assert torch.allclose(logits, masked, atol=1e-4)


@pytest.mark.parametrize("family", [*EVERY, "unknown"])
def test_a_checkpoint_of_the_family_answers(
    family: str, picture: Picture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a folder with weights, tokenizer and processor, as the hub has them."""
    folder = tmp_path / "checkpoint"
    request = make_request(picture(100, 60), QUESTION, NEW)
    if family == "unknown":
        save_unknown(folder)
        loaded = load(folder, "cpu")
        assert type(loaded) is Generic and loaded.prompt(request).visual_tokens == 16
    else:
        vlm = save_known(family, folder)
        loaded = load(folder, "cpu")
        assert type(loaded) is type(vlm)
        assert loaded.prompt(request).ids.tolist() == vlm.prompt(request).ids.tolist()
        expected, found = (
            prefill(one, one.embed(one.prompt(request)), DynamicCache(config=one.model.config))[0]
            for one in (vlm, loaded)
        )
        assert torch.allclose(found, expected, atol=1e-4)
    assert weight_bytes(loaded.model.config, torch.float32) == 4 * loaded.model.num_parameters()
    assert loaded.model.config.model_type in card_line(str(folder))
    picture(100, 60).save(tmp_path / "shown.png")
    given = ["--model", str(folder), "--max-new-tokens", "4", "--json"]
    assert main(["ask", *given, str(tmp_path / "shown.png"), QUESTION]) == 0
    asked = json.loads(capsys.readouterr().out)
    assert asked["visual_tokens"] == loaded.prompt(request).visual_tokens and asked["kv_bytes"] > 0


# -- layers whose element-wise work is one pass: the same numbers -------------------------------

OWN_FORMULAS = ("gemma3", "gemma4")  # of norms and gates: no pass is for them


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The element-wise kernels that ran, by plain PyTorch."""
    found: list[str] = []

    def run(work: str, *given: Any) -> Tensor:
        found.append(work)
        return PLAIN[work](*given)

    monkeypatch.setattr(fused, "elementwise", run)
    return found


def logits(vlm: Any, picture: Picture) -> list[Tensor]:
    """Of a prompt, and what the tower says."""
    request = make_request(picture(120, 90, seed=3), "what is it?", 1)
    with torch.inference_mode():
        prompt = vlm.prompt(request)
        return [vlm.model(**inputs_of(vlm, prompt)).logits, vlm.features(prompt.pixels)]


@pytest.mark.parametrize("family", EVERY)
def test_a_fused_model_says_the_same(family: str, picture: Picture, ran: list[str]) -> None:
    vlm = EVERY[family]()
    want = logits(vlm, picture)
    fuse(vlm.model)
    torch.testing.assert_close(logits(vlm, picture), want)
    assert bool(ran) == (family not in OWN_FORMULAS)
