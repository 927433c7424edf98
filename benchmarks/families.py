"""What becomes of every image-text-to-text class that the installed transformers knows."""

from typing import Any

from transformers import __version__ as transformers_version
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from tests.walk.outcome import outcome


def families() -> dict[str, Any]:
    """A row a model type: its class, its group, and the sentence of a refusal."""
    rows = []
    for kind, made in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.items():
        found = outcome(kind)
        rows.append({"type": kind, "class": made, "group": found.group, "sentence": found.sentence})
    return {"transformers": transformers_version, "classes": rows}
