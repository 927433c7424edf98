"""Pictures in files: what counts as right, what other tools read, and the flags of the chains."""

import json
import re
from pathlib import Path

import pytest

from rotatek.evaluation.suite import FileSuite
from rotatek.page.confidence import Bin, doubted
from rotatek.pocket.evaluation import score
from rotatek.pocket.evaluation.score import Answer, Asked, is_right, report

POCKET = Path(score.__file__).parents[1]


@pytest.mark.parametrize(
    ("kind", "question", "truth", "answer", "right"),
    [
        ("web", "Which page?", "Schedules", "schedules", True),
        ("web", "Which page?", "Schedules", "The page Schedules", True),
        ("web", "How many?", "1", "11", False),
        ("web", "How many?", "1", "1 of 4", False),
        ("web", "Which?", "Oslo", "Oslo, Bergen, Trondheim, Stavanger, Hamar and Moss", False),
        ("receipt", "What is the total?", "$8.20", "8.20", True),
        ("receipt", "What is the total?", "8.20", "18.20", False),
        ("receipt", "What is the name?", "KHIAM & CO", "Khiam & Co.", True),
    ],
)
def test_an_answer_is_right_whole(
    kind: str, question: str, truth: str, answer: str, right: bool
) -> None:
    assert is_right(Asked(Path("x.png"), question, (truth,), kind), answer) is right


def test_the_report_counts_answers_without_a_caution() -> None:
    bins = (Bin(0.0, 50, 0.2), Bin(0.9, 50, 0.9))
    asked = Asked(Path("x.png"), "?", ("a",), "web")
    given = [Answer(asked, "a", 0.95, True), Answer(asked, "b", 0.95, False)]
    given.append(Answer(asked, "b", 0.5, False))
    figures = report("real", given, bins)
    assert figures["kinds"] == {"web": [1, 3]} and figures["without_caution"] == 2
    assert figures["right_without_caution"] == 0.5
    assert doubted(0.5, bins) and not doubted(0.95, bins)


def test_a_split_is_written_as_other_tools_read_it(tmp_path: Path) -> None:
    path = score.write("scanned", 1, tmp_path / "scanned")
    suite = FileSuite(path)
    assert len(suite.items) == len(score.read(path)) >= 10
    assert suite.image(0).width >= 448
    again = score.write("scanned", 1, tmp_path / "again")
    assert again.read_text() == path.read_text()


@pytest.mark.parametrize("name", ["training/ninth.sh", "training/smoke.sh", "training/chain.sh"])
def test_the_chains_name_options_that_there_are(name: str) -> None:
    said = "\n".join(path.read_text() for path in POCKET.rglob("*.py"))
    known = set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', said))
    script = re.sub(r"^\s*torchrun.*$", "", (POCKET / name).read_text(), flags=re.M)
    used = set(re.findall(r"(?<=[\s\"])--[a-z][a-z-]+", script))
    assert used <= known, used - known


def test_the_rows_of_the_handmade_table_are_those_of_the_scanned_one() -> None:
    script = (POCKET / "evaluation" / "compression.sh").read_text()
    assert "assets/handmade/settings.json" in script and "score --write-only" in script
    assert json.loads((POCKET.parents[1] / "assets/handmade/settings.json").read_text())
