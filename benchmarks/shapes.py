"""What benchmarks of whole models have in common."""

from typing import Final

from benchmarks.full_qwen import qwen
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from tests.tiny import tiny_qwen

QUESTION: Final = "What is the total on this receipt?"
SIDES: Final = (1680, 1344)  # pixels: 2,880 visual tokens
SETTINGS: Final = {
    "uncompressed": BASELINE,
    "k=d/4": Settings.of(keep_channels=0.25),
    "smaller=8": Settings.of(smaller=8),
}


def model_and_sides(tiny: bool) -> tuple[VisionLanguageModel, tuple[int, int]]:
    """Qwen2.5-VL-7B's shapes and a picture's pixels; or a tiny model on a processor."""
    return (tiny_qwen(), (224, 168)) if tiny else (qwen(2880), SIDES)
