"""The bits of every rotated channel of one head: what each direction's energy has earned."""

import numpy as np

from .theme import ACCENT, Drawing, compose, faded

HEIGHT = 320


def draw(bits: np.ndarray) -> Drawing:
    """Steps, one a direction.

    Args:
        bits: of a number of each channel, by falling energy, whole numbers [d].
    """
    bits = np.asarray(bits, dtype=np.int64)
    d, used = len(bits), int((bits > 0).sum())
    mean, deepest = float(bits.mean()), int(bits.max(initial=0))
    edges = np.arange(d + 1) + 0.5  # one step a direction, as in the spectrum
    trace = {
        "type": "scatter", "mode": "lines", "name": "bits", "fill": "tozeroy",
        "fillcolor": faded(ACCENT, 0.55), "line": {"shape": "hv", "width": 2, "color": ACCENT},
        "x": edges, "y": np.append(bits, bits[-1:]),
        "customdata": np.append(np.arange(1, d + 1), d),
        "hovertemplate": "direction %{customdata}: %{y} bits<extra></extra>",
    }  # fmt: skip
    figure = compose(
        [trace],
        HEIGHT,
        x={"title": "direction, by eigenvalue", "showgrid": False, "range": [0, d + 1]},
        y={
            "title": "bits a number",
            "range": [0, 1.08 * max(deepest, 2)],
            "dtick": max(2, deepest // 4),
        },
        left=52,
    )
    return Drawing(
        figure,
        f"Of {d} directions {used} get bits here, {deepest} at most; over all of them that is "
        f"{mean:.2g} {'bit' if mean == 1 else 'bits'} a number.",
        f"Chart of the bits of {d} channels by falling eigenvalue. {_runs(bits)} The mean over all "
        f"channels is {mean:.2g}.",
    )


def _runs(bits: np.ndarray) -> str:
    """The number of channels of each depth, in words."""
    depths, counts = np.unique(bits, return_counts=True)
    pairs = sorted(zip(depths.tolist(), counts.tolist(), strict=True), reverse=True)
    return " ".join(f"{count} have {depth} bits." for depth, count in pairs)
