"""What a visitor may choose from: presets, examples, models; and choices as settings."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from rotatek.budget import matched_keep_tokens
from rotatek.errors import SettingError
from rotatek.models import CHECKPOINTS
from rotatek.models.loading import fitting
from rotatek.settings import Settings
from rotatek.tokens import TOKENS


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


_JOINT: Final = Settings(tokens="fastv", keep_tokens=0.40, keep_channels=0.25)
PRESETS: Final = {  # budgets of the paper's tables, and one beyond it
    label: preset
    for label, preset in {
        "25 %: tokens + channels": _JOINT,
        "25 %: tokens only": Settings("fastv", 0.25, "full", 1.0),
        "19 %: tokens + channels": replace(_JOINT, keep_tokens=0.30),
        "28 %: VisionZip + channels": Settings("visionzip", 0.45, "rotatek", 0.25),
        "62 %: channels only": Settings(keep_channels=0.25),
        "19 %: Keys + Values": Settings(
            keep_channels=0.13, widths="adaptive", values="rotate", keep_values=0.25
        ),
    }.items()
    if preset.tokens in TOKENS
}
START: Final = next(iter(PRESETS))
NOT_SHARED: Final = ("calibration", "fastv_layer", "contextual")
MAX_CODE: Final = 400  # characters of an encoded setting


def settings_of(
    tokens: str,
    token_sparsity: float,
    channels: str,
    channel_sparsity: float,
    weighting: str,
    value_sparsity: float = 0.0,
    adaptive: bool = False,
    cache_dtype: str = "model",
) -> Settings:
    """The widgets' values, which say what is dropped, as settings, which say what is kept.

    What is beyond the paper belongs to RotateK and is left out beside any other method.
    """
    own = channels == "rotatek"
    drops_values = own and value_sparsity > 0
    return Settings(
        tokens=tokens,
        keep_tokens=1.0 if tokens == "none" else round(1.0 - token_sparsity, 6),
        channels=channels,
        keep_channels=1.0 if channels == "full" else round(1.0 - channel_sparsity, 6),
        weighting=weighting,  # type: ignore[arg-type]  # Settings checks it
        widths="adaptive" if own and adaptive else "uniform",
        values="rotate" if drops_values else "full",
        keep_values=round(1.0 - value_sparsity, 6) if drops_values else 1.0,
        cache_dtype=cache_dtype if own else "model",  # type: ignore[arg-type]
    )


def widgets_of(settings: Settings) -> tuple[str, float, str, float, str, float, bool, str]:
    """The inverse of `settings_of`: what the widgets must show for `settings`."""
    return (
        settings.tokens,
        round(1 - settings.keep_tokens, 6),
        settings.channels,
        round(1 - settings.keep_channels, 6),
        settings.weighting,
        round(1 - settings.keep_values, 6) if settings.values == "rotate" else 0.0,
        settings.widths == "adaptive",
        settings.cache_dtype,
    )


def same_budget(chosen: Settings) -> list[Settings]:
    """Token-only, ThinK, SparK and RotateK at the nominal budget of `chosen`, itself left out.

    The channel share is the chosen one (a quarter where no channel is dropped, or more where even
    that would be too little) and the token share follows from the budget.
    """
    budget = nominal_kv(chosen)
    pruner = chosen.tokens if chosen.tokens != "none" else "fastv"
    share = chosen.keep_channels if chosen.channels != "full" else 0.25
    share = max(share, 2 * budget - 1)
    kept = round(matched_keep_tokens(budget, share), 6)
    alone = round(matched_keep_tokens(budget, 1.0), 6)
    columns = [Settings(tokens=pruner, keep_tokens=alone, channels="full", keep_channels=1.0)]
    for method in ("think", "spark", "rotatek"):
        tokens = "none" if kept == 1 else pruner
        columns.append(
            Settings(
                tokens=tokens,
                keep_tokens=kept,
                channels=method,
                keep_channels=share,
                weighting=chosen.weighting,
            )
        )
    beyond = (chosen.values, chosen.widths, chosen.cache_dtype)
    plain = beyond == ("full", "uniform", "model")
    own = chosen.channels if plain or chosen.channels != "rotatek" else ""
    return [column for column in columns if column.channels != own]


def encode(settings: Settings) -> str:
    """Settings as short text for links and buttons: `tokens:fastv,keep_tokens:0.4`.

    Only what differs from the defaults, and what the command line has too; never a calibration
    file, which is a path.
    """
    given, usual = settings.as_dict(), Settings().as_dict()
    named = {name: value for name, value in given.items() if name not in NOT_SHARED}
    return ",".join(f"{name}:{value}" for name, value in named.items() if value != usual[name])


def decode(text: str) -> Settings:
    """The inverse of `encode`, for text from anywhere.

    Raises:
        SettingError: for a name or a value that there is not.
    """
    if len(text) > MAX_CODE:
        raise SettingError("the setting", f"at most {MAX_CODE} characters", text)
    usual, values = Settings().as_dict(), {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition(":")
        if name in NOT_SHARED:
            raise SettingError("the setting", "one that can be shared", name)
        values[name] = _number(value) if isinstance(usual.get(name), int | float) else value
    settings = Settings.from_dict(values)
    check_methods(settings)
    return settings


def _number(text: str) -> float | int | str:
    """A number where `text` is one; `Settings` refuses the rest."""
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text


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
    """What this machine serves: ROTATEK_MODELS (names, folders or hub ids), else `usual`, else what
    it can hold."""
    wanted = os.environ.get("ROTATEK_MODELS", "")
    given = [name.strip() for name in wanted.split(",") if name.strip()]
    given = given or list(usual or fitting())
    offered = []
    for source in given:
        name = source if source in CHECKPOINTS else Path(source).name
        label = CHECKPOINTS[source].label if source in CHECKPOINTS else name
        offered.append(Model(name, label, source))
    return offered
