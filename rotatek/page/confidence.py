"""When to doubt an answer: the model's own confidence, and pictures it was never taught to read."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from PIL import Image

from rotatek.service.run import Run
from viz.theme import percent

READERS: Final = "pocket"  # how names of models begin that know documents and nothing else
DOUBT: Final = 2 / 3  # an answer is doubted where fewer than this share are right
UNKNOWN: Final = 0.7  # and, where nobody has counted, below this confidence
LEAST: Final = 20  # answers that a bin must have counted
SIDE: Final = 384  # pixels at which a picture's colours are counted
STEPS: Final = 16  # per colour channel
COMMON: Final = 16  # colours that hold nearly all of a document
PHOTO: Final = 0.75  # documents measured .83 to 1.0, harmed ones included; most photographs less

PHOTO_NOTE: Final = (
    "I read documents; this looks like a photograph, of which this small model knows nothing."
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


def note(run: Run, bins: Mapping[str, Sequence[Bin]]) -> str:
    """One calm sentence, or none: about the uncompressed answer of a finished run.

    bins: by model; models that nobody has measured are doubted at low confidence alone.
    """
    done = next(iter(run.columns.values())).finished
    if done is None or not done.new_tokens or run.stopped:
        return ""
    confidence = float(done.metrics["confidence"])
    mine = bins.get(run.model, ())
    right, unsure = share_right(confidence, mine), doubted(confidence, mine)
    photo = run.model.startswith(READERS) and unsure
    if photo and run.remember(("photo",), lambda: is_photo(run.pixels)):
        return PHOTO_NOTE
    if not unsure:
        return ""
    said = f"The model is unsure: the mean probability of its tokens is {percent(confidence)}."
    if right is None:
        return f"{said} Check the answer against the image."
    return f"{said} When that was measured, {percent(right)} of such answers were right."


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


def is_photo(pixels: np.ndarray) -> bool:
    """Whether uint8 [height, width, 3] looks like a photograph: no few colours hold most of it."""
    image = Image.fromarray(pixels)
    image.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    steps = (np.asarray(image) // (256 // STEPS)).astype(np.int64)
    colour = (steps[..., 0] * STEPS + steps[..., 1]) * STEPS + steps[..., 2]
    counts = np.sort(np.bincount(colour.ravel()))[::-1]
    return float(counts[:COMMON].sum()) < PHOTO * colour.size
