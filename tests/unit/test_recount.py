"""An independent count: committed answers are scored, and bytes of prompts weighed, by other code.

Nothing of `rotatek.evaluation` is used but the suite, which draws the pictures and scores an
answer: the archive is read as lines of JSON, scores are averaged here, and two prompts are filled
alone and their tensors found by walking everything that the cache keeps alive.
"""

import csv
import gc
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import torch

from rotatek import RotateKCache
from rotatek.evaluation.suite import Item

RESULTS = Path("assets/results")
ARCHIVES = sorted((RESULTS / "answers").glob("*second*.jsonl.xz"))


def lines(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    head, *rows = map(json.loads, lzma.decompress(path.read_bytes()).decode().splitlines())
    return head, rows


def score(item: dict[str, Any], text: str) -> float:
    return Item(**{**item, "accepted": tuple(item["accepted"])}).score(text)


def kept_alive(cache: RotateKCache) -> int:
    """Bytes of every storage that a cache reaches, the model apart."""
    seen: set[int] = set()
    found: dict[int, int] = {}
    left: list[object] = [cache]
    hold = []
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type | torch.nn.Module) or callable(one):
            continue
        seen.add(id(one))
        hold.append(one)
        if isinstance(one, torch.Tensor):
            found[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
        left.extend(gc.get_referents(one))
    return sum(found.values())


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.name)
def test_cells_of_second_questions_follow_from_the_archive(path: Path) -> None:
    head, rows = lines(path)
    by_document: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_document.setdefault(row["item"]["document"], []).append(row)
    follow = [
        row
        for mine in by_document.values()
        for row in sorted(mine, key=lambda row: row["item"]["long"])[1:]
        if not sorted(mine, key=lambda row: row["item"]["long"])[0]["item"]["long"]
    ]
    whole = [row for row in follow if all(place >= 0 for place in row["by"])]
    with gzip.open(RESULTS / "cells.csv.gz", "rt", newline="") as file:
        cells = [
            cell
            for cell in csv.DictReader(file)
            if cell["ask"] == "second" and cell["suite"] == head["suite"]["name"]
            and cell["model"] == head["model"]["name"]
        ]  # fmt: skip
    assert len(cells) == len(head["settings"]) > 5
    means = []
    for place, _ in enumerate(head["settings"]):
        scores = [score(row["item"], row["said"][row["by"][place]][0]) for row in whole]
        live = [row["bytes"][place] / 1000 for row in whole]
        means.append((sum(scores) / len(scores), sum(live) / len(live)))
    for cell in cells:
        mine = float(cell["score"]), float(cell["live"])
        assert any(mine == pytest.approx(one, abs=2e-4) for one in means), cell["row"]
