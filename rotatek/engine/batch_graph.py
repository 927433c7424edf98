"""One step of a running batch as a CUDA graph, replayed for as long as its tensors stay."""

import torch
from torch import Tensor

from rotatek.cache.step_graph import captured_again
from rotatek.engine.batch import RunningBatch
from rotatek.engine.decode import forward_one
from rotatek.models import VisionLanguageModel


class BatchGraph:
    """A captured step over all rows that a frozen batch has room for, which has run once already.

    Rows join and leave without another capture, as long as the batch does not move.
    """

    def __init__(self, vlm: VisionLanguageModel, batch: RunningBatch) -> None:
        self.vlm, self.batch, self.moved = vlm, batch, batch.moved
        rows = len(batch.order)
        self.tokens = torch.zeros(rows, dtype=torch.long, device=vlm.device)
        self.position = torch.zeros(rows, dtype=torch.long, device=vlm.device)
        self.graph = captured_again(vlm.device, batch, self._forward)

    def _forward(self) -> None:
        self.logits = forward_one(self.vlm, self.tokens, self.position, self.batch, None)

    @property
    def fits(self) -> bool:
        """Whether the batch is where it was."""
        return self.moved == self.batch.moved and len(self.tokens) == len(self.batch.order)

    @torch.inference_mode()
    def __call__(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Next-token logits [rows, vocabulary], good until the next call; nothing is waited for."""
        self.tokens.copy_(tokens)
        self.position.copy_(position)
        self.graph.replay()
        self.batch.advance()
        return self.logits
