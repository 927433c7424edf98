"""Chooses the attention that runs: Triton where it can, the reference everywhere else."""

from torch import Tensor

from kernels.reference import Text, Visual, attend_reference


def attend(q: Tensor, visual: Visual | None, text: Text, scale: float) -> Tensor:
    """Decode attention; see `kernels.reference.attend_reference` for shapes."""
    return attend_reference(q, visual, text, scale)


def backend(device_type: str) -> str:
    """The attention in use on a device type: "triton" or "reference"."""
    return "reference"
