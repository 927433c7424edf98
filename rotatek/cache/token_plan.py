"""Which rows of one prefill every layer sees."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from rotatek.bridge.row_layout import (
    NOWHERE,
    WINDOW,
    Layout,
    Narrowing,
    Rows,
    narrow_mask,
    rows_mask,
    seen_by,
    take_rows,
)
from rotatek.cache.sliding_window import WindowView, window_view_of
from rotatek.errors import ModelUnsupported, ModeUnsupported, SettingError, UserError
from rotatek.methods.options import tokens_kept
from rotatek.methods.tokens.base import Attended, TokenPruner

_TOLD: Final = ("length", "visual", "visual_kept", "kept_rows")  # of a plan, after its prefill


class TokenPlan:
    """Which rows of one prefill every layer sees. Shared by all layers, and by shared prefills.

    layers: of the model, those that attend. A pruner counts these alone: rows that it drops behind
    one of them are dropped for the layers with a state that follow, too, which never read them.

    Attributes:
        prompt: the layout that it was made of.
        length: L; logical: of them, what counts as read once the prefill is over.
        visual, visual_kept: visual tokens of the first sample, and those of the last layers.
        kept_rows: [B, L] bool on the CPU, where rows were dropped: for display.
    """

    def __init__(self, layout: Layout, pruner: TokenPruner, layers: int) -> None:
        self.pruner, self.layers = pruner, layers
        self.prompt = replace(layout)  # without what the prefill works out on it
        self.length = self.logical = layout.length
        if layout.aside is not None:
            self.logical -= int(layout.aside[0].sum())
        self.kept_rows: Tensor | None = None
        self._stages = pruner.stages(layers) if self.prunes else {}
        self._begin(layout)
        self._choice: Tensor | None = None
        self._source: Tensor | None = None
        self._views: dict[int, WindowView] = {}  # of the rows that are left, by the window's width
        self._masks: dict[tuple, Tensor | None] = {}  # of those rows, by the mask of all
        self._lent: dict[int, tuple[Tensor, Tensor]] = {}  # see `borrow`
        self.visual = int(layout.rows[0].lengths[0])
        self.visual_kept = self.visual
        if pruner.stage == "cache":  # each head's own, of those that all layers compute
            self.visual_kept = tokens_kept(self.visual, pruner.kept_share)

    def _begin(self, layout: Layout) -> None:
        """Before any row is dropped."""
        self._layout: Layout | None = layout
        self._all: Layout | None = layout
        counts = layout.rows[0].lengths  # before any layer is queued
        self._whole = counts.tolist() if self.prunes else []

    def state(self) -> dict[str, Any]:
        """The argument of `finished` that restores this plan after the prefill."""
        return {name: getattr(self, name) for name in _TOLD}

    @classmethod
    def finished(cls, pruner: TokenPruner, layers: int, state: Mapping[str, Any]) -> "TokenPlan":
        """The plan of a prefill that is over; state: of `state`."""
        nothing = torch.zeros(1, state["length"], dtype=torch.bool)
        plan = cls(Layout(nothing, nothing, WINDOW), pruner, layers)
        plan.end()
        for name in _TOLD:
            setattr(plan, name, state[name])
        return plan

    def tensors(self) -> Iterator[Tensor]:
        """What stays when the prefill is over: which rows were visual, padding, or kept."""
        told = self.prompt.visual, self.prompt.valid, self.prompt.aside, self.kept_rows
        return (tensor for tensor in told if tensor is not None)

    @property
    def prunes(self) -> bool:
        """Whether a decoder layer will drop rows."""
        return self.pruner.stage == "decoder" and self.pruner.kept_share < 1

    @property
    def is_open(self) -> bool:
        """Whether its prefill is still to come, or runs."""
        return self._layout is not None

    def rows(self) -> tuple[Rows, Rows, Rows]:
        """Visual, text and window rows of the layer now being filled."""
        assert self._layout is not None
        return self._layout.rows

    def read_text(self) -> Rows | None:
        """Text rows that the layer's window sees, where some of them are then forgotten."""
        assert self._layout is not None
        return None if self._layout.aside is None else self._layout.read_text

    def window_view(self, width: int) -> WindowView:
        """The tokens inside a window of `width`, in the layer now being filled: rows of the prompt,
        and of its visual rows."""
        if width not in self._views:
            assert self._layout is not None and self._all is not None
            visual, places = self.rows()[0], self._all.valid.cumsum(1) - 1  # among all tokens
            places = places if self._source is None else places.gather(1, self._source)
            places = places.masked_fill(~self._layout.stays, NOWHERE).int()
            text, count = places.masked_fill(self._layout.visual, NOWHERE), self._all.stays.sum(1)
            seen = places.gather(1, visual.index).masked_fill(~visual.alive, NOWHERE)
            self._views[width] = window_view_of(width, text, seen, count.int())
        return self._views[width]

    def is_of(self, visual: Tensor) -> bool:
        """Whether `visual` [B, L] bool may be its prompt's marks: `enter` refuses others in
        number."""
        own = self.prompt.repeated(len(visual)).to(visual.device)
        same = visual.shape != own.visual.shape
        return same or torch.equal(visual & own.valid, own.visual & own.valid)

    def enter(
        self,
        layer: int,
        hidden: Tensor,
        mask: Any = None,
        window: int | None = None,
        attends: bool = True,
    ) -> Narrowing | None:
        """The remaining rows of layer `layer`, counted from 0 among all of the model, during
        prefill only; None where none was dropped.

        Args:
            hidden: [B, L', hidden], the previous layer's output.
            mask: the model's own mask of all rows, where it has one; layers may differ in theirs.
            window: most tokens that a row of this layer attends to, where it has a window.
            attends: or keeps a state, whose mask says which rows are no padding, [B, L'].

        Raises:
            ModeUnsupported: for rows other than all those of the prompt.
        """
        if self._layout is None:
            return None
        if layer == 0:
            if hidden.shape[1] != self.length or len(hidden) % len(self._layout.visual):
                raise another_prompt()
            if len(hidden) > len(self._layout.visual):
                self._begin(self._layout.repeated(len(hidden)))
        if self._choice is not None:
            hidden = self._narrow(self._choice, hidden)
            self._choice = None
        valid, source = self._layout.valid, self._source
        if source is None:
            if self.prunes:
                every = torch.arange(self.length, device=valid.device)
                self._lent[layer] = every.expand_as(valid), valid
            return None
        self._lent[layer] = source, valid
        if not attends:
            valid = valid.to(hidden.device)
            return Narrowing(hidden, source, None if bool(valid.all()) else valid)
        kind = id(mask), window  # the caller holds its mask as long as the prefill runs
        if kind not in self._masks:
            self._masks[kind] = narrow_mask(seen_by(mask, self.length), source, valid, window)
        return Narrowing(hidden, source, self._masks[kind])

    def borrow(self, lender: int, hidden: Tensor, window: int | None = None) -> Narrowing | None:
        """As `enter`, of a layer behind all those with a cache, which sees the rows of `lender`."""
        if not self._lent:
            return None
        (source, _), (seen, valid) = self._lent[max(self._lent)], self._lent[lender]
        rows = source[:, -hidden.shape[1] :]
        mask = rows_mask(rows, seen, valid, window).to(hidden.device)
        is_sliced = hidden.shape[1] < source.shape[1]
        return Narrowing(hidden, None if is_sliced else source, mask)

    def _narrow(self, choice: Tensor, hidden: Tensor) -> Tensor:
        """Drop the rows that were not chosen: the remaining hidden rows."""
        assert self._layout is not None
        kept = choice.to(self._layout.valid.device)
        self._layout, source = self._layout.take(kept)
        self.visual_kept = int(self._layout.rows[0].lengths[0])
        self._masks.clear()
        self._views.clear()
        hidden = take_rows(hidden, source)
        self._source = source if self._source is None else self._source.gather(1, source)
        whole = torch.zeros(len(source), self.length, dtype=torch.bool, device=source.device)
        self.kept_rows = whole.scatter_(1, self._source, self._layout.valid).cpu()
        return hidden

    def observe(self, layer: int, query: Tensor, keys: Tensor, scale: float) -> None:
        """See one layer's prefill attention, counted from 0 among those that attend; choose rows
        when it is the pruner's turn. query [B, Hq, L', d]; keys [B, Hkv, L', d]."""
        share = self._stages.get(layer + 1)
        if share is not None and self._layout is not None:
            counts = [tokens_kept(n, share) for n in self._whole]
            keep = torch.tensor(counts, device=query.device)
            layout = self._layout.to(query.device)
            self._choice = self.pruner.choose(Attended(query, keys, layout, scale, keep))

    def end(self) -> None:
        """Let go of what the prefill needed: it is over."""
        self._layout = self._all = self._source = None
        self._masks.clear()
        self._views.clear()
        self._lent.clear()


