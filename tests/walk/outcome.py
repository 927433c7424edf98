"""What becomes of one class: it answers, through an adapter or `generate` alone, or is refused."""

import inspect
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

import numpy as np
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, GenerationConfig, PreTrainedModel

from rotatek.bridge.attention import prepare
from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.token_plan import visual_ids
from rotatek.engine.decode import decode, prefill
from rotatek.errors import UserError
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from rotatek.models.families import OTHERS, family_of
from tests.families import EVERY
from tests.tiny import scramble
from tests.walk.processors import small_processor
from tests.walk.shrink import small_config

OVERLAY, PLAIN, GENERATE, REFUSED, UNTRIED = GROUPS = (
    "runs with overlay", "runs without", "through generate only", "refused", "not tried",
)  # fmt: skip
PLACES: Final = {"pp_chart2table": 256 * "<imgpad>"}  # the text of a picture, where there is none
NEW: Final = 4
QUESTION: Final = "What is it?"
TEMPLATE: Final = (
    "{%% for m in messages %%}{%% for part in m['content'] %%}{%% if part['type'] == 'image' %%}"
    "%s\n{%% else %%}{{ part['text'] }}{%% endif %%}{%% endfor %%}{%% endfor %%}"
)


@dataclass(frozen=True)
class Outcome:
    """A class's group, and the sentence of its refusal or the reason why it was not tried."""

    group: str
    sentence: str = ""


def outcome(kind: str) -> Outcome:
    """Try a model type of the image-text-to-text mapping, tiny and random. What a family with a
    tiny model of its own answers is held by `tests/unit/test_families.py`.

    Raises:
        AssertionError: where compressed tokens at full width are not plain transformers'.
        Exception: what no `UserError` says is a fault.
    """
    if kind in EVERY:
        vlm = EVERY[kind]()
        return Outcome(OVERLAY if vlm.prompt(_request()).pixels.grids else PLAIN)
    try:
        config = small_config(kind)
        family_of(config)
        with torch.device("meta"):
            empty = AutoModelForImageTextToText.from_config(config)
    except UserError as error:
        return Outcome(REFUSED, str(error))
    except ImportError as error:
        return Outcome(UNTRIED, _package(error))
    except (AttributeError, ValueError):  # older releases: the committed walk has none
        return Outcome(UNTRIED, "its default configuration makes no model")
    try:
        prepare(empty)
    except UserError as error:
        return Outcome(REFUSED, str(error))
    try:
        processor = small_processor(kind, config)
    except ImportError:
        processor = None
    if processor is None:
        return Outcome(UNTRIED, "its processor needs torchvision")
    model = _made(config)
    vlm = OTHERS.adapter(model, processor.tokenizer, processor, kind)
    try:
        image = PLACES.get(kind) or vlm.placeholder
    except UserError as error:
        return Outcome(REFUSED, str(error))
    processor.tokenizer.chat_template = TEMPLATE % image
    out = processor(images=[_picture()], text=[f"{image}\n{QUESTION}"], return_tensors="pt")
    takes = inspect.signature(type(model).forward).parameters
    inputs = {name: value for name, value in out.items() if name in takes}
    if "mm_token_type_ids" in takes:
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == model.config.image_token_id).long()
    try:
        _check_generate(model, inputs)
    except UserError as error:
        return Outcome(REFUSED, str(error))
    try:
        vlm.check()
        _check_adapter(vlm, inputs)
    except UserError as error:
        return Outcome(GENERATE, str(error))
    return Outcome(OVERLAY if vlm.prompt(_request()).pixels.grids else PLAIN)


def _picture() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 255, (60, 100, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def _request() -> Any:
    return make_request(_picture(), QUESTION, NEW)


def _made(config: Any) -> PreTrainedModel:
    model = AutoModelForImageTextToText.from_config(config)
    scramble(model, 0)
    model.generation_config = GenerationConfig(pad_token_id=0, eos_token_id=None)
    return model


def _generated(model: PreTrainedModel, inputs: dict[str, Any], cache: Any = None) -> list[int]:
    more = {} if cache is None else with_cache(model, cache)
    out = model.generate(
        **inputs, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False,
        suppress_tokens=list(visual_ids(model.config)), **more,
    )  # fmt: skip
    return out[0, -NEW:].tolist()


def _check_generate(model: PreTrainedModel, inputs: dict[str, Any]) -> None:
    """Full width through `generate` is plain transformers, and visual tokens are stored."""
    plain = _generated(model, inputs)
    cache = RotateKCache(model, inputs, Settings.of(keep_channels=1.0))
    assert _generated(model, inputs, cache) == plain
    assert cache.bytes().parts["visual_keys"] > 0


def _check_adapter(vlm: VisionLanguageModel, inputs: dict[str, Any]) -> None:
    """The adapter's prompt is the processor's, and its tokens are plain transformers'."""
    with mock.patch.object(VisionLanguageModel, "stop_ids", frozenset()):
        plain = _generated(vlm.model, inputs)
        prompt = vlm.prompt(_request())
        assert prompt.ids.tolist() == inputs["input_ids"].tolist()
        embedded = vlm.embed(prompt)
        cache = RotateKCache(vlm.model, embedded.inputs(), Settings.of(keep_channels=1.0))
        logits, _ = prefill(vlm, embedded, cache)
        tokens = [t for step in decode(vlm, embedded, cache, logits, NEW) for t in step.tokens]
    assert tokens == plain, "the adapter's tokens"


def _package(error: ImportError) -> str:
    """The reason of a missing package, without its manual."""
    return str(error).strip().splitlines()[0].partition(". ")[0]
