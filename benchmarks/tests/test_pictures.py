"""Stored pictures measured: every part runs here, on little."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.pictures.many import many
from rotatek.methods.settings import Settings
from tests.tiny import tiny_qwen

WITHOUT = """
import sys
sys.modules |= dict.fromkeys(("gradio", "plotly", "pypdfium2", "ray"))
from benchmarks.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_full_size_runs_with_a_tiny_model_and_little_installed(
    tmp_path: Path, root: Path
) -> None:
    """As on a GPU machine, which has neither gradio nor PDFium nor Ray."""
    path = tmp_path / "found.json"
    words = ["pictures", "--part", "full-size", "--tiny", "--rounds", "1", "--json", str(path)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *words], cwd=root, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    row = json.loads(path.read_text())["full-size"]
    assert row["bytes"]["file"] < row["bytes"]["held"] < row["bytes"]["dense"]
    assert set(row["over_afresh"]) == {"stored", "stored, from disk"}
    assert set(row["seconds"]) == {"model", "first token", "bytes", "reading", "asking"}
    assert "stored, from disk" in done.stdout and row["times_as_many"] > 0


def test_answers_are_compared_with_the_uncompressed_models_own(tmp_path: Path, root: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    (tmp_path / "receipt.png").write_bytes((root / "assets/examples/receipt.png").read_bytes())
    line = {"image": "receipt.png", "question": "What is the total?", "answer": "nothing"}
    questions.write_text(json.dumps(line) + "\n")
    words = ["pictures", "--part", "answers", "--suites", str(questions), "--bits", "2"]
    assert main([*words, "--json", str(tmp_path / "found.json")]) == 0
    (found,) = json.loads((tmp_path / "found.json").read_text()).values()
    assert found["questions"] == {
        "questions": 1, "same": 1, "kl": pytest.approx(0, abs=0.01), "right": 0, "differ": [],
    }  # fmt: skip


def test_many_pages_are_asked_from_links_to_a_few() -> None:
    found = many(tiny_qwen(), Settings.of(bits=1), 4, (12, 30))
    assert set(found) == {"12 pages", "30 pages", "afresh", "times_as_many"}
    assert all(found[f"{count} pages"]["opens_s"] < 1 for count in (12, 30))
    assert found["times_as_many"] > 0 and found["12 pages"]["held_mb"] < 20


def test_a_part_that_there_is_not_is_refused() -> None:
    with pytest.raises(SystemExit, match="choose from: times; answers; many; full-size"):
        main(["pictures", "--part", "none"])
