"""The third model's card: its figures are those of the files."""

import json
from pathlib import Path

import pytest
import torch

from pocket.evaluation import card
from pocket.evaluation.measures import Answered, declined_shares, report
from pocket.models.smol import write_parts
from rotatek.models.assembly import LANGUAGE, RECIPE, VISUAL


def item(split: str, kind: str, answer: str) -> Answered:
    return Answered(split, "lists", "448x448", kind, "?", "yes", answer)


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """What a training leaves: two splits, a file that was asked, and its log."""
    folder = tmp_path / "result"
    folder.mkdir()
    items = [item("own", "field", "yes"), item("own", "count", "no"), item("scanned", "field", "")]
    for split in ("own", "scanned"):
        mine = [one for one in items if one.split == split]
        tables = report(mine) | {"declined": declined_shares(mine)}
        (folder / f"{split}.json").write_text(json.dumps(tables))
    asked = {"file": "handmade", "questions": 4, "right": 0.75, "kinds": {"chart": [3, 4]}}
    (folder / "asked.json").write_text(json.dumps([asked | {"without_caution": 2}]))
    log = [
        {"step": step, "images": 100 * step, "seconds": 6.0 * step, "answer_loss": 4 / step}
        for step in range(1, 65)
    ]
    (folder / "log.json").write_text(json.dumps([{"pass_ms": 3}, *log]))
    return folder


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    folder = tmp_path / "parts"
    stem = f"{LANGUAGE}layers.0.mlp.up_proj."
    state = {VISUAL + "a": torch.zeros(1_000_000), stem + "down": torch.zeros(8, 25_000)}
    state[stem + "up"] = torch.zeros(12_500, 8)
    write_parts(state.items(), folder)
    (folder / RECIPE).write_text("{}")
    return folder


def test_the_card_has_the_figures_of_the_files(result: Path, parts: Path) -> None:
    card.main([str(result), str(parts)])
    text = (parts / "README.md").read_text(encoding="utf-8")
    assert "(1.0 million parameters)" in text and "of rank 8" in text
    assert "(0.3 million parameters)" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [row for row in rows if ".50 (.09 to .91) of 2" in row and "own renderers" in row]
    assert "| field | 1 of 2 |" in rows
    assert "| pages by other hands (`assets/handmade`) | .75 of 4 | chart 3 of 4 |" in rows
    assert "| 6,400 | 6.4 | 0.0625 |" in rows and "| 3,200 | 3.2 | 0.125 |" in rows
    assert "$" not in text


def test_a_card_without_a_log_has_no_doublings(result: Path, parts: Path) -> None:
    (result / "log.json").unlink()
    assert "doubling" not in card.card(result, parts)


def test_no_figures_and_no_parts_are_refused(result: Path, parts: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder, own, why in (("empty", parts, "no figures"), ("result", tmp_path, "no language")):
        with pytest.raises(ValueError, match=why):
            card.card(tmp_path / folder, own)
