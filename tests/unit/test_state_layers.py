"""Models of which some layers keep a state in place of Keys: the others are compressed."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from transformers.cache_utils import DynamicCache

from rotatek.bridge.attention import prepare
from rotatek.bridge.cache_argument import with_cache
from rotatek.bridge.state_layers import key_layers, state_layers, tensors_of
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.errors import ModeUnsupported
from rotatek.methods.settings import Settings
from tests.tiny import scramble
from tests.unit.test_refused_attention import TEXT, llava_over

GREEDY: dict[str, Any] = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
FULL = Settings.of(channels="full", keep_channels=1.0)
FORMS = {
    "channels": Settings.of(keep_channels=0.5),
    "bits": Settings.of(smaller=4),
    "fewer rows": Settings.of(tokens="fastv", fastv_layer=1, keep_tokens=0.5, weighting="none"),
    "fewer a head": Settings.of(tokens="snapkv", keep_tokens=0.5),
}


def lfm2(vocabulary: int = 100, image: int = 90) -> hf.PreTrainedModel:
    """Short convolutions, one of them behind the last layer with Keys."""
    kinds = ["conv", "full_attention", "conv", "full_attention", "conv"]
    sizes = TEXT | {"num_hidden_layers": len(kinds), "vocab_size": vocabulary}
    text = hf.Lfm2Config(**sizes, layer_types=kinds)
    tower = hf.Siglip2VisionConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        patch_size=14, num_patches=64,
    )  # fmt: skip
    config = hf.Lfm2VlConfig(text_config=text, vision_config=tower, image_token_id=image)
    return hf.Lfm2VlForConditionalGeneration(config)


def granite() -> hf.PreTrainedModel:
    """State spaces, and attention whose scores have a scale of their own."""
    text = {name: value for name, value in TEXT.items() if name != "head_dim"}
    return llava_over(
        hf.GraniteMoeHybridConfig(
            **text | {"num_hidden_layers": 4}, attention_multiplier=0.2, mamba_n_heads=8,
            layer_types=["linear_attention", "full_attention"] * 2, mamba_d_state=16,
            mamba_chunk_size=8, num_local_experts=2, num_experts_per_tok=1,
            shared_intermediate_size=32,
        )
    )  # fmt: skip


MODELS: dict[str, Callable[[], hf.PreTrainedModel]] = {
    "lfm2_vl": lfm2,
    "granite hybrid": granite,
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> hf.PreTrainedModel:
    torch.manual_seed(0)
    return scramble(MODELS[request.param](), 0)


def rows(*which: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A batch padded on the left, whose last row is text alone; a row alone has no padding."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(5, 80, (3, 40), generator=generator)
    visual = torch.zeros_like(ids, dtype=torch.bool)
    visual[0, 2:30] = visual[1, 20:34] = True
    mask = torch.ones_like(ids)
    mask[1, :11] = mask[2, :17] = 0
    taken = list(which or range(3))
    ids, visual, mask = ids[taken], visual[taken], mask[taken]
    if len(taken) == 1:
        real = mask[0].bool()
        ids, visual, mask = ids[:, real], visual[:, real], mask[:, real]
    return {"input_ids": ids, "attention_mask": mask}, {"visual": visual, "attention_mask": mask}


def said(model: hf.PreTrainedModel, settings: Settings, *which: int, **more: Any) -> Tensor:
    inputs, marked = rows(*which)
    cache = RotateKCache(model, marked, settings)
    return _new(model, inputs, cache, **more)


def _new(model: hf.PreTrainedModel, inputs: dict[str, Tensor], cache: Any, **more: Any) -> Tensor:
    torch.manual_seed(0)
    out = model.generate(**inputs, **GREEDY | more, **with_cache(model, cache))
    return out[:, inputs["input_ids"].shape[1] :]


@pytest.mark.parametrize("way", [{}, {"num_beams": 2}], ids=str)
def test_full_width_is_plain_transformers(model: hf.PreTrainedModel, way: dict[str, Any]) -> None:
    plain = _new(model, rows()[0], None, **way)
    assert torch.equal(said(model, FULL, **way), plain)
    assert torch.equal(said(model, Settings.of(keep_channels=1.0), **way), plain)


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_is_its_rows(model: hf.PreTrainedModel, form: str) -> None:
    together = said(model, FORMS[form])
    alone = [said(model, FORMS[form], row) for row in range(3)]
    assert torch.equal(together, torch.cat(alone))


@torch.inference_mode()
def test_dropped_rows_are_never_read_by_later_layers(model: hf.PreTrainedModel) -> None:
    """A pruner counts layers with Keys: behind the first one, the rest of the model reads what
    stays, as a prompt of these rows alone."""
    inputs, marked = rows(0)
    settings = Settings.of(
        tokens="fastv", fastv_layer=1, keep_tokens=0.5, channels="full", keep_channels=1.0
    )
    entered: dict[int, tuple[Tensor, Any]] = {}
    model = prepare(copy.deepcopy(model))  # whose hooks come before those of this test
    layers = model.get_decoder().layers
    cache = RotateKCache(model, marked, settings)
    handles = [
        layer.register_forward_pre_hook(_seeing(entered, at), with_kwargs=True)
        for at, layer in enumerate(layers)
    ]
    model(**inputs, use_cache=True, **with_cache(model, cache))
    for handle in handles:
        handle.remove()
    assert cache.plan.kept_rows is not None
    kept = cache.plan.kept_rows[0]
    first = next(at for at, la in enumerate(cache.layers) if la is key_layers(cache)[0])
    sizes = [hidden.shape[1] for hidden, _ in entered.values()]
    assert sizes == [40 if at <= first else int(kept.sum()) for at in range(len(layers))]
    hidden, given = entered[first + 1]  # it keeps a state
    alone = DynamicCache(config=model.config)
    layers[first + 1](hidden, **given | {"attention_mask": None} | with_cache(layers[0], alone))
    read, own = (tensors_of(each.layers[first + 1]) for each in (alone, cache))
    assert own and all(map(torch.equal, read, own))


def _seeing(entered: dict[int, tuple[Tensor, Any]], at: int) -> Callable[..., None]:
    def see(_: Any, args: tuple, given: dict[str, Any]) -> None:
        others = dict(given)
        hidden = args[0] if args else others.pop("hidden_states")
        entered[at] = hidden.clone(), others

    return see


def test_a_cache_is_used_again_and_never_cropped(model: hf.PreTrainedModel) -> None:
    inputs, marked = rows()
    cache = RotateKCache(model, marked, FORMS["channels"])
    first = _new(model, inputs, cache)
    held = sum(t.nbytes for la in state_layers(cache) for t in tensors_of(la))
    assert cache.bytes().parts["state"] == held > 0
    with pytest.raises(ModeUnsupported, match="Assisted decoding"):
        cache.crop(-1)
    cache.reset()
    assert cache.bytes().total == 0
    assert torch.equal(_new(model, inputs, cache), first)
    cache.batch_select_indices(torch.tensor([2, 0]))
    cache.batch_repeat_interleave(2)
    assert all(len(t) == 4 for la in state_layers(cache) for t in tensors_of(la))
