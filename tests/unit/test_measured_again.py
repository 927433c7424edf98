"""A second run of an evaluation, beside the first."""

from docs.again import alike
from rotatek.evaluation.answer_archive import AnswerArchive
from rotatek.evaluation.journal import Answer
from rotatek.evaluation.suite import Item


def kept(said: dict[tuple[str, str], str]) -> AnswerArchive:
    """Answers by setting and question, of which pages are long."""
    items = [
        Item("short-0", 0, "tables", "What?", ("4",), "exact_match", False),
        Item("short-1", 0, "tables", "What?", ("5",), "exact_match", False),
        Item("page-0", 1, "transcription", "All?", ("a b",), "exact_match", True),
    ]
    answers = {key: Answer(*key, text, 1, 1.0) for key, text in said.items()}
    return AnswerArchive({}, {}, items, answers)


def test_two_runs_are_compared() -> None:
    """What one of them has not asked does not count."""
    first = {("x", "short-0"): "4", ("x", "short-1"): "6", ("y", "short-0"): "4"}
    pages = {("x", "page-0"): "a b", ("y", "page-0"): "c"}
    second = {("x", "short-0"): "4", ("x", "short-1"): "5", ("x", "page-0"): "a b"}
    second[("y", "page-0")] = "d"
    found = alike(kept(first | pages), kept(second))
    short, long = found["short"], found["long"]
    assert (short["answers"], short["same"], short["settings"]) == (2, 0.5, 1)
    assert short["mean"] == short["least"] == short["most"] == 50 and not short["within a point"]
    assert (long["answers"], long["same"], long["settings"]) == (2, 0.5, 2)
    assert long["mean"] == 0 and long["within a point"] == 1
