"""Which adapter reads which family."""

from typing import Any, Final

from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from rotatek.cache.token_plan import visual_ids
from rotatek.errors import ModelUnsupported
from rotatek.models.base import VisionLanguageModel
from rotatek.models.gemma import Gemma3, Gemma4
from rotatek.models.generic import Generic
from rotatek.models.llava import Llava, LlavaNext, LlavaOnevision
from rotatek.models.qwen import Qwen2VL, Qwen25VL
from rotatek.models.tiled import Idefics3, InternVL

FAMILIES: Final[dict[str, type[VisionLanguageModel]]] = {  # by a configuration's `model_type`
    "qwen2_vl": Qwen2VL,
    "qwen2_5_vl": Qwen25VL,
    "qwen3_vl": Qwen2VL,
    "qwen3_5": Qwen2VL,
    "qwen3_5_moe": Qwen2VL,
    "llava": Llava,
    "llava_next": LlavaNext,
    "llava_onevision": LlavaOnevision,
    "smolvlm": Idefics3,
    "idefics3": Idefics3,
    "internvl": InternVL,
    "gemma3": Gemma3,
    "gemma4": Gemma4,
}
TOWERS: Final = ("clip_vision_model", "siglip_vision_model")  # LLaVA-1.5's; others are others'


def adapter_of(config: Any) -> type[VisionLanguageModel]:
    """The adapter for a configuration: its family's, or the one for all others. ModelUnsupported:
    for a model that is no image-text-to-text model, or has no image token."""
    kind = config.model_type
    ours = kind != "llava" or config.vision_config.model_type in TOWERS
    known = FAMILIES.get(kind) if ours else None
    answers = kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    if known is None and not (answers and visual_ids(config)):
        raise ModelUnsupported(
            f"Models of type {kind!r} are no image-text-to-text models with an image token. "
            f"Supported: {', '.join(FAMILIES)}, and others of transformers that are."
        )
    return known or Generic
