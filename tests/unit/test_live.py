"""Equal live bytes: every method meets the budget, as measured."""

import json
from pathlib import Path

import pytest

from rotatek.cli import main as command
from rotatek.engine.equal_bytes import SLACK, matched_live, measured
from rotatek.inputs.request import make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from tests.fixtures import Picture


@pytest.mark.parametrize("chosen", [{"keep_channels": 0.25}, {"smaller": 6}], ids=str)
def test_columns_of_equal_live_bytes(
    qwen: VisionLanguageModel, picture: Picture, chosen: dict
) -> None:
    prompt = qwen.prompt(make_request(picture(260, 220, seed=2), "what is the total?", 3))
    settings = Settings.of(**chosen)
    columns = matched_live(qwen, prompt, settings, recovery="mean")
    assert columns["rotatek"] == settings and columns["baseline"] == BASELINE
    assert columns["spark"].as_dict()["recovery"] == "mean"
    assert {"kivi", "turboquant", "think"} < columns.keys()
    budget, *held = measured(qwen, prompt, [settings, *columns.values()])
    for (name, one), size in zip(columns.items(), held, strict=True):
        assert one.is_baseline or size <= SLACK * budget, name
        assert not one.prunes_tokens or size >= 0.85 * budget, name


def test_the_command_compares_at_equal_live_bytes(
    qwen: VisionLanguageModel,
    picture: Picture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("rotatek.models.load", lambda *_, **__: qwen)
    picture(260, 220, seed=2).save(tmp_path / "picture.png")
    words = ["compare", str(tmp_path / "picture.png"), "what?", "--equal", "live", "--json"]
    assert command.main([*words, "--max-new-tokens", "2", "--keep-channels", "0.25"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ours = next(row["kv_bytes"] for row in rows if row["method"] == "rotatek")
    assert len(rows) >= 8
    assert all(row["kv_bytes"] <= 1.05 * ours for row in rows if row["method"] != "baseline")
    assert command.main([*words, "--channels", "full"]) == 2
    assert "nothing to compare" in capsys.readouterr().err
