"""Offline bases: the paper's second mode. Averages the bases of many prefills, once.

Online RotateK computes a basis at every prefill. A calibration file has, per layer and Key head,
all eigenvectors of the query-weighted covariance averaged over samples (each of trace one, so that
no picture outweighs another); any k is a slice of them. It also has the axes for bits: of Keys
in the metric of the logits, averaged too, and of Values in the output projection's.
"""

import os
from dataclasses import dataclass, field
from typing import Final

from safetensors.torch import save_file
from torch import Tensor

from rotatek.errors import CalibrationUnusable
from rotatek.methods import rotation
from rotatek.methods.channels.base import LayerStates
from rotatek.methods.channels.batched_rotation import LayerGroup
from rotatek.methods.channels.bit_bases import MomentStats, in_metric
from rotatek.methods.channels.mixed_precision import moments
from rotatek.methods.rotation.stored_bases import of_basis
from rotatek.methods.settings import Settings

PREFILL: Final = Settings.of(bits=16)  # of a calibration prompt: it measures all that bits need


@dataclass
class Calibrator:
    """A recorder that averages covariances over every prefill it sees."""

    total: dict[str, Tensor] = field(default_factory=dict)  # sums by statistic and layer
    metrics: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)  # of the Values
    samples: int = 0

    def record(self, prefill: LayerStates) -> None:
        """Add one layer of one prefill."""
        keys, layer = prefill.keys, prefill.layer
        _, covariance = rotation.centred_covariance(keys, prefill.lengths)
        sigma = rotation.query_weights(prefill.queries, keys.shape[1], prefill.window_alive)
        weighted = rotation.weighted(covariance, sigma)
        self._sum(f"layer.{layer}", weighted / _trace(weighted))
        sides = moments(LayerGroup([prefill]))
        for name, side in zip(("keys", "values"), sides, strict=True):
            self._sum(f"{name}.{layer}", side.covariance / _trace(in_metric(side)))
        if sides[0].metric is not None:
            self._sum(f"weights.{layer}", sides[0].metric[0].square())
        if prefill.value_metric is not None:
            into, back = prefill.value_metric
            self.metrics[layer] = into.cpu(), back.cpu()
        self.samples += keys.shape[0] if layer == 0 else 0

    def _sum(self, name: str, each: Tensor) -> None:
        """Add samples [B, ...] to a total."""
        self.total[name] = self.total.get(name, 0) + each.float().sum(0).cpu()

    def step(self, layer: int, query: Tensor) -> None:
        """Nothing: bases come from prompts."""

    def save(self, path: str | os.PathLike[str], model: str, rows: int | None = None) -> None:
        """Write the eigenvectors, most important first, as float32 safetensors, and the axes.

        Args:
            path: of the file.
            model: its name.
            rows: given, the file has the int8 rows of so many axes a head and nothing else, as
                `smaller` reads them beside a model's weights.

        Raises:
            CalibrationUnusable: when nothing was recorded.
        """
        if not self.samples:
            raise CalibrationUnusable("Nothing was calibrated: there was no image to read.")
        found: dict[str, Tensor] = {}
        layers = [name for name in self.total if name.startswith("layer.")]
        for layer in range(len(layers)):
            mean = self.total[f"layer.{layer}"] / self.samples
            found[f"layer.{layer}"] = rotation.full_basis(mean)[0]
            weights = (self.total[f"weights.{layer}"] / self.samples).sqrt()
            metrics = {"keys": (weights, 1 / weights), "values": self.metrics.get(layer)}
            for name, metric in metrics.items():
                side = MomentStats(weights, self.total[f"{name}.{layer}"], metric, weights)
                axes = of_basis(rotation.full_basis(in_metric(side))[0], metric)
                parts = axes._asdict().items()
                found |= {f"{name}.{layer}.{part}": each.contiguous() for part, each in parts}
        if rows is not None:
            kept = {n: each for n, each in found.items() if n.endswith((".rows", ".scale"))}
            found = {name: each[:, :rows].contiguous() for name, each in kept.items()}
        save_file(found, path, {"model": model, "samples": str(self.samples)})


def _trace(covariance: Tensor) -> Tensor:
    """[..., 1, 1], never zero."""
    return covariance.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None].clamp(min=1e-30)
