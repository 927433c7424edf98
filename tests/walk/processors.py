"""The processor of any class, built offline: its own class over a byte tokenizer that knows every
token which its source names, and its image processor: the one of Pillow, where it has one."""

import inspect
import re
from typing import Any, Final, cast
from unittest import mock

import transformers
from transformers import PreTrainedConfig, PreTrainedTokenizerFast, ProcessorMixin
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
from transformers.processing_utils import VideosKwargs

from tests.tiny import byte_tokenizer

# What checkpoints name in their files, where transformers' mappings name none.
PROCESSORS: Final = {
    "cosmos3_omni": "Qwen3VLProcessor", "glm_ocr": "Glm46VProcessor", "glmga": "Glm46VProcessor",
    "qwen2_5_omni_thinker": "Qwen2_5_VLProcessor", "qwen3_omni_moe_thinker": "Qwen2_5_VLProcessor",
    "fast_vlm": "LlavaProcessor", "shieldgemma2": "Gemma3Processor",
}  # fmt: skip
IMAGES: Final = {
    "diffusion_gemma": "Gemma4ImageProcessorPil", "fast_vlm": "CLIPImageProcessorPil",
    "glm4v_moe": "Glm4vImageProcessorPil",
    "glm_ocr": "Glm46VImageProcessorPil", "qwen2_5_omni_thinker": "Qwen2VLImageProcessorPil",
    "qwen3_omni_moe_thinker": "Qwen2VLImageProcessorPil",
    "qwen3_vl_moe": "Qwen2VLImageProcessorPil",
}  # fmt: skip
SPELLED: Final = re.compile(r"""["'](<[^"'\s{}]{1,40}>|\[[A-Z_]{2,20}\])["']""")
READ: Final = re.compile(r"""tokenizer(?:\.|, ?["'])(\w+_token)\b""")
MORE: Final = {  # tokens that a processor's module spells in no such form
    "fuyu": ["|SPEAKER|", "|NEWLINE|"], "pp_chart2table": ["<imgpad>"],
    "minimax_m3_vl": ["]<]image[>[", "]<]start of image[>[", "]<]end of image[>["],
}  # fmt: skip
VISUAL: Final = {  # the token of visual ids, where it is not the processor's `image_token`
    "aya_vision": "<|IMG_PATCH|>", "molmo2": "<im_patch>", "ovis2": "<IMG_ATOM>",
    "fuyu": "|SPEAKER|", "pp_chart2table": "<imgpad>", "shieldgemma2": "<image_token>",
}  # fmt: skip
SHAPES: Final = {
    "patch_size": "patch_size", "merge_size": "spatial_merge_size",
    "temporal_patch_size": "temporal_patch_size",
}  # fmt: skip
LEAST: Final = 64 * 64  # pixels of a picture
ALIKE: Final = {"img_size": "image_size", "image_seq_length": "mm_tokens_per_image"}
ENDS: Final = "</s>"


def small_processor(kind: str, config: PreTrainedConfig) -> ProcessorMixin | None:
    """A model type's own processor, to which the ids of `config` are changed.

    Returns:
        None where it cannot be had without torchvision.

    Raises:
        ImportError: where its module says so.
    """
    named = PROCESSORS.get(kind) or PROCESSOR_MAPPING_NAMES.get(kind) or ""
    known = IMAGE_PROCESSOR_MAPPING_NAMES.get(kind) or {}
    found = IMAGES.get(kind) or known.get("pil") or known.get("torchvision", "")
    made, images = getattr(transformers, named, None), getattr(transformers, found, None)
    if images is None or not (isinstance(made, type) and issubclass(made, ProcessorMixin)):
        return None
    tokenizer = _tokenizer(made, MORE.get(kind, []))
    with mock.patch.object(made, "check_argument_for_proper_class", lambda *_: None):
        parts = {"image_processor": _images(images, config), "tokenizer": tokenizer}
        processor: ProcessorMixin = made(**_told(made, config) | parts)
    agree(config, processor, VISUAL.get(kind))
    return processor


