"""Offline bases: the paper's second mode. Averages the bases of many prefills, once.

A file has, per layer and Key head, all eigenvectors of the query-weighted covariance averaged over
samples (each of trace one, so that no picture outweighs another); any k is a slice of them. The
rotations of `oscar` are beside them.
"""

import os
from dataclasses import dataclass, field

from safetensors.torch import save_file
from torch import Tensor

from rotatek.errors import CalibrationUnusable
from rotatek.methods import rotation
from rotatek.methods.channels import oscar
from rotatek.methods.channels.base import LayerStates


@dataclass
class Calibrator:
    """A recorder that averages covariances over every prefill it sees."""

    total: dict[int, Tensor] = field(default_factory=dict)  # sums by layer
    oscar: dict[int, Tensor] = field(default_factory=dict)  # of its two moments, by layer
    samples: int = 0

    def record(self, prefill: LayerStates) -> None:
        keys, layer = prefill.keys, prefill.layer
        _, covariance = rotation.centred_covariance(keys, prefill.lengths)
        sigma = rotation.query_weights(prefill.queries, keys.shape[1], prefill.window_alive)
        weighted = rotation.weighted(covariance, sigma)
        trace = weighted.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None].clamp(min=1e-30)
        self.total[layer] = self.total.get(layer, 0) + (weighted / trace).float().sum(0).cpu()
        own = oscar.moments(prefill).cpu()
        own = own / own.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None].clamp(min=1e-30)
        self.oscar[layer] = self.oscar.get(layer, 0) + own.sum(0)
        self.samples += keys.shape[0] if layer == 0 else 0

    def save(self, path: str | os.PathLike[str], model: str) -> None:
        """Write the eigenvectors, most important first, as float32 safetensors, with the model's
        name; `CalibrationUnusable` when nothing was recorded."""
        if not self.samples:
            raise CalibrationUnusable("Nothing was calibrated: there was no image to read.")
        means = {layer: total / self.samples for layer, total in self.total.items()}
        found = {f"layer.{i}": rotation.full_basis(mean)[0] for i, mean in means.items()}
        found |= {
            f"oscar.{i}": oscar.rotation_of(total)
            for i, total in self.oscar.items()
            if total.shape[-1].bit_count() == 1  # widths that have a Hadamard matrix
        }
        save_file(found, path, {"model": model, "samples": str(self.samples)})
