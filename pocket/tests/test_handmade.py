"""The pages that people typed questions about: all can be asked, and none is forgotten."""

from pathlib import Path

from rotatek.evaluation.suite import FileSuite
from rotatek.evaluation.tables import from_file

PAGES = Path(__file__).parents[2] / "assets" / "handmade"


def test_every_page_opens_and_every_question_can_be_scored() -> None:
    suite = FileSuite(PAGES / "questions.jsonl")
    assert len(suite.items) == 94
    asked = {item.document for item in suite.items}
    assert len(asked) == len(list(PAGES.glob("*.webp"))) == 27
    for document in asked:
        assert min(suite.image(document).size) >= 300
    absent = [item for item in suite.items if item.category == "absent"]
    assert len(absent) == 10
    assert all("not in the image" in item.accepted for item in absent)


def test_the_settings_beside_them_are_valid() -> None:
    labels = list(from_file(PAGES / "settings.json"))
    assert labels[0] == "uncompressed" and len(labels) == 6
