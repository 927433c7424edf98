"""`rotatek verify` on the embedded model and a few drawn pictures."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from rotatek.cli import verify
from rotatek.errors import SettingError
from rotatek.evaluation import verification
from rotatek.evaluation.chains import SECOND, chains
from rotatek.evaluation.suite import Item
from rotatek.evaluation.verification import markdown, sampled, verified_table


def command(*words: str) -> None:
    parser = argparse.ArgumentParser()
    verify.add_arguments(parser)
    verify.run(parser.parse_args(words))


class Drawn:
    """Ten documents: some with one question, some with three, some whole pages."""

    name = "drawn"
    items = tuple(
        Item(f"{d}-{n}", d, "x", "?", ("1",), "anls", long=d % 5 == 4)
        for d in range(10)
        for n in range(1 if d % 5 == 3 else 3)
    )

    def image(self, document: int) -> object:
        raise AssertionError(document)


def test_a_sample_is_the_seeds_and_has_what_can_follow() -> None:
    one, again, other = (sampled(Drawn(), 3, seed) for seed in (0, 0, 5))  # type: ignore[arg-type]
    assert one.items == again.items != other.items
    assert len(chains(one.items, SECOND)) == 3
    assert len(sampled(Drawn(), 99, 0).items) == 18  # type: ignore[arg-type]


def test_one_command_makes_a_table_to_read_and_to_paste(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = ("Uncompressed", "RotateK (0.75 bits)", "TurboQuant (2 bits)", "FastV 0.4")
    table = verified_table()
    few = replace(table, rows=tuple(row for row in table.rows if row.label in shown))
    monkeypatch.setattr(verification, "verified_table", lambda: few)
    monkeypatch.setattr(verification, "ANSWER_TOKENS", 6)
    monkeypatch.setattr("rotatek.evaluation.generation_cost.TOKENS", 4)
    words = ("--device", "cpu", "--pictures", "2", "--side", "112", "--out", str(tmp_path))
    command(*words)
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "verify.json").read_text())
    assert (tmp_path / "verify.md").read_text() == said == markdown(found)
    assert [row["kept"] for row in found["rows"]] == list(shown)
    assert found["pictures"] == 2 and found["second_questions"] >= 2
    whole, ours, *_ = found["rows"]
    assert whole["live_share"] == 1 and ours["live_share"] < 0.35
    assert whole["same"] == 1 and 0 <= ours["second"][0] <= 1
    assert ours["cache_mib"] < whole["cache_mib"] and ours["first_token_ms"] > 0
    assert ours["peak_mib"] is None  # without a GPU
    assert said.count("\n| ") == len(shown) + 1
    answers = (tmp_path / "journal.jsonl").read_text()
    command(*words)
    assert (tmp_path / "journal.jsonl").read_text() == answers  # nothing is asked again


def test_the_table_is_a_handful_of_budgets_and_rivals() -> None:
    labels = {row.label for row in verified_table().rows}
    assert {
        "Uncompressed",
        "RotateK (0.75 bits)",
        "RotateK, 32 Key channels",
        "FastV 0.4",
    } <= labels
    assert {"KIVI (2 bits)", "TurboQuant (2 bits)", "TurboQuant (3 bits)"} <= labels
    assert "KIVI (4 bits)" not in labels and len(labels) <= 22


def test_nonsense_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="--pictures"):
        command("--pictures", "0", "--out", str(tmp_path))
    with pytest.raises(SettingError, match="--side"):
        command("--side", "9", "--out", str(tmp_path))
