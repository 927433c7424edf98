"""The one command of the GPU machine, in a tiny form on a CPU: it ends, packs, and goes on."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pocket.models.config import build_model, model_config, save_model
from rotatek.evaluation.answer_archive import unpack

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.unversioned, pytest.mark.timeout(900)]


def test_the_command_ends_in_time_packs_and_goes_on(tmp_path: Path) -> None:
    for name in ("rotatek", "kernels", "viz", "assets"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    save_model(build_model(model_config(2, 2, 512, 64)), tmp_path / "model")
    rows = {"RotateK": {"keep_channels": 0.25}, "ThinK": {"channels": "think"}}
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    environment = os.environ | {
        "PYTHON": sys.executable, "DEVICE": "cpu", "QUESTIONS": "4", "JOBS": "2",
        "PYTHONPATH": str(tmp_path),
        "EXTRA": "--settings rows.json --short-tokens 2 --long-tokens 4",
        "RUNS": "tiny=model:pocket:all:5 again=model:pocket:neutral",
    }  # fmt: skip

    spent: list[int] = []

    def run(out: str, seconds: int) -> int:
        words = ["sh", "deploy/evaluate.sh", out, str(seconds)]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode in (0, 3), done.stderr[-3000:]
        spent.append(int(done.stdout.splitlines()[-1].removesuffix(" seconds so far")))
        return done.returncode

    assert run("first", 1) == 3  # the clock ends it, and it says so
    assert run("second", 200) == 0
    assert 0 < spent[0] < spent[1]
    kept = unpack(tmp_path / "second" / "tiny.jsonl.xz")
    assert len(kept.items) == 5 and len(kept.settings) == 3 and len(kept.answers) == 15
    later = unpack(tmp_path / "second" / "again.jsonl.xz")
    assert later.header["ask"] == "neutral" and len(later.answers) == 12
    assert sorted(mark.name for mark in (tmp_path / "artifacts").glob("*/*/done-*")) == [
        f"done-{part}-of-2" for part in (1, 1, 2, 2)
    ]
    assert kept.header["ran_on"]["device"] == "cpu" and kept.header["model"]["weights"]
