"""Which rows of one prefill every layer sees."""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rotatek.attention import causal_mask
from rotatek.errors import ModelUnsupported
from rotatek.layout import WINDOW, Layout, Rows
from rotatek.tokens.base import TokenPruner

_TOLD: Final = ("length", "visual", "visual_kept", "kept_rows")  # of a plan, after its prefill


class TokenPlan:
    """Which rows of one prefill every layer sees. Shared by all layers, and by shared prefills."""

    def __init__(self, layout: Layout, pruner: TokenPruner, layers: int) -> None:
        self.pruner = pruner
        self.layers = layers
        self.length = layout.length
        self._first = min(pruner.first_layer, layers - 1)  # the first layer with fewer rows
        self.kept_rows: Tensor | None = None  # [B, L] bool on the CPU, for display
        self._layout: Layout | None = layout
        self._rows: tuple[Rows, Rows, Rows] | None = layout.rows()
        self._source: Tensor | None = None
        self._mask: Tensor | None = None
        self.visual = int((layout.visual & layout.valid)[0].sum())
        self.visual_kept = self.visual

    def state(self) -> dict[str, Any]:
        """What `finished` makes again, when the prefill is over."""
        return {name: getattr(self, name) for name in _TOLD}

    @classmethod
    def finished(cls, pruner: TokenPruner, layers: int, state: Mapping[str, Any]) -> "TokenPlan":
        """The plan of a prefill that is over; state: of `state`."""
        nothing = torch.zeros(1, state["length"], dtype=torch.bool)
        plan = cls(Layout(nothing, nothing, WINDOW), pruner, layers)
        plan._layout = plan._rows = None
        for name in _TOLD:
            setattr(plan, name, state[name])
        return plan

    @property
    def prunes(self) -> bool:
        """Whether a decoder layer will drop rows."""
        return self.pruner.stage == "decoder" and self.pruner.kept_share < 1

    def rows(self) -> tuple[Rows, Rows, Rows]:
        """Visual, text and window rows of the layer now being filled."""
        assert self._rows is not None
        return self._rows

    def narrowing(self, layer: int) -> tuple[Tensor, Tensor | None] | None:
        """Source rows [B, L'] and mask for a layer behind the pruning, during prefill only."""
        if self._source is None or layer < self._first:
            return None
        return self._source, self._mask

    def observe(self, layer: int, query: Tensor, keys: Tensor, scale: float) -> None:
        """See one layer's prefill attention; choose rows when it is the pruner's turn.

        Args:
            layer: index from 0.
            query: [B, Hq, L, d].
            keys: [B, Hkv, L, d].
            scale: what scores are multiplied by.
        """
        if self.prunes and layer == self._first - 1:
            assert self._layout is not None
            kept = self.pruner.choose(query, keys, self._layout, scale)
            narrow, self._source = self._layout.take(kept)
            self._mask = causal_mask(narrow.valid)
            self._rows = narrow.rows()
            self.kept_rows = kept.cpu()
            self.visual_kept = int((kept & self._layout.visual)[0].sum())
        if layer == self.layers - 1:  # the prefill is over: nothing of it needs to stay
            self._layout = self._rows = self._source = self._mask = None


def layout_of(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Layout:
    """Where the visual tokens of a processor's output are.

    Raises:
        ModelUnsupported: where the model has no image token.
    """
    visual = inputs.get("visual")
    if visual is None:
        token = getattr(model.config, "image_token_id", None)
        if token is None:
            raise ModelUnsupported(f"{type(model).__name__} has no image token.")
        visual = inputs["input_ids"] == token
    mask = inputs.get("attention_mask")
    valid = torch.ones_like(visual) if mask is None else mask.bool()
    return Layout(visual.bool(), valid, WINDOW)
