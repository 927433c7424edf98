"""Attention masks of calls, [B, tokens so far], against what a cache holds.

A prompt's mask has to be the one that the cache was made with. Behind it, zeros among new tokens
are padding, which is neither stored nor seen; text may be hidden, and is then forgotten. The rest
is refused, since a compressed cache cannot hide what it has stored together.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from rotatek.cache.prefill_layer import PrefillLayer
from rotatek.cache.token_plan import TokenPlan
from rotatek.errors import ModeUnsupported

PADDING, TEXT, VISUAL = 0, 1, 2  # a column's kind
_FORM: Final = (
    "A compressed cache takes attention masks of one number a token, [B, tokens so far]. Give such "
    "a one, or use a plain cache."
)
_PROMPT: Final = (
    "The attention mask is not the one the cache was made with. Make the cache from the inputs of "
    "the call, with their attention_mask."
)
_STORED: Final = (
    "The attention mask hides stored visual tokens, or shows tokens that were hidden before. Keep "
    "it as it was for them, or use a plain cache."
)
_WINDOW: Final = (
    "Behind a sliding window's edge the attention mask cannot hide tokens. Leave padding out, or "
    "use a plain cache."
)


def check_prompt(plan: TokenPlan, mask: Any) -> None:
    """Refuse the mask of a prompt that is not the plan's, or of another form."""
    if mask is None:
        same = bool(plan.prompt.valid.all())
    elif not isinstance(mask, Tensor) or mask.dim() != 2:
        raise ModeUnsupported(_FORM)
    else:
        valid = plan.prompt.repeated(len(mask)).valid.to(mask.device)
        same = mask.shape != valid.shape or torch.equal(mask.bool(), valid)  # `enter` checks shapes
    if not same:
        raise ModeUnsupported(_PROMPT)


def check_further(
    layers: Sequence[PrefillLayer], columns: Tensor, mask: Any, tokens: int | None
) -> tuple[Tensor, Tensor] | None:
    """Read the mask of a call of T `tokens` behind the prompt; text that it hides is forgotten.

    Args:
        layers: filled ones.
        columns: [B, n] int8, the kinds of all columns so far.

    Returns:
        None where the mask hides nothing new; or the kinds of all columns [B, n + T], and which of
        the new tokens are real, [B, T] bool. Masks that cannot be honoured are refused.
    """
    if not isinstance(mask, Tensor) or mask.dim() != 2:
        raise ModeUnsupported(_FORM)
    B, n = columns.shape
    T = mask.shape[1] - n if tokens is None else tokens
    if mask.shape != (B, n + T) or T < 1:
        raise ModeUnsupported(_FORM)
    seen, held = mask.to(columns.device).bool(), columns != PADDING
    if bool((seen == pad(held, (0, T), value=True)).all()):
        return None
    seen, real = seen[:, :n], seen[:, n:]
    lost = held & ~seen
    if bool(((seen & ~held) | (lost & (columns == VISUAL))).any()):
        raise ModeUnsupported(_STORED)
    for layer in layers:
        if layer.span is not None and layer.logical + T > layer.span.width:
            raise ModeUnsupported(_WINDOW)
    if bool(lost.any()):
        slots = (columns == TEXT).cumsum(1) - 1
        for layer in layers:
            layer.forget(lost, slots)
        columns = columns.masked_fill(lost, PADDING)
    return torch.cat([columns, real.to(columns.dtype)], 1), real
