"""Bases that are read from a file (`rotatek.methods.calibration` writes it)."""

import os
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from rotatek.errors import CalibrationUnusable


def load_bases(path: str | os.PathLike[str], layers: int, kind: str = "layer") -> list[Tensor]:
    """Eigenvectors [Hkv, d, d] of each layer; with `kind` "oscar", rotations [2, d, d].

    Raises:
        CalibrationUnusable: if the file is missing, damaged, or of another number of layers.
    """
    try:
        with safe_open(Path(path), "pt") as file:
            if sum(name.startswith(f"{kind}.") for name in file.keys()) != layers:  # noqa: SIM118
                raise CalibrationUnusable
            return [file.get_tensor(f"{kind}.{i}") for i in range(layers)]
    except (OSError, SafetensorError) as exc:
        raise CalibrationUnusable from exc
