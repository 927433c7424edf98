"""When to doubt an answer of an embedded model: it is unsure, or was shown no document."""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
from PIL import Image

# Below this confidence fewer than two of three measured answers were right.
SURE: Final = {"pocket": 0.987, "pocket-smol": 0.963}
SIDE: Final = 384  # pixels at which a picture's colours are counted
STEPS: Final = 16  # per colour channel
COMMON: Final = 16  # colours that hold nearly all of a document
PHOTO: Final = 0.75  # documents measured .83 to 1.0, harmed ones included; most photographs less
# what the embedded models were taught to say where they decline, in small letters
DECLINES: Final = ("not in the image", "i only read documents, and this picture shows none")
UNSURE_NOTE: Final = "The model is unsure. Check the answer against the image."
PHOTO_NOTE: Final = (
    "I read documents; this looks like a photograph, of which this small model knows nothing."
)
TEXT_NOTE: Final = "Without a picture this small model is often wrong. Check what it says."


def doubt(
    model: str, answer: str, confidence: float | None, is_of_photo: Callable[[], bool],
    *, shown: bool = True,
) -> str:  # fmt: skip
    """One calm sentence about an answer, or none; models that were not measured are not doubted.

    Args:
        model: by its name on offer.
        confidence: the geometric mean of the tokens' probabilities; None where there are none.
        is_of_photo: whether a picture that was asked about is one; called where it counts.
        shown: whether there was a picture.
    """
    if model not in SURE or confidence is None:
        return ""
    if not shown:
        return TEXT_NOTE
    if is_of_photo():
        return "" if answer.strip().rstrip(".").lower() in DECLINES else PHOTO_NOTE
    return UNSURE_NOTE if doubted(model, confidence) else ""


def doubted(model: str, confidence: float) -> bool:
    """Whether an answer of this confidence is shown with a caution."""
    return confidence < SURE.get(model, 0.0)


def any_photo(pictures: Iterable[Image.Image | np.ndarray]) -> bool:
    """Whether one of some RGB pictures is a photograph: no few colours hold most of it."""
    for picture in pictures:
        image = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture.copy()
        image.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
        steps = (np.asarray(image) // (256 // STEPS)).astype(np.int64)
        colour = (steps[..., 0] * STEPS + steps[..., 1]) * STEPS + steps[..., 2]
        counts = np.sort(np.bincount(colour.ravel()))[::-1]
        if float(counts[:COMMON].sum()) < PHOTO * colour.size:
            return True
    return False
