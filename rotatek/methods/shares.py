"""Shares as integers: how many channels and tokens stay, and which share meets a budget."""


def channels_kept(width: int, keep: float) -> int:
    """Channels that stay of `width`: at least one, the nearest integer."""
    return max(1, min(width, round(width * keep)))


def tokens_kept(tokens: int, keep: float) -> int:
    """Visual tokens that stay of `tokens`: at least one unless there are none."""
    return min(tokens, max(1, round(tokens * keep))) if tokens else 0


def matched_keep_tokens(nominal: float, channel_share: float) -> float:
    """Token share that meets a nominal budget where the channels keep `channel_share`, at most 1.

    Args:
        nominal: share of the visual cache, in (0, 1].
        channel_share: nominal share of Keys and Values that the channel method keeps.
    """
    return min(1.0, nominal / channel_share)


def full_kv_bytes(layers: int, kv_heads: int, width: int, tokens: int, itemsize: int) -> int:
    """Bytes of an uncompressed cache: Keys and Values of every token in every layer."""
    return 2 * layers * kv_heads * width * tokens * itemsize
