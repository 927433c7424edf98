"""The quiet caution: an unsure answer, a photograph, no picture."""

from pathlib import Path

import numpy as np
import pytest

from rotatek.inputs.request import open_image
from rotatek.inspect.doubt import PHOTO_NOTE, TEXT_NOTE, UNSURE_NOTE, any_photo, doubt


def landscape(seed: int) -> np.ndarray:
    """Colours that change as those of nature do: noise with a 1/f spectrum, [240, 320, 3]."""
    rng = np.random.default_rng(seed)
    height, width = 240, 320
    distance = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)) + 1 / width
    channels = []
    for _ in range(3):
        phases = np.exp(2j * np.pi * rng.random(distance.shape))
        waves = np.fft.irfft2(phases / distance, (height, width))
        channels.append((waves - waves.mean()) / waves.std())
    mixed = np.stack(channels, -1) @ np.array([[1.0, 0.6, 0.4], [0.3, 0.8, 0.5], [0.1, 0.2, 0.6]])
    return np.clip(128 + 55 * mixed, 0, 255).astype(np.uint8)


def test_landscapes_are_photographs_and_documents_are_not(root: Path) -> None:
    assert all(any_photo([landscape(seed)]) for seed in range(6))
    documents = [*sorted((root / "assets" / "suite").glob("[du]*.webp"))[::16]]
    documents += (root / "assets" / "examples").glob("*.png")
    assert len(documents) > 20 and not any_photo(open_image(path) for path in documents)


@pytest.mark.parametrize(
    ("model", "answer", "confidence", "photo", "shown", "said"),
    [
        ("pocket", "x", 0.99, False, True, ""),
        ("pocket", "Not in the image.", 0.9, False, True, UNSURE_NOTE),
        ("pocket-smol", "x", 0.97, False, True, ""),
        ("pocket", "x", 0.99, True, True, PHOTO_NOTE),
        ("pocket", "Not in the image.", 0.6, True, True, ""),
        ("pocket", "x", 0.99, False, False, TEXT_NOTE),
        ("pocket", "", None, True, True, ""),
        ("qwen2.5-vl-7b", "x", 0.1, True, False, ""),
    ],
)
def test_what_is_doubted(
    model: str, answer: str, confidence: float | None, photo: bool, shown: bool, said: str
) -> None:
    assert doubt(model, answer, confidence, lambda: photo, shown=shown) == said
