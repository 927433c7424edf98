"""Rows that are solved for every length of prompt: each question under its own class's settings."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rotatek.evaluation import equal_bytes_table
from rotatek.evaluation.journal import Journal, setting_id
from rotatek.evaluation.report import build
from rotatek.evaluation.runner import Runner, RunOptions
from rotatek.evaluation.suite import FileSuite, describe
from rotatek.evaluation.tables import UNCOMPRESSED_ROW, Row, Table, wanted
from rotatek.methods.settings import BASELINE, Settings
from tests.tiny import tiny_qwen

SIZES = {"a": 84, "b": 84, "c": 224, "d": 308}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> FileSuite:
    path = tmp_path_factory.mktemp("suite")
    rng = np.random.default_rng(0)
    for name, side in SIZES.items():
        pixels = rng.integers(0, 256, (side // 4, side // 4, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((side, side)).save(path / f"{name}.png")
    rows = [{"image": f"{name}.png", "question": "What?", "answer": "1"} for name in SIZES]
    (path / "suite.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return FileSuite(path / "suite.jsonl")


def test_prompts_of_as_many_tokens_are_a_class(suite: FileSuite) -> None:
    found = equal_bytes_table.classes_of(tiny_qwen(), suite)
    assert [len(names) for _, names in found] == [2, 1, 1]
    tokens = [prompt.visual_tokens for prompt, _ in found]
    assert tokens == sorted(tokens) and tokens[0] < tokens[1] < tokens[2]


def test_every_question_is_asked_and_scored_under_its_own_settings(
    suite: FileSuite, tmp_path: Path
) -> None:
    vlm = tiny_qwen()
    solved = tuple(Settings.of(keep_channels=keep) for keep in (0.5, 0.25, 0.125))
    classes = tuple(names for _, names in equal_bytes_table.classes_of(vlm, suite))
    row = Row("Ours, 4x", solved[1], "Ours", 4, solved, classes)
    table = Table("rivals", "Equal bytes", (UNCOMPRESSED_ROW, row))
    assert equal_bytes_table.rows_from(equal_bytes_table.flat_rows([row]))[0].asked == row.asked
    journal = Journal(tmp_path / "journal.jsonl", {})
    runner = Runner(vlm, suite, journal, RunOptions(2, limits=(3, 3)))
    list(runner.run(runner.units(list(wanted([table])))))
    mine = {key for key in journal.answers if key[0] != setting_id(BASELINE)}
    pairs = zip(solved, classes, strict=True)
    assert mine == {(setting_id(one), name) for one, names in pairs for name in names}
    header = {"model": {"name": "tiny"}, "suite": describe(suite)}
    whole, cell = build([table], suite.items, journal.answers, header).cells
    shares = [answer.kv_share for key, answer in journal.answers.items() if key in mine]
    assert cell.live == pytest.approx(sum(shares) / len(SIZES)) and whole.live == 1.0
