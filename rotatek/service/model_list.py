"""A visitor's choices: budgets, examples and models."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import BASELINE, Settings, pruners
from rotatek.models import CHECKPOINTS
from rotatek.models.loading import fitting


class Example(NamedTuple):
    """One picture of the gallery, and questions that it answers."""

    image: Path
    title: str
    questions: tuple[str, ...]


class Model(NamedTuple):
    """A model on offer. source: what `rotatek.models.load` takes; never sent to the browser."""

    name: str
    label: str
    source: str


def presets() -> dict[str, Settings]:
    """Budgets of the paper's tables, by label; the first is where the page begins."""
    first, second, method = *pruners()[:2], CHANNELS.default().with_keep(0.25)
    return {
        "25 %: tokens + channels": Settings(first().with_keep(0.40), method),
        "25 %: tokens only": Settings(first().with_keep(0.25), BASELINE.channels),
        "19 %: tokens + channels": Settings(first().with_keep(0.30), method),
        f"28 %: {second.label} + channels": Settings(second().with_keep(0.45), method),
        "62 %: channels only": Settings(channels=method),
    }


def load_examples(folder: Path) -> list[Example]:
    """The gallery, from index.json; empty where there is none."""
    index = folder / "index.json"
    if not index.exists():
        return []
    entries = json.loads(index.read_text(encoding="utf-8"))
    return [
        Example(folder / e["image"], e["title"], tuple(q["question"] for q in e["questions"]))
        for e in entries
    ]


def models_on_offer(usual: Iterable[str] | None = None) -> list[Model]:
    """The models to serve: ROTATEK_MODELS (names, folders or hub ids), else `usual`, else those
    that fit this machine."""
    wanted = os.environ.get("ROTATEK_MODELS", "")
    given = [name.strip() for name in wanted.split(",") if name.strip()]
    return models_of(given or list(usual or fitting()))


def models_of(sources: Iterable[str]) -> list[Model]:
    """Models on offer, by what `rotatek.models.load` takes, each once. Where the last parts of two
    sources are alike, names have as many more parts as tell them apart."""
    given = list(dict.fromkeys(sources))
    parts = [
        (Path(one).absolute() if Path(one).is_dir() else Path(one)).parts for one in given
    ]  # fmt: skip
    offered = []
    for source, mine in zip(given, parts, strict=True):
        tails = (mine[-count:] for count in range(1, len(mine) + 1))
        alone = (tail for tail in tails if sum(one[-len(tail) :] == tail for one in parts) == 1)
        name = source if source in CHECKPOINTS else "/".join(next(alone, (source,)))
        label = CHECKPOINTS[source].label if source in CHECKPOINTS else name
        offered.append(Model(name, label, source))
    return offered
