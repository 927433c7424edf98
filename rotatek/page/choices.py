"""What a visitor may choose from: presets, examples, models; and choices as settings."""

import json
import os
from pathlib import Path
from typing import Final, NamedTuple

import torch

from rotatek.config import Settings
from rotatek.models import CHECKPOINTS
from rotatek.tokens import TOKENS


class Preset(NamedTuple):
    """A budget of the paper's tables: what is kept."""

    tokens: str
    keep_tokens: float
    channels: str
    keep_channels: float


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


PRESETS: Final = {
    label: preset
    for label, preset in {
        "25 %: tokens + channels": Preset("fastv", 0.40, "rotatek", 0.25),
        "25 %: tokens only": Preset("fastv", 0.25, "full", 1.0),
        "19 %: tokens + channels": Preset("fastv", 0.30, "rotatek", 0.25),
        "28 %: VisionZip + channels": Preset("visionzip", 0.45, "rotatek", 0.25),
        "62 %: channels only": Preset("none", 1.0, "rotatek", 0.25),
    }.items()
    if preset.tokens in TOKENS
}
START: Final = next(iter(PRESETS))


def settings_of(
    tokens: str, token_sparsity: float, channels: str, channel_sparsity: float, weighting: str
) -> Settings:
    """The widgets' values, which say what is dropped, as settings, which say what is kept."""
    return Settings(
        tokens=tokens,
        keep_tokens=1.0 if tokens == "none" else round(1.0 - token_sparsity, 6),
        channels=channels,
        keep_channels=1.0 if channels == "full" else round(1.0 - channel_sparsity, 6),
        weighting=weighting,  # type: ignore[arg-type]  # Settings checks it
    )


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


def models_on_offer() -> list[Model]:
    """What this machine serves: ROTATEK_MODELS (names, folders or hub ids), or what it can hold."""
    wanted = os.environ.get("ROTATEK_MODELS", "")
    given = [name.strip() for name in wanted.split(",") if name.strip()]
    if not given:
        given = list(CHECKPOINTS) if torch.cuda.is_available() else ["pocket"]
    offered = []
    for source in given:
        name = source if source in CHECKPOINTS else Path(source).name
        label = CHECKPOINTS[source].label if source in CHECKPOINTS else name
        offered.append(Model(name, label, source))
    return offered
