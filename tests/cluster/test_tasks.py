"""Evaluation and calibration by tasks on two nodes, one of which is killed in the middle."""

import argparse
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from rotatek.cli import calibrate, evaluate
from rotatek.errors import UserError
from tests.cluster.conftest import Nodes
from tests.fixtures import Picture

pytestmark = [pytest.mark.nodes, pytest.mark.unversioned, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def this_cluster(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """What starts Ray finds these nodes, and leaves them up."""
    import ray

    monkeypatch.setenv("RAY_ADDRESS", nodes.cluster.address)
    monkeypatch.setattr(ray, "init", lambda **given: None)
    monkeypatch.setattr(ray, "shutdown", lambda: None)


def run(command: Any, *words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words)) or 0


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def answered(path: Path) -> list[str]:
    """A journal's lines but those that say what its settings are."""
    return [line for line in lines(path) if not line.startswith('{"named"')]


@pytest.fixture
def words(folder: Path, tmp_path: Path, picture: Picture) -> list[str]:
    """An evaluation of 12 questions under 5 settings."""
    rows = {f"RotateK {k}": {"keep_channels": k / 128} for k in (16, 32, 64, 96)}
    (tmp_path / "mine.json").write_text(json.dumps(rows))
    asked = []
    for seed in range(3):
        picture(280, 224, seed=seed).save(tmp_path / f"{seed}.png")
        asked += [{"image": f"{seed}.png", "question": f"{n}?", "answer": "1"} for n in range(4)]
    (tmp_path / "suite.jsonl").write_text("\n".join(map(json.dumps, asked)))
    return [
        *("--model", str(folder), "--device", "cpu", "--batch", "1", "--short-tokens", "40"),
        *("--suite", str(tmp_path / "suite.jsonl"), "--settings", str(tmp_path / "mine.json")),
    ]


def test_a_node_killed_in_mid_evaluation(
    nodes: Nodes,
    words: list[str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    assert run(evaluate, *words, "--out", str(tmp_path / "one")) == 0
    journal = tmp_path / "two" / "journal.jsonl"
    killed: list[float] = []

    def kill() -> None:
        while len(answered(journal)) < 6:
            time.sleep(0.01)
        nodes.kill()
        killed.append(time.monotonic())
        nodes.bury()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    assert run(evaluate, *words, "--out", str(tmp_path / "two"), "--jobs", "2") == 0
    done = time.monotonic()
    killer.join()
    one, two = sorted(lines(tmp_path / "one" / "journal.jsonl")), sorted(lines(journal))
    assert len(answered(journal)) == 1 + 12 * 5 and one == two, "every answer once, and the same"
    record_property("from the kill to the end, s", round(done - killed[0], 2))
    print(f"\nthe rest took {done - killed[0]:.1f} s on one node")
    nodes.add()


def test_a_run_that_is_ended_keeps_its_answers(words: list[str], tmp_path: Path) -> None:
    """As `timeout` ends it: then it goes on."""
    journal = tmp_path / "out" / "journal.jsonl"

    def end() -> None:
        while len(answered(journal)) < 4:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, daemon=True).start()
    with pytest.raises(UserError, match="What was answered is kept"):
        run(evaluate, *words, "--out", str(tmp_path / "out"), "--jobs", "2")
    held = len(answered(journal))
    assert 4 <= held < 61
    assert run(evaluate, *words, "--out", str(tmp_path / "out"), "--jobs", "2") == 0
    assert len(set(lines(journal))) == len(lines(journal)) == 61 + 5


def test_calibration_by_tasks_is_that_of_one(
    folder: Path, tmp_path: Path, picture: Picture
) -> None:
    rows = []
    for seed in range(5):
        image: Image.Image = picture(280, 224, seed=seed)
        image.save(tmp_path / f"{seed}.png")
        rows.append({"image": str(tmp_path / f"{seed}.png"), "question": "What is it?"})
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = ["--batch", str(tmp_path / "rows.jsonl"), "--model", str(folder), "--device", "cpu"]
    for jobs in ("1", "2"):
        run(calibrate, *given, "--out", str(tmp_path / f"{jobs}.safetensors"), "--jobs", jobs)
    one, two = (load_file(tmp_path / f"{jobs}.safetensors") for jobs in ("1", "2"))
    assert one.keys() == two.keys()
    for name in one:
        mine, its = (_leading(found[name], name) for found in (one, two))
        if name.endswith("scale"):
            torch.testing.assert_close(mine, its, rtol=0.02, atol=0)
        else:
            cosine = torch.cosine_similarity(mine, its, dim=-2)
            assert (cosine.abs() > 0.999).all(), name


def _leading(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """What belongs to the first axes, as columns: they may differ in signs, and those beyond the
    data in all."""
    columns = tensor.mT if name.endswith("rows") else tensor
    return columns[..., :4].float()
