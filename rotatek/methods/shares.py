"""Shares as integers: how many channels and tokens stay."""


def channels_kept(width: int, keep: float) -> int:
    """Channels that stay of `width`: at least one, the nearest integer."""
    return max(1, min(width, round(width * keep)))


def tokens_kept(tokens: int, keep: float) -> int:
    """Visual tokens that stay of `tokens`: at least one unless there are none."""
    return min(tokens, max(1, round(tokens * keep))) if tokens else 0
