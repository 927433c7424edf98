"""The local task's lines for lmms-eval."""

from pathlib import Path
from typing import Any

from PIL import Image


def doc_to_visual(doc: dict[str, Any]) -> list[Image.Image]:
    return [Image.open(Path(doc["image"])).convert("RGB")]


def doc_to_text(doc: dict[str, Any], kwargs: dict[str, Any] | None = None) -> str:
    return str(doc["question"])
