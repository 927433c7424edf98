"""Sliding windows and masks: what they hide is hidden as by transformers, or refused."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torch.nn.functional import pad
from transformers import MistralConfig
from transformers.cache_utils import Cache, DynamicCache

from rotatek import BASELINE, PICTURE, Engine, RotateKCache, Settings, make_request
from rotatek.bridge.row_layout import TEXT_STEP
from rotatek.bridge.scope import with_cache
from rotatek.cache.measures import storage_bytes
from rotatek.cache.step_graph import StepGraph
from rotatek.engine.passes import prefill
from rotatek.errors import ModeUnsupported, SettingError
from rotatek.models import Embedded, VisionLanguageModel
from tests.families import EVERY, tiny_gemma3, tiny_gemma4, tiny_llava15
from tests.fixtures import Picture, collate, decode, inputs_of
from tests.fixtures import tokens_of as ids
from tests.recorded import RecordedGraph
from tests.tiny import tiny_llava

QUESTION = "What is the total?"
NEW = 24  # tokens of an answer
WINDOWS = (8, 40, 64)  # of a prompt of 52 tokens: its picture has left, leaves, stays
FULL = Settings.of(keep_channels=1.0)
COLUMNS = {
    "all": BASELINE,
    "k": FULL,
    "full": Settings.of(channels="full"),
    "fastv": Settings.of(tokens="fastv", fastv_layer=1, keep_tokens=0.5),
    "kivi": Settings.of(channels="kivi"),
    "bits": Settings.of(smaller=16),
}


@pytest.fixture(scope="module", params=WINDOWS)
def vlm(request: pytest.FixtureRequest) -> VisionLanguageModel:
    return tiny_gemma3(request.param, 16, tied=False)  # tied, random ones repeat one token


@pytest.fixture(autouse=True)
def _long_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VisionLanguageModel, "stop_ids", frozenset())


def width(vlm: VisionLanguageModel) -> int:
    return vlm.model.config.text_config.sliding_window


def asked(vlm: VisionLanguageModel, image: Image.Image, question: str = QUESTION) -> Embedded:
    return vlm.embed(vlm.prompt(make_request(image, question, NEW)))


def answered(
    vlm: VisionLanguageModel, embedded: Embedded, cache: Cache, new: int = NEW
) -> tuple[list[list[int]], Tensor]:
    """Tokens [step][row], and the logits that they were chosen from."""
    logits, _ = prefill(vlm, embedded, cache)
    steps = list(decode(vlm, embedded, cache, logits, new))
    return [step.tokens for step in steps], torch.stack([step.logits for step in steps])


def plain(vlm: VisionLanguageModel) -> DynamicCache:
    return DynamicCache(config=vlm.model.config)


def test_full_width_is_plain_transformers(vlm: VisionLanguageModel, picture: Picture) -> None:
    embedded = asked(vlm, picture(100, 60))
    tokens, logits = answered(vlm, embedded, plain(vlm))
    assert len({token for (token,) in tokens}) > 1
    for settings in (FULL, COLUMNS["full"]):
        cache = RotateKCache(vlm.model, embedded.inputs(), settings)
        own, found = answered(vlm, embedded, cache)
        assert own == tokens and torch.allclose(found, logits, atol=2e-3)
        slots = -(-width(vlm) // TEXT_STEP) * TEXT_STEP
        for layer in cache.layers:
            assert (layer.span is None) == (layer.index == 2)
            assert layer.span is None or layer.text.keys.shape[2] <= slots
        tensors = [*(tensor for _, tensor in cache.tensors()), *cache.marks()]
        assert cache.bytes().total == storage_bytes(tensors)


def test_generate_follows_the_window(
    vlm: VisionLanguageModel, picture: Picture, recorded: list[RecordedGraph]
) -> None:
    """Replayed, in the room of a graph that the window is crossed in, and beyond it."""
    prompt = vlm.prompt(make_request(picture(100, 60), QUESTION, NEW))
    inputs = inputs_of(vlm, prompt)
    options: Any = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    options["suppress_tokens"] = list(vlm.banned_ids)
    wanted = vlm.model.generate(**inputs, **options)
    for room in (128, 4):
        cache = RotateKCache(vlm.model, inputs, FULL)
        cache._steps = StepGraph(room)
        cache.graph = True
        found = vlm.model.generate(**inputs, **options, **with_cache(vlm.model, cache))
        assert torch.equal(found, wanted), room
    assert sum(one.replays for one in recorded) > NEW


@pytest.mark.parametrize("vlm", [40], indirect=True)
def test_the_running_batch_says_what_a_cache_alone_says(
    vlm: VisionLanguageModel, picture: Picture
) -> None:
    request = make_request(picture(100, 60), QUESTION, NEW)
    said = ids(list(Engine(vlm).compare(request, COLUMNS)))
    assert said["all"] == said["k"] == said["full"]
    embedded = vlm.embed(vlm.prompt(request))
    for name, settings in COLUMNS.items():
        cache = RotateKCache(vlm.model, embedded.inputs(), settings)
        alone, _ = answered(vlm, embedded, cache)
        assert said[name] == [token for (token,) in alone], name


WITH_WINDOWS: dict[str, Callable[[], VisionLanguageModel]] = {
    "gemma3": lambda: tiny_gemma3(64, 16, tied=False),
    "gemma4": lambda: tiny_gemma4(window=64, global_head_dim=32),
    "mistral": lambda: tiny_llava15(MistralConfig, sliding_window=64),
}


@pytest.mark.parametrize("family", WITH_WINDOWS)
def test_long_texts_on_both_sides_of_a_picture(family: str, picture: Picture) -> None:
    """The picture is inside a window of which the text before it has left, behind it, or at its
    edge; alone, and in a batch of such prompts whose layers hold texts of different lengths."""
    vlm, prompts = WITH_WINDOWS[family](), []
    for before, after in ((1, 1), (40, 1), (1, 30), (200, 30), (30, 200)):
        asked_ = ("a" * before, PICTURE, "b" * after + "?")
        prompts.append(vlm.embed(vlm.prompt(make_request(picture(100, 60), asked_, 8))))
        own, found = answered(vlm, prompts[-1], plain(vlm), 8)
        full = RotateKCache(vlm.model, prompts[-1].inputs(), FULL)
        tokens, logits = answered(vlm, prompts[-1], full, 8)
        assert tokens == own and torch.allclose(logits, found, atol=2e-3)
    for settings in (Settings.of(smaller=4), Settings.of(keep_channels=0.5)):
        batch = collate(prompts)
        cache = RotateKCache(vlm.model, batch.inputs(), settings)
        together, logits = answered(vlm, batch, cache, 8)
        for row, single in enumerate(prompts):
            alone = RotateKCache(vlm.model, single.inputs(), settings)
            said, found = answered(vlm, single, alone, 8)
            assert torch.allclose(logits[0, row], found[0, 0], atol=2e-3)
            assert together[0][row] == said[0][0]


# -- attention masks: what they hide behind a prompt is hidden as by transformers, or refused --

MODELS: dict[str, Any] = {
    "llava_next": tiny_llava,
    "qwen3_vl": EVERY["qwen3_vl"],
    "qwen3_5": EVERY["qwen3_5"],
    "gemma3": lambda: tiny_gemma3(tied=False),
    "gemma3, in a window": lambda: tiny_gemma3(64, tied=False),
    "gemma4": tiny_gemma4,
}
TOLD: dict[str, Any] = {
    "max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "output_logits": True,
    "return_dict_in_generate": True,
}  # fmt: skip
Inputs = dict[str, Tensor]


@cache
def prompts(name: str) -> tuple[VisionLanguageModel, Inputs]:
    """A model, and two prompts of different lengths in a batch."""
    vlm, asked = MODELS[name](), []
    for seed, question in enumerate(("what is it?", "is it?")):
        noise = np.random.default_rng(seed).integers(0, 256, (56, 56, 3), dtype=np.uint8)
        asked.append(vlm.prompt(make_request(Image.fromarray(noise), question, 8)))
    return vlm, inputs_of(vlm, *asked)


def talk(name: str, cache_of: Any, turns: list[Tensor], ended: list[int]) -> list[Any]:
    """Answers to a prompt and to further questions, rows of which are padded or had ended."""
    vlm, inputs = prompts(name)
    held = cache_of(vlm, inputs)
    told = TOLD | {"suppress_tokens": list(vlm.banned_ids)}  # which a random model would say
    said = [vlm.model.generate(**inputs, **with_cache(vlm.model, held), **told)]
    mask = inputs["attention_mask"]
    for turn, real in enumerate(turns):
        ids = said[-1].sequences
        answer = torch.ones(2, ids.shape[1] - mask.shape[1], dtype=mask.dtype)
        if ended[turn]:
            answer[1, -ended[turn] :] = 0  # the row had ended, and was filled up
        words = torch.randint(65, 90, real.shape, generator=torch.Generator().manual_seed(turn))
        mask = torch.cat([mask, answer, real.long()], 1)
        given = {"input_ids": torch.cat([ids, words], 1), "attention_mask": mask}
        kinds = [name for name in inputs if name.endswith("type_ids")]
        gap = mask.shape[1] - inputs["input_ids"].shape[1]
        given |= {name: pad(inputs[name], (0, gap)) for name in kinds}
        said.append(vlm.model.generate(**given, **with_cache(vlm.model, held), **told))
    return said


def uncompressed(vlm: VisionLanguageModel, _: Inputs) -> Any:
    return DynamicCache(config=vlm.model.config)


def whole(vlm: VisionLanguageModel, inputs: Inputs) -> Any:
    return RotateKCache(vlm.model, inputs, Settings.of(channels="full"))


@st.composite
def turn(draw: Any) -> Tensor:
    """Which of a further question's tokens are real, in two rows [2, T]; the last ones are."""
    length = draw(st.integers(1, 6))
    marks = draw(st.lists(st.booleans(), min_size=2 * length, max_size=2 * length))
    real = torch.tensor(marks).view(2, length)
    real[:, -1] = True
    return real


