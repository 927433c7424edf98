"""A small random model of every family with an adapter, and its real processor.

Built here from configurations and byte-level tokenizers: nothing is downloaded. The two families of
`tests.tiny` are not repeated.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import transformers as hf

from rotatek.bridge.attention import prepare
from rotatek.models import VisionLanguageModel
from rotatek.models.families import FAMILIES, OTHERS
from tests.tiny import (
    SIGLIP,
    TEXT,
    TINY,
    byte_tokenizer,
    chat_template,
    finish,
    qwen_like,
    rope,
    scramble,
)

CHATML = ["<|im_start|>", "<|im_end|>"]
ROWS = ["[IMG_BREAK]", "[IMG_END]"]


def tiny_qwen2() -> VisionLanguageModel:
    """Qwen2-VL: M-RoPE, no windows in the tower."""
    text = {k: v for k, v in TEXT.items() if k != "head_dim"}
    vision = {"embed_dim": 64, "mlp_ratio": 2, "hidden_size": 128}
    return qwen_like(hf.Qwen2VLForConditionalGeneration, hf.Qwen2VLConfig, text | rope(), vision)


TOWER: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "out_hidden_size": 128, "patch_size": 16,
    "num_position_embeddings": 64,
}  # fmt: skip


def tiny_qwen3() -> VisionLanguageModel:
    """Qwen3-VL: interleaved M-RoPE, patches of 16, DeepStack into the first layers."""
    text, vision = TEXT | rope(mrope_interleaved=True), {"deepstack_visual_indexes": [0, 1, 2]}
    tower = TOWER | {"depth": 4} | vision
    return qwen_like(hf.Qwen3VLForConditionalGeneration, hf.Qwen3VLConfig, text, tower)


STATES: dict[str, Any] = {  # one layer in two has Keys, the others a state
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}  # fmt: skip


SECTIONS = rope(mrope_interleaved=True, mrope_section=[2, 1, 1], partial_rotary_factor=0.25)


def tiny_qwen35() -> VisionLanguageModel:
    """Qwen3.5: layers of linear attention, partial interleaved M-RoPE, gated attention."""
    kind, config = hf.Qwen3_5ForConditionalGeneration, hf.Qwen3_5Config
    return qwen_like(kind, config, TEXT | SECTIONS | STATES, TOWER)


def tiny_qwen35_moe() -> VisionLanguageModel:
    """Qwen3.5 with experts."""
    kind, config = hf.Qwen3_5MoeForConditionalGeneration, hf.Qwen3_5MoeConfig
    return qwen_like(kind, config, TEXT | SECTIONS | STATES | EXPERTS, TOWER)


def tiny_llava15(text: type = hf.LlamaConfig, **more: Any) -> VisionLanguageModel:
    """LLaVA-1.5: a CLIP tower whose CLS token is left out, a Llama with a first token."""
    tokenizer = byte_tokenizer(["<s>", "</s>", "<image>"], "</s>")
    config = hf.LlavaConfig(
        vision_config=hf.CLIPVisionConfig(**SIGLIP),
        text_config=text(**TEXT, vocab_size=len(tokenizer), **more),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    images = FAMILIES["llava"].images(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}
    )
    return finish("llava", hf.LlavaForConditionalGeneration(config), tokenizer, images)


def tiny_onevision() -> VisionLanguageModel:
    """LLaVA-OneVision: a SigLIP tower without CLS, tiles scaled down where there are many."""
    tokenizer = byte_tokenizer([*CHATML, "<image>", "<video>"], "<|im_end|>")
    tokenizer.chat_template = chat_template("<image>")
    pinpoints = [[56 * a, 56 * b] for a in range(1, 5) for b in range(1, 5)]
    config = hf.LlavaOnevisionConfig(
        vision_config=hf.SiglipVisionConfig(**SIGLIP, vision_use_head=False),
        text_config=hf.Qwen2Config(**TEXT, vocab_size=len(tokenizer)),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        video_token_index=tokenizer.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=pinpoints, vision_aspect_ratio="anyres_max_4",
    )  # fmt: skip
    images = FAMILIES["llava_onevision"].images(
        size={"height": 56, "width": 56}, image_grid_pinpoints=pinpoints
    )
    network = hf.LlavaOnevisionForConditionalGeneration(config)
    return finish("llava_onevision", network, tokenizer, images)


def _smol(family: str, kind: type, config: type) -> VisionLanguageModel:
    places = [f"<row_{r}_col_{c}>" for r in range(1, 5) for c in range(1, 5)]
    special = ["<|im_start|>", "<end_of_utterance>", "<image>", "<fake_token_around_image>"]
    tokenizer = byte_tokenizer([*special, "<global-img>", *places], "<end_of_utterance>")
    tokenizer.chat_template = chat_template("<image>", end="<end_of_utterance>")
    made = config(
        vision_config=SIGLIP, text_config=hf.LlamaConfig(**TEXT, vocab_size=len(tokenizer)),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"), scale_factor=2,
    )  # fmt: skip
    images = FAMILIES[family].images(
        size={"longest_edge": 168}, max_image_size={"longest_edge": 56}
    )
    return finish(family, kind(made), tokenizer, images)


def tiny_smolvlm() -> VisionLanguageModel:
    """SmolVLM: tiles named by row and column, pixel shuffle."""
    return _smol("smolvlm", hf.SmolVLMForConditionalGeneration, hf.SmolVLMConfig)


def tiny_idefics3() -> VisionLanguageModel:
    """Idefics3: as SmolVLM."""
    return _smol("idefics3", hf.Idefics3ForConditionalGeneration, hf.Idefics3Config)


def _name(tokenizer: Any, **tokens: str) -> None:
    """Give a tokenizer the attributes that its family's processor reads."""
    for name, token in tokens.items():
        setattr(tokenizer, name, token)
        setattr(tokenizer, f"{name}_id", tokenizer.convert_tokens_to_ids(token))


