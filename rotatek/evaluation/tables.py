"""The settings that an evaluation asks: the paper's tables, today's rivals, and `smaller`.

A setting is a name and its flat options (`Settings.of`); a table is a list of names. Shares stand
in the names, not counts: a quarter of the Key channels is 32 of `pocket`'s 128.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rotatek.errors import SettingError, UserError
from rotatek.inputs.text_files import parsed, read_text
from rotatek.methods.settings import BASELINE, Settings

UNCOMPRESSED: Final = "uncompressed"  # what every setting is compared with
CALIBRATED: Final[Mapping[str, Mapping[str, Any]]] = {  # with a file of `rotatek calibrate`
    "RotateK calibrated offline, channels .25": {"channels": "rotatek", "keep_channels": 0.25},
    "OSCAR, bits 2": {"channels": "oscar", "number_bits": "2"},
    "OSCAR, bits 2, 320 whole": {"channels": "oscar", "number_bits": "2", "whole": "64+256"},
}
Flat = Mapping[str, Any]

# (nominal KV, tokens kept) of the paper's joint rows at a quarter of the channels, and tighter ones
BUDGETS: Final = ((0.28, 0.45), (0.25, 0.4), (0.22, 0.35), (0.19, 0.3))
TIGHTER: Final = ((0.125, 0.2), (0.0625, 0.1))
SHARES: Final = (0.5, 0.375, 0.25, 0.1875, 0.125, 0.0625)  # k = 64, 48, 32, 24, 16, 8 of 128
SMALLER: Final = (2, 3, 4, 5, 6, 8, 12, 16, 24)
PRUNED: Final = 0.4  # tokens kept where pruners are compared with each other
PAPERS: Final = {"FastV": "fastv", "VisionZip": "visionzip"}
PRUNERS: Final = PAPERS | {
    "SnapKV": "snapkv", "PyramidDrop": "pyramiddrop", "DivPrune": "divprune", "DART": "dart",
    "Random tokens": "random",
}  # fmt: skip


def number(value: float) -> str:
    """`.28`, `5`: as names have it."""
    return f"{value:g}".removeprefix("0")


def _alone(keep: float, tokens: str) -> Flat:
    return {"channels": "full", "tokens": tokens, "keep_tokens": keep}


def _budgets(budgets: tuple[tuple[float, float], ...], label: str, tokens: str) -> dict[str, Flat]:
    found: dict[str, Flat] = {}
    for nominal, keep in budgets:
        exact = keep * 0.625  # Values stay whole
        joint = {"tokens": tokens, "keep_tokens": keep, "keep_channels": 0.25}
        found[f"{label} only, budget {number(nominal)}"] = _alone(exact, tokens)
        found[f"{label} and RotateK, budget {number(nominal)}"] = joint
    return found


TABLES: Final[Mapping[str, Mapping[str, Flat]]] = {
    "budgets": {
        name: flat
        for label, tokens in PAPERS.items()
        for name, flat in _budgets(BUDGETS, label, tokens).items()
    },
    "tighter": _budgets(TIGHTER, "FastV", "fastv"),
    "channels": {
        f"{label}, channels {number(share)}": {"channels": name, "keep_channels": share}
        for label, name in (("RotateK", "rotatek"), ("ThinK", "think"), ("SparK", "spark"))
        for share in SHARES
    },
    "ablation": {
        "RotateK, channels .25": {"channels": "rotatek", "keep_channels": 0.25},
        "RotateK unweighted, channels .25": {"keep_channels": 0.25, "weighting": "none"},
        "RotateK general questions, channels .25": {"keep_channels": 0.25, "weighting": "general"},
        "RotateK by eigh, channels .25": {"keep_channels": 0.25, "solver": "eigh"},
        "RotateK as printed, channels .25": {"keep_channels": 0.25, "solver": "paper"},
    },
    "rivals": {
        **{f"KIVI, bits {bits}": {"channels": "kivi", "number_bits": bits} for bits in "234"},
        **{
            f"TurboQuant, bits {bits}": {"channels": "turboquant", "number_bits": bits}
            for bits in "234"
        },
        "VidKV": {"channels": "vidkv"},
        "OScaR, bits 2": {"channels": "omniscale", "number_bits": "2"},
        "OScaR, bits 2, 128 whole": {
            "channels": "omniscale", "number_bits": "2", "residual": "128",
        },
        **{f"{label}, tokens .4": _alone(PRUNED, name) for label, name in PRUNERS.items()},
    },
    "smaller": {
        **{f"RotateK, smaller {times}": {"smaller": times} for times in SMALLER},
        "RotateK general questions, smaller 8": {"smaller": 8, "weighting": "general"},
        "FastV .4 and RotateK, smaller 5": {
            "tokens": "fastv", "keep_tokens": PRUNED, "channels": "rotatek", "smaller": 5,
        },
    },
}  # fmt: skip

LADDER: Final = (3, 5, 8, 12, 16, 24)  # factors that `rotatek verify` asks, and what beside them
BESIDE: Final = ("RotateK, channels .25", "KIVI, bits 2", "OScaR, bits 2")


def settings_of(tables: str = "all", calibration: str | None = None) -> dict[str, Settings]:
    """Settings by name, the uncompressed cache first.

    Args:
        tables: names of `TABLES` with commas between them, or "all".
        calibration: a file of `rotatek calibrate`, for the rows of `CALIBRATED`.

    Raises:
        SettingError: for a table that there is not.
    """
    names = list(TABLES) if tables == "all" else tables.split(",")
    flat: dict[str, Flat] = {}
    for name in names:
        if name not in TABLES:
            raise SettingError("--tables", f"all, or some of {','.join(TABLES)}", name)
        flat |= TABLES[name]
    if calibration is not None:
        flat |= {name: {**one, "calibration": calibration} for name, one in CALIBRATED.items()}
    return {UNCOMPRESSED: BASELINE} | {name: Settings.of(**one) for name, one in flat.items()}


def from_file(path: Path) -> dict[str, Settings]:
    """Settings of a JSON file, the uncompressed cache first.

    Raises:
        UserError: if the file is not of the form {"name": {"keep_channels": 0.25}, ...}.
        SettingError: for settings that there are not.
    """
    text = read_text(path, "The settings file")
    try:
        flat = {str(name): dict(one) for name, one in parsed(text).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(
            'The settings file is not JSON of the form {"name": {"keep_channels": 0.25}, ...}.'
        ) from error
    return {UNCOMPRESSED: BASELINE} | {name: Settings.of(**one) for name, one in flat.items()}