@examples(max_examples=24)
@given(st.sampled_from(sorted(MODELS)), st.lists(turn(), min_size=1, max_size=2), st.data())
def test_padding_behind_the_prompt_is_hidden_as_by_plain_transformers(
    name: str, turns: list[Tensor], data: st.DataObject
) -> None:
    """Questions of different lengths, padded anywhere, and rows whose answers ended early."""
    ended = [data.draw(st.integers(0, 4)) for _ in turns]
    wanted = talk(name, uncompressed, turns, ended)
    try:
        found = talk(name, whole, turns, ended)
    except ModeUnsupported as refused:
        assert name == "gemma3, in a window" and "window's edge" in str(refused)
        return
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one.sequences, other.sequences)
        pairs = zip(one.logits, other.logits, strict=True)
        assert all(torch.allclose(mine, theirs, atol=2e-3) for mine, theirs in pairs)


REAL = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]], dtype=torch.bool)


@pytest.mark.parametrize(
    "options", [{"keep_channels": 0.25}, {"smaller": 4}, {"tokens": "fastv", "keep_tokens": 0.5}]
)
def test_a_padded_batch_is_its_rows_in_every_form(
    options: dict[str, Any], recorded: list[RecordedGraph]
) -> None:
    """Also where its steps are replayed, and behind a copy and a selection of rows."""

    def made(vlm: VisionLanguageModel, inputs: Inputs) -> Any:
        return RotateKCache(vlm.model, inputs, Settings.of(**options))

    vlm, inputs = prompts("llava_next")
    both = talk("llava_next", made, [REAL], [3])[-1].sequences[:, -5:]
    assert recorded  # between the turns
    real = inputs["attention_mask"][1].bool()
    one = {name: part[1:] for name, part in inputs.items()}
    one |= {name: one[name][:, real] for name in ("input_ids", "attention_mask")}
    held = made(vlm, one)
    told = TOLD | {"suppress_tokens": list(vlm.banned_ids)}
    ids = vlm.model.generate(**one, **with_cache(vlm.model, held), **told).sequences
    words = torch.randint(65, 90, (2, 4), generator=torch.Generator().manual_seed(0))
    given = {"input_ids": torch.cat([ids, words[1:]], 1)}
    mask = torch.ones_like(given["input_ids"])
    mask[:, ids.shape[1] - 3 : ids.shape[1]] = 0
    mask[:, ids.shape[1] : -2] = 0
    twins = held.fork()
    for cache_ in (held, twins):
        if cache_ is twins:
            before = [t.shape for _, t in held.tensors()]
            cache_.batch_repeat_interleave(2)
            assert [t.shape for _, t in held.tensors()] == before  # no other cache's rows
            given, mask = {"input_ids": given["input_ids"].repeat(2, 1)}, mask.repeat(2, 1)
        out = vlm.model.generate(
            **given, attention_mask=mask, **with_cache(vlm.model, cache_), **told
        )
        assert all(torch.equal(row, both[1]) for row in out.sequences[:, -5:])