def visual_ids(config: PreTrainedConfig) -> tuple[int, ...]:
    """Ids of visual tokens in a model's prompts: of images, then of clips."""
    found = (getattr(config, name, None) for name in ("image_token_id", "video_token_id"))
    return tuple(dict.fromkeys(int(token) for token in found if token is not None))


def is_one_of(ids: Tensor, tokens: tuple[int, ...]) -> Tensor:
    """Bool of ids' shape: which of them are among `tokens`."""
    return torch.isin(ids, torch.tensor(tokens, dtype=ids.dtype, device=ids.device))


def another_prompt() -> UserError:
    """The refusal of rows for which a plan was not made."""
    return ModeUnsupported(
        "The prompt must be processed in one piece, and be the one the cache was made for."
    )


def layout_of(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Layout:
    """The positions of visual tokens in a processor's output.

    Raises:
        ModelUnsupported: where the model has no image token. Use a vision-language model.
        SettingError: for inputs of another form.
    """
    known = isinstance(inputs, Mapping)
    visual = inputs.get("visual") if known else None
    marks = inputs.get("input_ids") if known and visual is None else visual
    mask = inputs.get("attention_mask") if known else None
    if not isinstance(marks, Tensor) or marks.dim() != 2:
        allowed = "the processor's output, with input_ids or visual as a tensor [B, L]"
        raise SettingError("inputs", allowed, sorted(inputs) if known else type(inputs).__name__)
    if mask is not None and (not isinstance(mask, Tensor) or mask.shape != marks.shape):
        found = f"one of {list(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        raise SettingError("inputs", f"given with an attention_mask {list(marks.shape)}", found)
    if visual is None:
        tokens = visual_ids(model.config)
        if not tokens:
            raise ModelUnsupported(
                f"{type(model).__name__} has no image token. Use a vision-language model."
            )
        visual = is_one_of(inputs["input_ids"], tokens)
    valid = torch.ones_like(visual) if mask is None else mask.bool()
    return Layout(visual.bool(), valid, WINDOW)
