"""The queries of an answer's tokens: every token's; of a longer answer every second, fourth..."""

from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

MAX_STEPS: Final = 64  # tokens with recorded queries, beside a prompt's last row


@dataclass
class AnswerRows:
    """Recorded query rows.

    Attributes:
        steps: numbers of the recorded tokens; 0 is the one that the prompt's last row chose.
        rows: by layer, float16 [Hq, d] of each of them.
        token: the number of the latest token.
        stride: between recorded tokens.
    """

    steps: list[int] = field(default_factory=list)
    rows: dict[int, list[Tensor]] = field(default_factory=dict)
    token: int = 0
    stride: int = 1

    def begin(self) -> None:
        """The next token; where it would be one too many, every second one is dropped."""
        self.token += 1
        if self.token == (MAX_STEPS + 1) * self.stride:
            self.stride *= 2
            keep = [i for i, step in enumerate(self.steps) if step % self.stride == 0]
            self.rows = {layer: [rows[i] for i in keep] for layer, rows in self.rows.items()}
            self.steps = [self.steps[i] for i in keep]
        if self.token % self.stride == 0:
            self.steps.append(self.token)

    def add(self, layer: int, query: Tensor) -> None:
        """One attention call, query [B, Hq, T, d], if its token is recorded."""
        if self.steps and self.steps[-1] == self.token:
            row = query[0, :, -1].to(torch.float16, copy=True)
            self.rows.setdefault(layer, []).append(row)