def test_what_a_mask_cannot_say_is_refused() -> None:
    vlm, inputs = prompts("llava_next")
    L = inputs["input_ids"].shape[1]
    four = torch.ones(2, 1, L, L, dtype=torch.bool).tril()
    with pytest.raises(SettingError, match="attention_mask"):
        whole(vlm, inputs | {"attention_mask": four})
    other = inputs["attention_mask"].clone()
    other[0, 3] = 0
    for mask, said in ((four, "one number a token"), (other, "made with"), (None, "made with")):
        with pytest.raises(ModeUnsupported, match=said), torch.no_grad():
            vlm.model(
                **inputs | {"attention_mask": mask},
                **with_cache(vlm.model, whole(vlm, inputs)),
            )  # fmt: skip
    held, more = whole(vlm, inputs), torch.tensor([[65], [65]])
    seen = int(torch.isin(inputs["input_ids"][0], torch.tensor(vlm.visual_ids)).nonzero()[0])
    longer = torch.cat([inputs["attention_mask"], torch.ones_like(more)], 1)
    shown, hidden = longer.clone(), longer.clone()
    shown[1, 0], hidden[0, seen] = 1, 0
    with torch.no_grad():
        vlm.model(**inputs, **with_cache(vlm.model, held))
        for mask, said in (
            (torch.ones(2, 1, 1, L + 1, dtype=torch.bool), "one number a token"),
            (longer[:, 1:], "one number a token"), (shown, "hidden before"), (hidden, "visual"),
        ):  # fmt: skip
            with pytest.raises(ModeUnsupported, match=said):
                vlm.model(input_ids=more, attention_mask=mask, **with_cache(vlm.model, held))
        vlm.model(input_ids=more, attention_mask=longer, **with_cache(vlm.model, held))
