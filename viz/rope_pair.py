"""A pair of channels from token to token: how rotary position encoding turns Keys."""

import numpy as np

from .theme import ACCENT, SECOND, Drawing, compose

HEIGHT = 380


def liveliest_pair(keys: np.ndarray) -> int:
    """The channel j < d / 2 whose pair (j, j + d / 2) varies most between tokens.

    Args:
        keys: Keys after RoPE, float [n, d]; RoPE turns channel j together with j + d / 2.
    """
    spread = np.asarray(keys, dtype=np.float64).var(axis=0)
    half = len(spread) // 2
    return int(np.argmax(spread[:half] + spread[half:]))


def draw(keys: np.ndarray, columns: int) -> Drawing:
    """Both channels of the liveliest pair, token by token.

    Args:
        keys: Keys after RoPE, float [n, d], in reading order.
        columns: visual tokens in a row of the image.
    """
    n, d = keys.shape
    first = liveliest_pair(keys)
    pair = (first, first + d // 2)
    traces = [
        {
            "type": "scatter", "mode": "lines", "name": f"channel {channel}",
            "y": np.asarray(keys[:, channel], dtype=np.float32),
            "line": {"color": fill, "width": 2}, "hovertemplate": "token %{x}: %{y:.2f}",
        }
        for channel, fill in zip(pair, (ACCENT, SECOND), strict=True)
    ]  # fmt: skip
    figure = compose(
        traces,
        HEIGHT,
        x={"title": "visual token", "range": [0, n - 1], "showgrid": False, "nticks": 7},
        y={"title": "K", "nticks": 6},
        legend=True,
        hovermode="x unified",
    )
    means = " and ".join(f"{float(keys[:, channel].mean()):.1f}" for channel in pair)
    spread = " and ".join(f"{float(keys[:, channel].std()):.1f}" for channel in pair)
    return Drawing(
        figure,
        f"The position of a token turns channels {pair[0]} and {pair[1]} together, so their values "
        f"swing along the rows of {columns} tokens.",
        f"Line chart of channels {pair[0]} and {pair[1]} over {n} visual tokens: mean {means}, "
        f"standard deviation {spread}.",
    )
