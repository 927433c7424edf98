"""Which adapter reads which family, and the image processor that it is given."""

from typing import Any, Final, NamedTuple

from transformers import AutoProcessor
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from rotatek.cache.token_plan import visual_ids
from rotatek.errors import ModelUnsupported
from rotatek.models.base import VisionLanguageModel
from rotatek.models.gemma import Gemma3, Gemma4
from rotatek.models.generic import Generic
from rotatek.models.llava import Llava, LlavaNext, LlavaOnevision
from rotatek.models.qwen import Qwen2VL, Qwen25VL
from rotatek.models.tiled import Idefics3, InternVL


class Family(NamedTuple):
    """An adapter, and the class whose `from_pretrained` makes its image processor: Pillow's, which
    needs no torchvision, and gives the same pixels on every machine; or a processor as a whole."""

    adapter: type[VisionLanguageModel]
    images: Any


FAMILIES: Final = {  # by the `model_type` of a configuration
    "qwen2_vl": Family(Qwen2VL, Qwen2VLImageProcessorPil),
    "qwen2_5_vl": Family(Qwen25VL, Qwen2VLImageProcessorPil),
    "qwen3_vl": Family(Qwen2VL, Qwen2VLImageProcessorPil),
    "qwen3_5": Family(Qwen2VL, Qwen2VLImageProcessorPil),
    "qwen3_5_moe": Family(Qwen2VL, Qwen2VLImageProcessorPil),
    "llava": Family(Llava, CLIPImageProcessorPil),
    "llava_next": Family(LlavaNext, LlavaNextImageProcessorPil),
    "llava_onevision": Family(LlavaOnevision, LlavaOnevisionImageProcessorPil),
    "smolvlm": Family(Idefics3, SmolVLMImageProcessorPil),
    "idefics3": Family(Idefics3, Idefics3ImageProcessorPil),
    "internvl": Family(InternVL, GotOcr2ImageProcessorPil),
    "gemma3": Family(Gemma3, Gemma3ImageProcessorPil),
    "gemma4": Family(Gemma4, Gemma4ImageProcessorPil),
}
OTHERS: Final = Family(Generic, AutoProcessor)
TOWERS: Final = ("clip_vision_model", "siglip_vision_model")  # LLaVA-1.5's; others are others'


def family_of(config: Any) -> Family:
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
    return known or OTHERS
