"""Every claim as a line of words, for documents and for the page: what was found, on each model."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rotatek.evaluation import speed_claims
from rotatek.evaluation.claims import CLAIMS, OPEN, UNASKED
from rotatek.evaluation.metrics import points

Built = Mapping[str, Any]


class Lines(NamedTuple):
    """A table of words: its columns' headings, and a line a claim."""

    heads: list[str]
    rows: list[list[str]]


def of_answers(models: Sequence[Built]) -> Lines:
    """Claims about answers: live bytes first, then the paper's count, of each model.

    Args:
        models: results of their evaluations; one whose claims were not judged has them open.
    """
    heads, rows = ["claim", "the paper"], []
    for built in models:
        heads += [f"{built['model']['name']}, at equal live bytes", "nominal"]
    for name, (text, where) in CLAIMS.items():
        found = [cell for built in models for cell in _of(name, built)]
        rows.append([text, where or "beyond it", *found])
    for text, (where, reason) in UNASKED.items():
        rows.append([text, where, *([f"{OPEN}: {reason}"] + [""] * (2 * len(models) - 1))])
    return Lines(heads, rows)


def _of(name: str, built: Built) -> tuple[str, str]:
    judged = next((one for one in built.get("claims", ()) if one["topic"] == name), None)
    if judged is None:
        return f"{OPEN}: not measured", f"{OPEN}: not measured"
    return verdict(judged["live"]), verdict(judged["nominal"])


def verdict(found: Mapping[str, Any] | None) -> str:
    """What was found, and the difference in points with its interval."""
    if found is None:
        return f"{OPEN}: nothing as light to compare with"
    return f"{found['verdict']}, {points(found['difference'], found['interval'])}"


def of_speed(files: speed_claims.Files) -> Lines:
    """Claims about latency, memory and throughput, for both of the paper's shapes.

    Args:
        files: of `rotatek.evaluation.speed_claims`.
    """
    rows = []
    for one in speed_claims.judged(files):
        unknown = f"not measured yet ({one['bench']})"
        cells = [f"{f['verdict']}: {f['figures'] or unknown}" for f in one["found"].values()]
        rows.append([one["text"], one["where"], *cells])
    return Lines(["claim", "the paper", *(shapes.name for shapes in speed_claims.MODELS)], rows)
