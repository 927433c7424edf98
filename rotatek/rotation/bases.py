"""Bases computed once and kept in a file (`rotatek.calibration` makes it)."""

import os
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from rotatek.errors import CalibrationUnusable


def load_bases(path: str | os.PathLike[str], layers: int) -> list[Tensor]:
    """Eigenvectors [Hkv, d, d] of each layer.

    Raises:
        CalibrationUnusable: if the file is missing, damaged, or of another number of layers.
    """
    try:
        with safe_open(Path(path), "pt") as file:
            if len(list(file.keys())) != layers:
                raise CalibrationUnusable
            return [file.get_tensor(f"layer.{layer}") for layer in range(layers)]
    except (OSError, SafetensorError) as exc:
        raise CalibrationUnusable from exc
