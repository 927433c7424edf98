"""Growing a trained model, and storing it in half the bytes."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import Qwen2_5_VLForConditionalGeneration

from pocket.models import tokenizer
from pocket.models.config import build_model, model_config, save_model
from pocket.training.growth import grown, places


@torch.no_grad()
def _logits(model: Qwen2_5_VLForConditionalGeneration) -> torch.Tensor:
    """The result of ``model`` for one noisy picture and one question."""
    pixels = torch.randn(64, 1176, generator=torch.Generator().manual_seed(5))
    question = tokenizer.question_ids("title?", first=True)
    ids = torch.tensor([tokenizer.prefix() + [tokenizer.IMAGE_PAD] * 16 + question])
    return model(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=(ids == tokenizer.IMAGE_PAD).int(),
        pixel_values=pixels,
        image_grid_thw=torch.tensor([[1, 8, 8]]),
    ).logits


def test_a_grown_model_computes_what_it_grew_from_and_can_learn_more() -> None:
    small = build_model(model_config(2, 2, 256, 128), seed=3)
    config = model_config(5, 3, 256, 128)
    config.text_config.intermediate_size *= 2
    large = grown(small, config)
    sizes = [sum(p.numel() for p in m.parameters()) for m in (small, large)]
    assert sizes[1] > 2 * sizes[0]
    assert torch.allclose(_logits(large), _logits(small), atol=1e-4)
    assert large.lm_head.weight is large.model.language_model.embed_tokens.weight
    large(input_ids=torch.arange(40)[None], labels=torch.arange(40)[None]).loss.backward()
    for layer in large.model.language_model.layers:
        mlp = layer.mlp.down_proj.weight.grad
        assert layer.self_attn.o_proj.weight.grad.abs().max() > 0
        assert mlp[:, mlp.shape[1] // 2 :].abs().max() > 0
    assert grown(large, config) is large


def test_added_layers_are_spread_out_and_nothing_shrinks() -> None:
    assert [old for old, _ in places(3, 6)] == [0, 0, 1, 1, 2, 2]
    assert [added for _, added in places(3, 6)] == [False, True] * 3
    assert [old for old, added in places(6, 10) if not added] == list(range(6))
    small = build_model(model_config(2, 2, 256, 128))
    with pytest.raises(ValueError, match="2 layers cannot be made one of 1"):
        grown(small, model_config(1, 2, 256, 128))
    with pytest.raises(ValueError, match="cannot grow"):
        grown(small, model_config(2, 2, 512, 128))


def test_matrices_are_stored_in_eight_bits_and_load_as_if_they_were_not(tmp_path: Path) -> None:
    torch.manual_seed(1)
    made = build_model(model_config(2, 2, 256, 128))
    with torch.no_grad():
        for p in made.parameters():
            if p.ndim == 1:  # vectors keep their sixteen bits
                p.add_(torch.rand_like(p))
    save_model(made, tmp_path)
    stored = [load_file(p) for p in tmp_path.glob("*.safetensors")]
    flat = {name: value for shard in stored for name, value in shard.items()}
    assert "lm_head.weight" not in flat
    assert all(
        v.dtype == (torch.float8_e4m3fn if v.ndim > 1 else torch.bfloat16) for v in flat.values()
    )
    loaded = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path)
    assert loaded.dtype == torch.bfloat16
    exact = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32)
    for name, wanted in made.state_dict().items():
        bits = wanted.bfloat16()
        rounded = bits.to(torch.float8_e4m3fn).bfloat16() if wanted.ndim > 1 else bits
        assert loaded.state_dict()[name].equal(rounded), name
        assert exact.state_dict()[name].equal(rounded.float()), name
