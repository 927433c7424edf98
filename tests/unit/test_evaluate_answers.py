"""Answers in one file: every table follows from it, and a changed score is noticed."""

import json
import lzma
from dataclasses import asdict
from pathlib import Path

import pytest

from rotatek.errors import UserError
from rotatek.evaluation import equal_bytes_table, report
from rotatek.evaluation.answer_archive import Named, collect, pack, restore, unpack
from rotatek.evaluation.journal import (
    Answer,
    Answers,
    Journal,
    read_answers,
    read_header,
    setting_id,
)
from rotatek.evaluation.suite import Item, StoredSuite, describe
from rotatek.evaluation.tables import Claim, Row, Table
from rotatek.methods.settings import BASELINE, Settings

OURS = Settings.of(keep_channels=0.25)
ITEMS = [Item(f"q{n}", n // 2, "ab"[n % 2], "?", ("yes",), "anls") for n in range(8)]
TABLE = Table("t", "T", (Row("base", BASELINE), Row("ours", OURS)), (Claim("ours", "base"),))
HEADER = {
    "model": {"name": "m", "dtype": "float32", "weights": "w"},
    "suite": describe(Named("s", ITEMS)),
    "ran_on": {"device": "cpu"},
}


def given() -> Answers:
    said = {BASELINE: ["yes"] * 8, OURS: ["yes", "yeah", "no"] + ["yes"] * 4}
    return {
        (setting_id(one), f"q{n}"): Answer(setting_id(one), f"q{n}", text, len(text), share)
        for (one, texts), share in zip(said.items(), (1.0, 0.4), strict=True)
        for n, text in enumerate(texts)
    }


def test_tables_follow_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl.xz"
    pack(path, collect(HEADER, ITEMS, given(), [BASELINE, OURS, Settings.of(channels="think")]))
    kept = unpack(path)
    assert kept.answers == given() and kept.items == ITEMS and kept.header == HEADER
    assert set(kept.settings.values()) == {BASELINE, OURS}
    before = report.build([TABLE], ITEMS, given(), HEADER)
    after = report.build([TABLE], kept.items, kept.answers, kept.header)
    assert before == after and after.runs[0]["tables"][0]["questions"] == 7


def test_shares_of_bytes_keep_three_digits(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl.xz"
    name = setting_id(OURS)
    for share, kept in ((0.432199, 0.432), (0.01234567, 0.0123)):
        said = {(name, "q0"): Answer(name, "q0", "yes", 3, share)}
        pack(path, collect(HEADER, ITEMS, said, [OURS]))
        assert unpack(path).answers[name, "q0"].kv_share == kept


def test_a_packed_run_goes_on_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl.xz"
    pack(path, collect(HEADER, ITEMS, given(), [BASELINE, OURS]))
    restore(unpack(path), tmp_path / "run")
    journal = tmp_path / "run" / "journal.jsonl"
    header = read_header(journal)
    assert "ran_on" not in header and header["model"] == HEADER["model"]
    assert read_answers(journal, header) == given()
    assert StoredSuite(tmp_path / "run" / "questions.jsonl").items == ITEMS


def test_a_journal_survives_an_option_that_a_method_gains(tmp_path: Path) -> None:
    """Written before `solver` was an option: its name was another one then."""
    path, before = tmp_path / "journal.jsonl", "0123456789ab"
    flat = {key: value for key, value in OURS.as_dict().items() if key != "solver"}
    lines = [{"run": 1}, {"named": before, "settings": flat},
             {"named": "gone", "settings": {"channels": "gone"}},
             *(asdict(Answer(name, "q", "x", 1, 0.5)) for name in (before, "gone"))]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for _ in range(2):  # read, and written again under its present name
        journal = Journal(path, {"run": 1})
        assert journal.answers.keys() == {(setting_id(OURS), "q"), ("gone", "q")}
    journal.record([OURS, BASELINE])
    journal.record([OURS])
    named = [line for line in path.read_text().splitlines() if '"named"' in line]
    assert len(named) == 3 and read_answers(path, {"run": 1}) == journal.answers


def test_tables_are_rebuilt_from_a_tiny_packed_run(tmp_path: Path) -> None:
    from docs import results

    flat = {"tokens": "none", **OURS.as_dict()}
    # As files of earlier versions have it, and as they have it now.
    for solved in ({"Mine, 2x": flat}, {"Mine": {"times": 2, **flat}}):
        header = {**HEADER, "solved": solved}
        pack(tmp_path / "a.jsonl.xz", collect(header, ITEMS, given(), [BASELINE, OURS]))
        built = results.rebuilt(unpack(tmp_path / "a.jsonl.xz"))
        assert [(cell.table, cell.times) for cell in built.cells] == [("rivals", 0), ("rivals", 2)]
        assert "solved" not in built.runs[0]
        for cell in built.cells:
            assert Settings.from_dict(cell.settings) in (BASELINE, OURS)
        restore(unpack(tmp_path / "a.jsonl.xz"), tmp_path / "run")
        table = equal_bytes_table.stored(tmp_path / "run")
        assert table is not None and [row.times for row in table.rows] == [0, 2]
        assert [row.label for row in table.rows[1:]] == list(solved)


def test_a_score_that_is_not_the_answers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl.xz"
    pack(path, collect(HEADER, ITEMS, given(), [BASELINE, OURS]))
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    row = json.loads(lines[3])
    row["scores"] += 0.01
    path.write_bytes(lzma.compress("\n".join([*lines[:3], json.dumps(row), *lines[4:]]).encode()))
    with pytest.raises(UserError, match="not those of its answers"):
        unpack(path)
    path.write_bytes(b"?")
    with pytest.raises(UserError, match="cannot be read"):
        unpack(path)
