"""Pictures in files: what counts as right, what other tools read, and the flags of the chains."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pocket.evaluation import score
from pocket.evaluation.score import Answer, Asked, is_right, report
from rotatek.evaluation.cells import Cell, Results, Score
from rotatek.evaluation.suite import FileSuite
from rotatek.inspect.doubt import Bin, doubted

POCKET = Path(score.__file__).parents[1]


@pytest.mark.parametrize(
    ("kind", "question", "truth", "answer", "right"),
    [
        ("web", "Which page?", "Schedules", "schedules", True),
        ("web", "Which page?", "Schedules", "The page Schedules", True),
        ("web", "How many?", "1", "11", False),
        ("web", "How many?", "1", "1 of 4", False),
        ("web", "Which?", "Oslo", "Oslo, Bergen, Trondheim, Stavanger, Hamar and Moss", False),
        ("reckon", "How much more?", "3", "15 - 12 = 3", True),
        ("reckon", "How much more?", "15", "15 - 12 = 3", False),
        ("reckon", "How many?", "two", "Two", True),
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


def test_the_card_keeps_what_is_not_given(tmp_path: Path) -> None:
    card, folder = tmp_path / "card.json", tmp_path / "scanned"
    settings = {"tokens": "none", "channels": "full"}
    fields = ("m", "s", "t", "Whole", "", 0, settings, 1.0, 0.5, None, None, None, None)
    run = {"model": {"name": "m"}, "tables": [{"name": "t", "questions": 7}]}
    Results([run], [Cell(*fields, Score(0.75, 0.5, 1.0))]).save(folder)
    card.write_text("{}")
    score.main(["--card", str(card), "--scanned", str(folder)])
    score.keep(card, score.read_files([{"file": "real", "right": 0.6}], "cpu"))
    kept = json.loads(card.read_text())
    assert kept["files"][0]["file"] == "real" and kept["type"] == "fp32"
    assert kept["scanned"]["questions"] == 7
    (row,) = kept["scanned"]["rows"]
    assert row == {
        "label": "Whole", "nominal_kv": 1, "actual_kv": 0.5, "score": 0.75, "interval": [0.5, 1],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["training/first.sh", "training/smoke.sh", "training/chain.sh"])
def test_the_chains_name_options_that_there_are(name: str) -> None:
    said = "\n".join(path.read_text() for path in POCKET.rglob("*.py"))
    known = set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', said))
    script = re.sub(
        r"^.*(?:torchrun|torch\.distributed\.run).*$", "", (POCKET / name).read_text(), flags=re.M
    )
    used = set(re.findall(r"(?<=[\s\"])--[a-z][a-z-]+", script))
    assert used <= known, used - known


def test_the_rows_of_the_handmade_table_are_those_of_the_scanned_one() -> None:
    script = (POCKET / "evaluation" / "compression.sh").read_text()
    assert "assets/handmade/settings.json" in script and "score --write-only" in script
    assert json.loads((POCKET.parent / "assets/handmade/settings.json").read_text())


def test_the_caution_is_learned_from_answers(tmp_path: Path) -> None:
    asked = Asked(Path("x.png"), "?", ("a",), "web")
    given = [Answer(asked, "a", i / 400, False) for i in range(400)]
    given = [replace(a, right=(i % 10) < 10 * i / 400) for i, a in enumerate(given)]
    bins = score.calibrated(given)
    shares = [b["exact"] for b in bins]
    assert shares == sorted(shares) and len(bins) > 4 and bins[0]["from"] == 0
    assert sum(b["n"] for b in bins) == 400 and min(b["n"] for b in bins) >= score.LEAST
    kept = tuple(Bin(b["from"], int(b["n"]), b["exact"]) for b in bins)
    shown = [a.right for a in given if not doubted(a.confidence, kept)]
    assert sum(shown) / len(shown) > 0.75
    results = tmp_path / "pocket.json"
    results.write_text('{"own": 1, "calibration": {"auroc": 0.9}}')
    score.keep(results, {"calibration": {"bins": bins, "of": ["handmade"]}})
    told = json.loads(results.read_text())
    assert told["own"] == 1 and told["calibration"]["auroc"] == 0.9
    assert told["calibration"]["bins"] == bins and told["calibration"]["of"] == ["handmade"]


def test_one_bin_is_left_of_answers_that_know_nothing() -> None:
    asked = Asked(Path("x.png"), "?", ("a",), "web")
    given = [Answer(asked, "a", i / 100, i < 50) for i in range(100)]
    assert len(score.calibrated(given)) == 1
    assert score.calibrated(given[:5])[0]["n"] == 5
