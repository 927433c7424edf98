"""When the page doubts an answer: `rotatek.inspect.doubt`, about a run."""

from rotatek.inspect.doubt import any_photo, doubt
from rotatek.service.run import Run


def note(run: Run) -> str:
    """One calm sentence, or none: about the uncompressed answer of a finished run."""
    done = next(iter(run.columns.values())).finished
    if done is None or not done.new_tokens or run.stopped:
        return ""
    confidence = float(done.metrics["confidence"])

    def is_of_photo() -> bool:
        return bool(run.remember(("photo",), lambda: any_photo([run.pixels])))

    return doubt(run.model, done.answer, confidence, is_of_photo)