def _images(made: type, config: PreTrainedConfig) -> Any:
    """An image processor whose numbers are those of the configuration's tower."""
    images, vision = made(), cast(Any, getattr(config, "vision_config", None))
    side = getattr(vision, "image_size", None)
    side = side[0] if isinstance(side, list | tuple) else side
    if hasattr(images, "image_grid_pinpoints"):
        images.image_grid_pinpoints = config.image_grid_pinpoints
    if hasattr(images, "min_pixels"):
        images.min_pixels = min(images.min_pixels, LEAST)
    for name, field in SHAPES.items():
        of_crops = hasattr(images, f"vision_{name}")  # then the shorter name is the size of a crop
        if hasattr(images, name) and getattr(vision, field, None) and not of_crops:
            setattr(images, name, getattr(vision, field))
    if isinstance(side, int) and "height" in (getattr(images, "size", None) or ()):
        images.size = type(images.size)(height=side, width=side)
    if isinstance(side, int) and hasattr(images, "tile_size"):
        images.tile_size = side
    images.image_seq_length = getattr(config, "image_seq_length", None) or (
        side and (side // vision.patch_size) ** 2 if isinstance(side, int) else None
    )
    return images


def _tokenizer(made: type, more: list[str]) -> PreTrainedTokenizerFast:
    """A byte tokenizer with the tokens that a processor's module names, or reads from it."""
    source = inspect.getsource(inspect.getmodule(made))  # type: ignore[arg-type]
    read = sorted(set(READ.findall(source)) - {"pad_token", "eos_token", "bos_token", "unk_token"})
    spelled = sorted(set(SPELLED.findall(source)))
    tokenizer = byte_tokenizer([ENDS, *more, *spelled, *(f"<{name}>" for name in read)], ENDS)
    tokenizer.pad_token = ENDS
    for name in read:
        setattr(tokenizer, name, f"<{name}>")
        setattr(tokenizer, f"{name}_id", tokenizer.convert_tokens_to_ids(f"<{name}>"))
    return tokenizer


def _told(made: type, config: PreTrainedConfig) -> dict[str, Any]:
    """Arguments of a processor that repeat numbers of the configuration."""
    told: dict[str, Any] = {}
    takes = inspect.signature(made).parameters
    for name, argument in takes.items():
        if argument.default is argument.empty and argument.kind is argument.POSITIONAL_OR_KEYWORD:
            told[name] = None  # what is not asked of it, such as sounds
        for part in (config, getattr(config, "vision_config", None)):
            value = getattr(part, name, None) or getattr(part, ALIKE.get(name, name), None)
            if value is not None and "token_id" not in name:
                told[name] = value
    if "num_additional_image_tokens" in takes:
        strategy = getattr(config, "vision_feature_select_strategy", None)
        told["num_additional_image_tokens"] = int(strategy == "default")
    if "minicpm" in made.__module__:  # it reads settings of the one for clips
        told["video_processor"] = mock.MagicMock(valid_kwargs=VideosKwargs)
    return told


def agree(config: PreTrainedConfig, processor: Any, visual: str | None = None) -> None:
    """Give a configuration the ids of a processor's tokens, and free ones to others.

    Args:
        config: changed in place.
        processor: with a `tokenizer`.
        visual: the token of visual ids, where it is not the processor's `image_token`.
    """
    tokenizer, free = processor.tokenizer, len(processor.tokenizer)
    if getattr(config, "vocabulary_map", None):
        config.image_token_id = tokenizer.convert_tokens_to_ids(processor.image_token)
        config.vocabulary_map["<image>"] = config.image_token_id
    for part in (config, *(getattr(config, name, None) for name in config.sub_configs)):
        for field in getattr(part, "__dataclass_fields__", ()):
            stem = re.sub("_(id|index)$", "", field)
            if not stem.endswith("_token") or stem == field or getattr(part, field) is None:
                continue
            token = getattr(processor, stem, None) or getattr(tokenizer, stem, None)
            token = visual if visual and stem == "image_token" else token
            number = None if token is None else tokenizer.convert_tokens_to_ids(str(token))
            if number is None:
                number, free = free, free + 1
            setattr(part, field, number)
