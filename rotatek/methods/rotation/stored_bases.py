"""Bases that are read from a file (`rotatek.methods.calibration` writes it)."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rotatek.errors import CalibrationUnusable

Made = TypeVar("Made")
Opened = Callable[[str], Tensor]
AXES: Final = "axes.safetensors"  # beside a model's weights
DIGEST: Final = 16  # bytes of a file's checksum


class SharedAxes(NamedTuple):
    """All axes of one layer's Keys or Values, which requests share.

    forward: [Hkv, d, d] float32, what turns a centred state into coordinates; rows: [Hkv, d, d]
    int8, what turns coordinates back, in units of scale [Hkv, d]. Axes that are `offered` have no
    forward, and may be fewer than d.
    """

    forward: Tensor
    rows: Tensor
    scale: Tensor

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        return type(self)(*(part.to(device) for part in self))


@dataclass(eq=False)
class LayerAxes:
    """The axes of one layer, of the file with that digest; copied to a device once.

    offered: whether a budget of bytes may take them where they serve it better than a prompt's own;
        otherwise they replace these.
    """

    keys: SharedAxes
    values: SharedAxes
    digest: str
    offered: bool = False
    _placed: dict[torch.device, tuple[SharedAxes, SharedAxes]] = field(default_factory=dict)

    def on(self, device: torch.device) -> tuple[SharedAxes, SharedAxes]:
        """Those of the Keys and of the Values, the same tensors for all who ask."""
        if device not in self._placed:
            self._placed.setdefault(device, (self.keys.to(device), self.values.to(device)))
        return self._placed[device]


def of_basis(basis: Tensor, metric: tuple[Tensor, Tensor] | None) -> SharedAxes:
    """Transforms states to the coordinates of a basis that was found in a metric, and back.

    Args:
        basis: orthonormal columns [..., d, c] in the metric.
        metric: into it and back, diagonals [..., d] or matrices [..., d, d]; None where states are
            in it as they are.

    Returns:
        forward [..., d, c], rows [..., c, d] and scale [..., c].
    """
    forward, back = turned(basis, metric)
    return SharedAxes(forward, *rounded(back))


def turned(basis: Tensor, metric: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """`of_basis` before it is rounded: forward [..., d, c], and back [..., c, d]."""
    if metric is None:
        return basis, basis.mT
    into, back = metric
    if into.dim() == basis.dim():
        return into @ basis, basis.mT @ back
    return into[..., None] * basis, basis.mT * back[..., None, :]


def unit_axes(weight: Tensor) -> SharedAxes:
    """The channels as they are, weighed: their rows are one constant for all layers and requests.

    Args:
        weight: [Hkv, d] float32, positive: by how much a coordinate is larger than its channel.
    """
    forward = torch.diag_embed(weight)
    return SharedAxes(forward, unit_rows(*weight.shape, weight.device), 1 / (127 * weight))


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # a tensor for every later call
def unit_rows(heads: int, d: int, device: torch.device) -> Tensor:
    """Rows int8 [Hkv, d, d] that leave channels as they are, made once."""
    return (127 * torch.eye(d, device=device)).to(torch.int8).expand(heads, d, d).contiguous()


def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [..., c, d] as int8 [..., c, d] in units of scale [..., c]."""
    if rows.device.type == "cpu":  # a seventh of the time there, and one launch more elsewhere
        largest = rows.abs().amax(-1)
    else:
        largest = torch.linalg.vector_norm(rows, float("inf"), -1)
    scale = (largest / 127).clamp(min=1e-30)
    return (rows / scale[..., None]).round_().to(torch.int8), scale


def load_bases(path: str | os.PathLike[str], layers: int) -> list[Tensor]:
    """Eigenvectors [Hkv, d, d] of each layer.

    Raises:
        CalibrationUnusable: if the file is missing, damaged, or of another number of layers.
    """
    return _read(path, lambda opened: [opened(f"layer.{i}") for i in range(layers)], layers)


def load_axes(path: str | os.PathLike[str], layers: int) -> Sequence[LayerAxes]:
    """The axes of each layer; the same ones whenever the same file is asked for.

    Raises:
        CalibrationUnusable: as `load_bases`, and for a file that has none.
    """
    try:
        told = Path(path).stat()
    except OSError as exc:
        raise CalibrationUnusable from exc
    return _axes(str(path), layers, (told.st_mtime_ns, told.st_size))


@lru_cache(maxsize=2)
@torch.inference_mode(False)  # a tensor for every later call
def _axes(path: str, layers: int, stamp: tuple[int, int]) -> Sequence[LayerAxes]:
    """Those of a file as it was when its times and size were `stamp`."""

    def made(opened: Opened) -> list[LayerAxes]:
        digest = hashlib.blake2b(Path(path).read_bytes(), digest_size=DIGEST).hexdigest()
        sides = [
            [SharedAxes(*(opened(f"{side}.{i}.{part}") for part in SharedAxes._fields))
             for side in ("keys", "values")] for i in range(layers)
        ]  # fmt: skip
        return [LayerAxes(keys, values, digest) for keys, values in sides]

    return _read(path, made, layers)


def offered_axes(folder: str | os.PathLike[str], layers: int) -> Sequence[LayerAxes] | None:
    """The axes in `AXES` beside a model's weights, the same ones on every call; None where there is
    no such file.

    Raises:
        CalibrationUnusable: for a file that is damaged, or of another number of layers.
    """
    path = Path(folder) / AXES
    try:
        found = path.stat()
    except OSError:
        return None
    return _offered(str(path), layers, (found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=2)
@torch.inference_mode(False)  # a tensor for every later call
def _offered(path: str, layers: int, stamp: tuple[int, int]) -> Sequence[LayerAxes]:
    """Those of a file as it was when its times and size were `stamp`."""
    try:
        with safe_open(path, "pt") as file:
            if sum(name.endswith(".rows") for name in file.keys()) != 2 * layers:  # noqa: SIM118
                raise CalibrationUnusable
            sides = [
                [(file.get_tensor(f"{side}.{i}.rows"), file.get_tensor(f"{side}.{i}.scale"))
                 for side in ("keys", "values")] for i in range(layers)
            ]  # fmt: skip
        digest = hashlib.blake2b(Path(path).read_bytes(), digest_size=DIGEST).hexdigest()
    except (OSError, SafetensorError) as exc:
        raise CalibrationUnusable from exc
    found = []
    for each in sides:
        keys, values = (SharedAxes(scale.new_empty(0), rows, scale) for rows, scale in each)
        found.append(LayerAxes(keys, values, digest, offered=True))
    return found


def _read(path: str | os.PathLike[str], made: Callable[[Opened], Made], layers: int) -> Made:
    """The result of `made` for the tensors of a file of so many layers."""
    try:
        with safe_open(Path(path), "pt") as file:
            if sum(name.startswith("layer.") for name in file.keys()) != layers:  # noqa: SIM118
                raise CalibrationUnusable
            return made(file.get_tensor)
    except (OSError, SafetensorError) as exc:
        raise CalibrationUnusable from exc