def tiny_internvl() -> VisionLanguageModel:
    """InternVL: tiles in the picture's shape and a thumbnail, a tower with CLS, pixel shuffle."""
    special = [*CHATML, "<img>", "</img>", "<IMG_CONTEXT>", "<video>"]
    tokenizer = byte_tokenizer(special, "<|im_end|>")
    tokenizer.chat_template = chat_template("<IMG_CONTEXT>")
    _name(
        tokenizer, start_image_token="<img>", end_image_token="</img>",
        context_image_token="<IMG_CONTEXT>", video_token="<video>",
    )  # fmt: skip
    sizes = SIGLIP | {"image_size": [56, 56], "patch_size": [14, 14]}
    config = hf.InternVLConfig(
        vision_config=hf.InternVLVisionConfig(**sizes),
        text_config=hf.Qwen2Config(**TEXT, vocab_size=len(tokenizer)),
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"), image_seq_length=4,
    )  # fmt: skip
    images = FAMILIES["internvl"].images(size={"height": 56, "width": 56}, max_patches=6)
    return finish("internvl", hf.InternVLForConditionalGeneration(config), tokenizer, images)


def tiny_gemma3(window: int = 512, seen: int = 4, tied: bool = True) -> VisionLanguageModel:
    """Gemma 3: windows in most layers, pictures that see themselves both ways, pooled tokens."""
    special = ["<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>"]
    tokenizer = byte_tokenizer([*special, "<image_soft_token>"], "<end_of_turn>")
    tokens = ("<start_of_image>", "<end_of_image>", "<image_soft_token>")
    refused = "{%- if m['role'] == 'system' -%}{{ raise_exception('no place') }}{%- endif -%}"
    tokenizer.chat_template = chat_template(tokens[0], special[1], special[2], refused)
    _name(tokenizer, **dict(zip(("boi_token", "eoi_token", "image_token"), tokens, strict=True)))
    boi, eoi, image = tokenizer.convert_tokens_to_ids(list(tokens))
    layers = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    config = hf.Gemma3Config(
        text_config=hf.Gemma3TextConfig(
            **TEXT, vocab_size=len(tokenizer), layer_types=layers, sliding_window=window,
            query_pre_attn_scalar=32,
        ),
        vision_config=hf.SiglipVisionConfig(**SIGLIP, vision_use_head=False),
        image_token_index=image, boi_token_index=boi, eoi_token_index=eoi, mm_tokens_per_image=seen,
        tie_word_embeddings=tied,
    )  # fmt: skip
    images = FAMILIES["gemma3"].images(size={"height": 56, "width": 56})
    return finish("gemma3", hf.Gemma3ForConditionalGeneration(config), tokenizer, images)


