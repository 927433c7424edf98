"""Offline bases: the paper's second mode. Average what many prefills would have found, once.

Online RotateK computes a basis at every prefill. A calibration file holds, per layer and kv head,
all eigenvectors of the query-weighted covariance averaged over samples (each of trace one, so that
no picture outweighs another); any k is a slice of them.
"""

import os
from dataclasses import dataclass, field

from safetensors.torch import save_file
from torch import Tensor

from rotatek import rotation
from rotatek.channels.base import LayerStates
from rotatek.errors import CalibrationUnusable


@dataclass
class Calibrator:
    """A recorder that averages covariances over every prefill it sees."""

    total: dict[int, Tensor] = field(default_factory=dict)  # [Hkv, d, d] a layer
    samples: int = 0

    def record(self, prefill: LayerStates) -> None:
        """Add one layer of one prefill."""
        keys = prefill.keys
        _, covariance = rotation.centred_covariance(keys, prefill.lengths)
        sigma = rotation.query_weights(prefill.queries, keys.shape[1], prefill.window_alive)
        weighted = rotation.weighted(covariance, sigma)
        trace = weighted.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        mine = (weighted / trace.clamp(min=1e-30)).sum(0).cpu()
        self.total[prefill.layer] = self.total.get(prefill.layer, 0) + mine
        self.samples += keys.shape[0] if prefill.layer == 0 else 0

    def add(self, other: "Calibrator") -> None:
        """Take in what another one saw."""
        for layer, total in other.total.items():
            self.total[layer] = self.total.get(layer, 0) + total
        self.samples += other.samples

    def step(self, layer: int, query: Tensor) -> None:
        """Nothing: bases come from prompts."""

    def save(self, path: str | os.PathLike[str], model: str) -> None:
        """Write the eigenvectors, most important first, as float32 safetensors.

        Raises:
            CalibrationUnusable: when nothing was recorded.
        """
        if not self.samples:
            raise CalibrationUnusable("Nothing was calibrated: there was no image to look at.")
        bases = {
            f"layer.{layer}": rotation.full_basis(total / self.samples)[0]
            for layer, total in sorted(self.total.items())
        }
        save_file(bases, path, {"model": model, "samples": str(self.samples)})
