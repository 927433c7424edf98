"""When the page doubts an answer: `rotatek.inspect.doubt`, about a run."""

from collections.abc import Mapping, Sequence

from rotatek.inspect.doubt import Bin, doubt, is_photo
from rotatek.service.run import Run


def note(run: Run, bins: Mapping[str, Sequence[Bin]]) -> str:
    """One calm sentence, or none: about the uncompressed answer of a finished run.

    bins: by model; models that were not measured are doubted at low confidence alone.
    """
    done = next(iter(run.columns.values())).finished
    if done is None or not done.new_tokens or run.stopped:
        return ""
    confidence = float(done.metrics["confidence"])

    def is_of_photo() -> bool:
        return bool(run.remember(("photo",), lambda: is_photo(run.pixels)))

    return doubt(run.model, done.answer, confidence, is_of_photo, bins)
