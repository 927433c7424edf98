"""The remaining rows and mask of a layer after rows were dropped before it."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_mask


class Narrowing(NamedTuple):
    """A layer's input where rows were dropped before it.

    hidden: [B, n, c]; source: [B, n] the prompt's row that each of them was, None where the layer's
    other inputs have these rows already; mask: or None.
    """

    hidden: Tensor
    source: Tensor | None
    mask: Tensor | None


def take_rows(states: Tensor, source: Tensor) -> Tensor:
    """Rows `source` [B, n] of states [B or 1, L, c]."""
    source = source.to(states.device)
    states = states.expand(source.shape[0], -1, -1)
    return states.gather(1, source[..., None].expand(-1, -1, states.shape[-1]))


def seen_by(mask: Any, rows: int) -> Tensor | None:
    """A model's own mask as bool [B or 1, 1, rows, n], for any of its attention functions.

    Args:
        mask: bool, or added to scores, or flex attention's; not one of tokens alone.
        rows: their number.

    Returns:
        None where it is causal.
    """
    if isinstance(mask, BlockMask):
        B, _, _, n = mask.shape
        device = mask.kv_num_blocks.device
        return create_mask(mask.mask_mod, B, None, rows, n, device=device)
    if not isinstance(mask, Tensor) or mask.dim() != 4:
        return None
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def narrow_mask(
    whole: Tensor | None, source: Tensor, valid: Tensor, window: int | None = None
) -> Tensor | None:
    """The mask of those rows that are left.

    Args:
        whole: the model's own mask [B or 1, 1, L, L] of all rows, bool; None where it is causal.
        source: [B, n] the remaining rows.
        valid: [B, n] which of them are no padding.
        window: most tokens that a row attends to, where `whole` does not include it.

    Returns:
        [B, 1, n, n] bool, or None where it is causal.
    """
    if whole is None:
        mask = causal_mask(valid)
        if window is None or source.numel() == 0 or int(source.max()) < window:
            return mask
        if mask is None:
            mask = torch.ones_like(valid)[:, None, None] & _triangle(valid)
        return mask & (source[:, :, None] - source[:, None] < window)[:, None].to(mask.device)
    count, source = source.shape[1], source.to(whole.device)
    rows = source[:, None, :, None].expand(-1, -1, -1, whole.shape[-1])
    left = whole.expand(source.shape[0], -1, -1, -1).gather(2, rows)
    left = left.gather(3, source[:, None, None].expand(-1, -1, count, -1))
    own = torch.eye(count, dtype=torch.bool, device=left.device)  # see `causal_mask`
    return (left & valid.to(left.device)[:, None, None]) | own


def rows_mask(rows: Tensor, source: Tensor, valid: Tensor, window: int | None) -> Tensor:
    """Which rows of an earlier layer some rows of a later one see, bool [B, 1, T, n].

    Args:
        rows: [B, T] numbers in the prompt.
        source: [B, n] those of the earlier layer's rows.
        valid: [B, n] which of them are no padding.
        window: most tokens that a row attends to.
    """
    back = rows[:, :, None] - source[:, None]
    seen = (back >= 0) & valid[:, None]
    if window is not None:
        seen &= back < window
    return (seen | (back == 0))[:, None]  # see `causal_mask`


def causal_mask(valid: Tensor) -> Tensor | None:
    """Bool mask [B, 1, L, L] for rows of which `valid` [B, L] are real; None if all are."""
    if bool(valid.all()):
        return None
    mask = _triangle(valid) & valid[:, None, None, :]
    # A padding row sees itself, or its softmax would be NaN.
    return mask | torch.eye(valid.shape[1], dtype=torch.bool, device=valid.device)


def _triangle(valid: Tensor) -> Tensor:
    length = valid.shape[1]
    return torch.ones(length, length, dtype=torch.bool, device=valid.device).tril()
