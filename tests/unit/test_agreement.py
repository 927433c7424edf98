"""The committed journal and what is read off it belong together."""

import json
from pathlib import Path

import pytest

from rotatek.evaluation import agreement


def test_committed_agreement_is_what_the_journal_says(root: Path, tmp_path: Path) -> None:
    results = root / "assets" / "results"
    target = tmp_path / "agreement.json"
    assert agreement.main([str(results / "journal.jsonl.gz"), "--json", str(target)]) == 0
    assert json.loads(target.read_text()) == json.loads((results / "agreement.json").read_text())


def test_the_uncompressed_row_agrees_with_itself(root: Path) -> None:
    report = json.loads((root / "assets" / "results" / "agreement.json").read_text())
    assert {table["name"] for table in report["tables"]} >= {"budget-fastv", "channels", "beyond"}
    for table in report["tables"]:
        assert table["rows"][0]["agreement"] == 1
        assert table["rows"][0]["actual_kv"] == pytest.approx(1)
