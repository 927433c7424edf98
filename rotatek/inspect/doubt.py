"""When to doubt an answer: the model's own confidence, and pictures it was never taught to read."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from PIL import Image

from rotatek.paths import assets

READERS: Final = "pocket"  # how names of models begin that know documents and nothing else
DOUBT: Final = 2 / 3  # an answer is doubted where fewer than this share are right
TALKER: Final = "pocket-smol"  # which answers plain instructions, too
UNKNOWN: Final = 0.7  # and, where there are no counts, below this confidence
LEAST: Final = 20  # answers that a bin must have counted
SIDE: Final = 384  # pixels at which a picture's colours are counted
STEPS: Final = 16  # per colour channel
COMMON: Final = 16  # colours that hold nearly all of a document
PHOTO: Final = 0.75  # documents measured .83 to 1.0, harmed ones included; most photographs less

# what the embedded models were taught to say where they decline, in small letters
DECLINES: Final = (
    "not in the image", "i only read documents, and this picture shows none",
)  # fmt: skip

PHOTO_NOTE: Final = (
    "I read documents; this looks like a photograph, of which this small model knows nothing."
)
TEXT_NOTE: Final = (
    "I read documents; without a picture this small model knows nothing. Add one and ask about it."
)
TALK_NOTE: Final = (
    "Without a picture this is a small language model, which is often wrong. Check what it says."
)


class Bin(NamedTuple):
    """Of `answers` answers with a confidence of `least` up to the next bin's, the share `right`."""

    least: float
    answers: int
    right: float


def load_bins(folder: Path) -> dict[str, tuple[Bin, ...]]:
    """How right each embedded model is at each confidence, by its name, as far as measured."""
    found = {}
    for file in sorted(folder.glob(f"{READERS}*.json")):
        given: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")).get("calibration", {})
        found[file.stem] = tuple(Bin(b["from"], b["n"], b["exact"]) for b in given.get("bins", []))
    return found


@functools.cache
def measured() -> Mapping[str, Sequence[Bin]]:
    """`load_bins` of what this installation brings; read once."""
    return load_bins(assets() / "results")


def doubt(
    model: str,
    answer: str,
    confidence: float,
    is_of_photo: Callable[[], bool],
    bins: Mapping[str, Sequence[Bin]],
) -> str:
    """One calm sentence about an answer, or none.

    What an embedded model says of a photograph is doubted however sure it is, unless it declines.
    Of a document an unsure decline is doubted as other answers are: most of these are wrong.

    Args:
        model: by its name on offer.
        answer: its text.
        confidence: the geometric mean of the probabilities of the answer's tokens.
        is_of_photo: whether a picture that was asked about is a photograph; called for embedded
            models alone.
        bins: by model; unmeasured models are doubted at low confidence alone.
    """
    if model.startswith(READERS) and is_of_photo():
        return "" if is_decline(answer) else PHOTO_NOTE
    mine = bins.get(model, ())
    if not doubted(confidence, mine):
        return ""
    right = share_right(confidence, mine)
    said = f"The model is unsure: the mean probability of its tokens is {_percent(confidence)}."
    if right is None:
        return f"{said} Check the answer against the image."
    return f"{said} When that was measured, {_percent(right)} of such answers were right."


def measured_doubt(
    model: str,
    answer: str,
    confidence: float | None,
    is_of_photo: Callable[[], bool],
    *,
    shown: bool = True,
) -> str:
    """`doubt` under what this installation brings; of other models, for measured ones alone.

    Args:
        model: by its name on offer.
        answer: as of `doubt`.
        confidence: None where there is no answer.
        is_of_photo: as of `doubt`.
        shown: whether there was a picture; without one the measure does not hold.
    """
    bins = measured()
    if confidence is None or not (model.startswith(READERS) or bins.get(model)):
        return ""
    if not shown:
        return TALK_NOTE if model == TALKER else TEXT_NOTE
    return doubt(model, answer, confidence, is_of_photo, bins)


def is_decline(answer: str) -> bool:
    """Whether an answer says only that there is nothing to answer from."""
    return answer.strip().rstrip(".").lower() in DECLINES


def doubted(confidence: float, bins: Sequence[Bin]) -> bool:
    """Whether an answer of this confidence is shown with a caution: where too few such answers were
    counted, as the next surer ones are."""
    right = share_right(confidence, bins)
    if right is None:
        surer = (b.right for b in bins if b.least > confidence and b.answers >= LEAST)
        right = next(surer, None)
    return confidence < UNKNOWN if right is None else right < DOUBT


def share_right(confidence: float, bins: Sequence[Bin]) -> float | None:
    """The measured share of right answers at `confidence`; None where too few were counted."""
    mine = next((b for b in reversed(bins) if confidence >= b.least), None)
    return None if mine is None or mine.answers < LEAST else mine.right


def any_photo(pictures: Iterable[Image.Image]) -> bool:
    """Whether one of these pictures is a photograph, of `is_photo`."""
    return any(map(is_photo, pictures))


def is_photo(picture: Image.Image | np.ndarray) -> bool:
    """Whether an RGB picture, or uint8 [height, width, 3], is a photograph: no few colours hold
    most of it."""
    image = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture.copy()
    image.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    steps = (np.asarray(image) // (256 // STEPS)).astype(np.int64)
    colour = (steps[..., 0] * STEPS + steps[..., 1]) * STEPS + steps[..., 2]
    counts = np.sort(np.bincount(colour.ravel()))[::-1]
    return float(counts[:COMMON].sum()) < PHOTO * colour.size


def _percent(share: float) -> str:
    """`0.974` as `97 %`; one decimal where a whole number would read as all or nothing."""
    value = 100 * share
    near_an_end = 0 < value < 0.95 or 99.05 < value < 99.95
    return f"{value:.1f} %" if near_an_end else f"{value:.0f} %"
