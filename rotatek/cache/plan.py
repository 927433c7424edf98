"""Which rows of one prefill every layer sees."""

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from rotatek.attention import narrow_mask
from rotatek.errors import ModelUnsupported
from rotatek.layout import WINDOW, Layout, Rows
from rotatek.tokens.base import TokenPruner


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
        self._valid: Tensor | None = None  # [B, L'] bool, of the rows that are left
        self._masks: dict[int, Tensor | None] = {}  # of those rows, by the mask of all
        self.additions: tuple[Tensor, tuple[Tensor, ...]] | None = None  # see `addition`
        self.visual = int((layout.visual & layout.valid)[0].sum())
        self.visual_kept = self.visual

    @property
    def prunes(self) -> bool:
        """Whether a decoder layer will drop rows."""
        return self.pruner.stage == "decoder" and self.pruner.kept_share < 1

    def rows(self) -> tuple[Rows, Rows, Rows]:
        """Visual, text and window rows of the layer now being filled."""
        assert self._rows is not None
        return self._rows

    def narrowing(
        self, layer: int, whole: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None] | None:
        """Source rows [B, L'] and mask for a layer behind the pruning, during prefill only.

        Args:
            layer: index from 0.
            whole: the model's own mask of all rows, where it has one; layers may differ in theirs.
        """
        if self._source is None or self._valid is None or layer < self._first:
            return None
        if id(whole) not in self._masks:  # the caller holds `whole` as long as the prefill runs
            self._masks[id(whole)] = narrow_mask(whole, self._source, self._valid)
        return self._source, self._masks[id(whole)]

    def addition(self, layer: int) -> Tensor | None:
        """What is added behind a layer, [B, L or L', hidden]; `additions`: visual rows [B, L] bool,
        and for each of the first layers what they get, [visual rows, hidden]."""
        if self.additions is None:
            return None
        visual, added = self.additions
        if layer >= len(added):
            self.additions = None
            return None
        dense = added[layer].new_zeros(*visual.shape, added[layer].shape[-1])
        dense[visual] = added[layer]
        if self._source is None or layer < self._first:
            return dense
        source = self._source.to(dense.device)
        return dense.gather(1, source[..., None].expand(-1, -1, dense.shape[-1]))

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
            self._valid = narrow.valid
            self._rows = narrow.rows()
            self.kept_rows = kept.cpu()
            self.visual_kept = int((kept & self._layout.visual)[0].sum())
        if layer == self.layers - 1:  # the prefill is over: nothing of it needs to stay
            self._layout = self._rows = self._source = self._valid = None
            self._masks.clear()


def visual_ids(config: PreTrainedConfig) -> tuple[int, ...]:
    """Ids that stand for visual tokens in a model's prompts: of images, then of clips."""
    found = (getattr(config, name, None) for name in ("image_token_id", "video_token_id"))
    return tuple(dict.fromkeys(int(token) for token in found if token is not None))


def layout_of(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Layout:
    """Where the visual tokens of a processor's output are.

    Raises:
        ModelUnsupported: where the model has no image token.
    """
    visual = inputs.get("visual")
    if visual is None:
        tokens = visual_ids(model.config)
        if not tokens:
            raise ModelUnsupported(f"{type(model).__name__} has no image token.")
        ids = inputs["input_ids"]
        visual = torch.isin(ids, torch.tensor(tokens, device=ids.device))
    mask = inputs.get("attention_mask")
    valid = torch.ones_like(visual) if mask is None else mask.bool()
    return Layout(visual.bool(), valid, WINDOW)
