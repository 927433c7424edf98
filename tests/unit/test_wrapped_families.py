"""The newer families in wrappers, from embeddings, and in batches with rows of text alone."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from tests.families import EVERY
from tests.fixtures import Picture
from tests.unit.test_left_alone import GREEDY, Inputs, asked, untouched, used
from tests.unit.test_wrapped_models import WRAPPERS, adapted

FAMILIES = ["qwen3_5", "gemma4"]
FULL = Settings.of(keep_channels=1.0)


@pytest.fixture(scope="module", params=FAMILIES)
def vlm(request: pytest.FixtureRequest) -> VisionLanguageModel:
    return EVERY[request.param]()


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("options", [{"keep_channels": 0.25}, {"tokens": "fastv"}], ids=str)
@pytest.mark.parametrize("wrapper", list(WRAPPERS)[1:])
def test_a_wrapped_model_says_the_same(
    vlm: VisionLanguageModel, wrapper: str, options: dict[str, Any], picture: Picture
) -> None:
    inputs = asked(vlm, picture)
    said = used(untouched(vlm), inputs, **options)
    wrapped = WRAPPERS[wrapper](untouched(vlm))
    if vlm.family == "gemma4" and wrapper in ("accelerate", "both"):
        try:
            wrapped.generate(**inputs, **GREEDY)
        except KeyError:
            pytest.skip("accelerate copies what layers of this transformers share")
    assert torch.equal(used(wrapped, inputs, **options), said)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_an_adapted_model_at_full_width_is_itself(
    vlm: VisionLanguageModel, picture: Picture
) -> None:
    """With a LoRA that changes what it computes."""
    inputs, model = asked(vlm, picture), adapted(untouched(vlm), init_lora_weights=False).eval()
    plain = model.generate(**inputs, **GREEDY)
    cache = RotateKCache(model, inputs, FULL)
    assert torch.equal(model.generate(**inputs, **with_cache(vlm.model, cache), **GREEDY), plain)
    with torch.no_grad():
        assert not torch.allclose(model(**inputs).logits, vlm.model(**inputs).logits, atol=0.1)


@pytest.mark.parametrize("settings", [FULL, Settings.of(keep_channels=0.5)], ids=["full", "half"])
def test_a_prompt_may_be_embeddings(
    vlm: VisionLanguageModel, settings: Settings, picture: Picture
) -> None:
    """As plain transformers answers at full width, where its `generate` takes them."""
    if vlm.family == "gemma4":
        pytest.skip("transformers' generate wants the ids of its words")
    model = untouched(vlm)
    embedded = vlm.embed(vlm.prompt(make_request(picture(100, 80), "what?", 8)))
    given = {
        "inputs_embeds": embedded.embeds, "attention_mask": embedded.valid.long(),
        "position_ids": embedded.positions, **vlm.besides(embedded),
    }  # fmt: skip
    cache = RotateKCache(model, embedded.inputs(), settings)
    found = model.generate(**given, **with_cache(model, cache), **GREEDY)
    assert cache.bytes().parts["visual_keys"] > 0
    if settings is FULL:
        assert torch.equal(found, model.generate(**given, **GREEDY))


def batch_of(vlm: VisionLanguageModel, picture: Picture) -> tuple[Inputs, list[Inputs]]:
    """A prompt with a picture beside two of text alone, padded on the left; and each by itself."""
    shown = asked(vlm, picture)
    length = shown["input_ids"].shape[1]
    texts = [torch.arange(65, 65 + count)[None] for count in (9, length + 5)]
    alone = [shown, *({"input_ids": ids, "attention_mask": torch.ones_like(ids)} for ids in texts)]

    def padded(ids: Tensor) -> Tensor:
        return pad(ids, (length + 5 - ids.shape[1], 0))

    names = [name for name, part in shown.items() if part.shape == shown["input_ids"].shape]
    rows = {
        name: torch.cat(
            [padded(one.get(name, torch.zeros_like(one["input_ids"]))) for one in alone]
        )
        for name in names
    }
    return shown | rows, alone


@pytest.mark.parametrize(
    "options", [{"keep_channels": 1.0}, {"keep_channels": 0.5}, {"smaller": 3}]
)
def test_rows_of_text_alone_beside_a_picture(
    vlm: VisionLanguageModel, options: dict[str, float], picture: Picture
) -> None:
    """Each says what it says alone, and at full width what plain transformers says."""
    together, alone = batch_of(vlm, picture)
    model = untouched(vlm)
    found = used(model, together, **options)[:, -5:]
    for row, inputs in enumerate(alone):
        plain = model.generate(**inputs, **GREEDY)[0, -5:]
        said = used(model, inputs, **options)[0, -5:] if row == 0 else plain
        assert torch.equal(found[row], said), row
        if options == {"keep_channels": 1.0}:
            assert torch.equal(found[row], plain), row
