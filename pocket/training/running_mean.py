"""The mean of a run's weights over its last steps, which errs less than the weights of any step.

Sources: Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992; the
horizon that grows with the run: Karras et al., "Analyzing and improving the training dynamics of
diffusion models", CVPR 2024.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class RunningMean:
    """The mean of `params` over about the last `share` of the steps so far.

    Args:
        params: What is averaged, on its device.
        share: In (0, 1]. Step s of t weighs (s / t) ** (1 / share - 1) times what step t does.
    """

    def __init__(self, params: Iterable[Tensor], share: float) -> None:
        self.params, self.share, self.steps = list(params), share, 0
        self.mean = [p.detach().clone() for p in self.params]

    @torch.no_grad()
    def add(self) -> None:
        """Count the present weights in."""
        self.steps += 1
        part = 1 / max(1.0, self.share * self.steps)
        torch._foreach_lerp_(self.mean, [p.detach() for p in self.params], part)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The parameters are their means within it."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for own, mean in zip(self.params, self.mean, strict=True):
            kept = own.clone()
            own.copy_(mean)
            mean.copy_(kept)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"steps": self.steps, "mean": self.mean}

    @torch.no_grad()
    def resume(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.steps = state["steps"]
        for own, kept in zip(self.mean, state["mean"], strict=True):
            own.copy_(kept)
