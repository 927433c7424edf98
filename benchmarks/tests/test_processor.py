"""What settings cost on a processor: measured on little, and refused where nothing can be."""

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.processor import ARMS, WHOLE


def test_every_setting_stands_beside_the_uncompressed_cache(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    words = ["processor", "--rounds", "1", "--tokens", "5", "--sides", "320"]
    assert main([*words, "--settings", "2 bits", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    (rows,) = (value for name, value in found.items() if name.endswith(" visual tokens"))
    assert list(rows) == [WHOLE, "2 bits"] and set(rows) < set(ARMS)
    assert {rows[WHOLE][name] for name in rows[WHOLE] if name.endswith("_of_whole")} == {1.0}
    for row in rows.values():
        assert row["first_ms"] > row["step_ms"] > 0
        assert row["first_of_whole"] > 0.2 and row["step_cpu_of_whole"] > 0.2


def test_a_short_answer_times_nothing() -> None:
    with pytest.raises(SystemExit, match="longer answer"):
        main(["processor", "--rounds", "1", "--tokens", "2", "--sides", "224"])