def tiny_gemma4(
    window: int = 512, shared: int = 2, layers: int = 6, **more: Any
) -> VisionLanguageModel:
    """Gemma 4: windows, wider heads in full layers, inputs of every layer, borrowed Keys and Values
    in the last layers, pictures of up to 70 tokens in their own shape."""
    special = ["<bos>", "<|turn>", "<turn|>", "<|image>", "<image|>", "<|image|>", "<|video|>"]
    special += ["<|audio>", "<audio|>", "<|audio|>"]
    tokenizer = byte_tokenizer(special, "<turn|>")
    tokenizer.pad_token = "<turn|>"
    tokenizer.chat_template = chat_template("<|image|>", "<|turn>", "<turn|>")
    names = ("boi_token", "eoi_token", "image_token", "boa_token", "eoa_token", "audio_token")
    _name(tokenizer, **dict(zip(names, (*special[3:6], *special[7:]), strict=True)))
    boi, eoi, image, video = tokenizer.convert_tokens_to_ids(special[3:7])
    audio = tokenizer.convert_tokens_to_ids(special[-1])
    text = TEXT | {"num_hidden_layers": layers, "vocab_size": len(tokenizer)}
    text |= {"global_head_dim": 64} | more
    config = hf.Gemma4Config(
        text_config=hf.Gemma4TextConfig(
            **text, layer_types=["sliding_attention", "full_attention"] * (layers // 2),
            sliding_window=window, num_kv_shared_layers=shared,
            hidden_size_per_layer_input=8, vocab_size_per_layer_input=len(tokenizer),
        ),
        vision_config=hf.Gemma4VisionConfig(
            hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=4, head_dim=12, position_embedding_size=640,
        ),
        image_token_id=image, boi_token_id=boi, eoi_token_id=eoi, video_token_id=video,
        audio_token_id=audio, tie_word_embeddings=False,
    )  # fmt: skip
    images = FAMILIES["gemma4"].images(max_soft_tokens=70)
    return finish("gemma4", hf.Gemma4ForConditionalGeneration(config), tokenizer, images)


EVERY: dict[str, Callable[[], VisionLanguageModel]] = {
    **TINY,
    "qwen2_vl": tiny_qwen2,
    "qwen3_vl": tiny_qwen3,
    "qwen3_5": tiny_qwen35,
    "qwen3_5_moe": tiny_qwen35_moe,
    "llava": tiny_llava15,
    "llava_onevision": tiny_onevision,
    "smolvlm": tiny_smolvlm,
    "idefics3": tiny_idefics3,
    "internvl": tiny_internvl,
    "gemma3": tiny_gemma3,
    "gemma4": tiny_gemma4,
}
PROCESSORS: dict[str, type] = {
    "qwen2_vl": hf.Qwen2VLProcessor,
    "qwen2_5_vl": hf.Qwen2_5_VLProcessor,
    "qwen3_vl": hf.Qwen3VLProcessor,
    "qwen3_5": hf.Qwen3VLProcessor,
    "qwen3_5_moe": hf.Qwen3VLProcessor,
    "llava": hf.LlavaProcessor,
    "llava_next": hf.LlavaNextProcessor,
    "llava_onevision": hf.LlavaOnevisionProcessor,
    "smolvlm": hf.SmolVLMProcessor,
    "idefics3": hf.Idefics3Processor,
    "internvl": hf.InternVLProcessor,
    "gemma3": hf.Gemma3Processor,
}
with suppress(ImportError):  # before 5.24 its module wants torchvision
    PROCESSORS["gemma4"] = import_module("transformers.models.gemma4").Gemma4Processor


def _told(family: str, config: Any) -> dict[str, Any]:
    """A family's processor settings, as in its checkpoints' files."""
    vision = config.vision_config
    no_clips = {"video_processor": None}
    if family.startswith("qwen"):
        return no_clips
    if family in ("llava", "llava_next"):
        return {
            "patch_size": vision.patch_size, "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
        }  # fmt: skip
    if family == "llava_onevision":
        return no_clips | {
            "num_image_tokens": (vision.image_size // vision.patch_size) ** 2,
            "vision_feature_select_strategy": "full",
            "vision_aspect_ratio": config.vision_aspect_ratio,
        }
    if family == "internvl":
        return no_clips | {"image_seq_length": config.image_seq_length}
    if family == "gemma4":
        return no_clips | {"feature_extractor": None}
    if family == "gemma3":
        return {"image_seq_length": config.mm_tokens_per_image}
    side = vision.image_size // vision.patch_size // config.scale_factor
    return {"image_seq_len": side**2} | (no_clips if family == "smolvlm" else {})


def real_processor(family: str, vlm: VisionLanguageModel) -> Any:
    """The family's own processor over the tiny model's parts.

    Several want torchvision's video processor, which is not here; only pictures are asked of them.
    """
    kind = PROCESSORS.get(family)
    if kind is None:
        pytest.skip("this transformers has its processor with torchvision only")
    module = "transformers.models.smolvlm.processing_smolvlm.num2words"
    with (
        mock.patch.object(kind, "check_argument_for_proper_class", lambda *_: None),
        mock.patch(module, str),
    ):
        return kind(
            image_processor=vlm.images, tokenizer=vlm.tokenizer,
            chat_template=vlm.tokenizer.chat_template, **_told(family, vlm.model.config),
        )  # fmt: skip


def save_known(family: str, folder: Path) -> VisionLanguageModel:
    """A checkpoint of a family that has an adapter, with its real processor, as the hub has it."""
    vlm = EVERY[family]()
    vlm.model.save_pretrained(folder)
    processor = real_processor(family, vlm)
    parts = [name for name in processor.get_attributes() if getattr(processor, name) is not None]
    with mock.patch.object(type(processor), "get_attributes", lambda *_: parts):
        processor.save_pretrained(folder)
    return vlm


def save_unknown(folder: Path) -> None:
    """A checkpoint of a family that has no adapter, with its real processor: VipLLaVA."""
    known = tiny_llava15()
    config = hf.VipLlavaConfig(
        vision_config=hf.CLIPVisionConfig(**SIGLIP),
        text_config=hf.LlamaConfig(**TEXT, vocab_size=len(known.tokenizer)),
        image_token_index=known.image_token, vision_feature_layers=[-2, -3],
    )  # fmt: skip
    network = scramble(hf.VipLlavaForConditionalGeneration(config), 0)
    network.generation_config = hf.GenerationConfig(eos_token_id=known.tokenizer.eos_token_id)
    network.save_pretrained(folder)
    real_processor("llava", known).save_pretrained(folder)


PIXTRAL = (
    "{{ bos_token }}{%- for m in messages -%}{%- if m['role'] == 'user' -%}[INST]"
    "{%- for part in m['content'] -%}{{ '[IMG]' if part['type'] == 'image' else part['text'] }}"
    "{%- endfor -%}[/INST]{%- else -%}{%- for part in m['content'] -%}{{ part['text'] }}"
    "{%- endfor -%}{{ eos_token }}{%- endif -%}{%- endfor -%}"
)


def tiny_pixtral() -> VisionLanguageModel:
    """A family without an adapter: pictures in their own shape, with a token behind each row."""
    tokenizer = byte_tokenizer(["<s>", "</s>", "[INST]", "[/INST]", "[IMG]", *ROWS], "</s>")
    tokenizer.chat_template, tokenizer.bos_token = PIXTRAL, "<s>"
    config = hf.Mistral3Config(
        vision_config=hf.PixtralVisionConfig(**SIGLIP, head_dim=12),
        text_config=hf.MistralConfig(**TEXT, vocab_size=len(tokenizer), sliding_window=None),
        image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"), tie_word_embeddings=False,
    )  # fmt: skip
    package = "transformers.models.pixtral"
    pillow = import_module(f"{package}.image_processing_pil_pixtral")
    with mock.patch.dict(sys.modules, {f"{package}.image_processing_pixtral": pillow}):
        kind = import_module(f"{package}.processing_pixtral").PixtralProcessor
    processor = kind(
        pillow.PixtralImageProcessorPil(size={"longest_edge": 140}, patch_size=14), tokenizer,
        patch_size=14, spatial_merge_size=2,
    )  # fmt: skip
    model = scramble(hf.Mistral3ForConditionalGeneration(config), 0)
    model.generation_config = hf.GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=0
    )
    return OTHERS.adapter(prepare(model), tokenizer, processor, "tiny-pixtral")
