"""How close a column stays to the uncompressed one, token by token, as a small strip."""

import math
from html import escape

from rotatek.compare.columns import UNCOMPRESSED
from rotatek.compare.report import Column
from viz.theme import percent

BARS = 160  # at most; longer answers share bars
HEIGHT, FLOOR = 26, 3
LOUD = 3.0  # nats drawn at full height


def strip(column: Column) -> str:
    """One bar a token: its height is the logit KL, its colour whether the token is the baseline's.

    Nothing for the baseline itself, or before the first token.
    """
    if column.title == UNCOMPRESSED or not column.same:
        return ""
    bars = _bars(column)
    drawn = "".join(
        f'<rect x="{4 * i}" y="{HEIGHT - h:.1f}" width="3" height="{h:.1f}" '
        f'class="{"same" if same else "other"}"/>'
        for i, (h, same) in enumerate(bars)
    )
    words = escape(reading(column), quote=True)
    return (
        f'<div class="rk-steps"><svg viewBox="0 0 {4 * max(len(bars), 40)} {HEIGHT}" role="img" '
        f'preserveAspectRatio="none" aria-label="{words}">{drawn}</svg><p>{words}</p></div>'
    )


def reading(column: Column) -> str:
    """`same token in 87 % of places; logit KL 0.012 nats a token, 0.34 at most`."""
    parts = [f"same token in {percent(sum(column.same) / max(len(column.same), 1))} of places"]
    known = [kl for kl in column.kl if kl is not None]
    if known:
        mean, worst = sum(known) / len(known), max(known)
        until = " until they part" if len(known) < len(column.kl) else ""
        parts.append(f"logit KL {_nats(mean)} nats a token{until}, {_nats(worst)} at most")
    return "; ".join(parts)


def fidelity(column: Column) -> float | None:
    """Share of tokens that are the uncompressed ones, each weighed by e^-KL where it is known.

    In [0, 1]; None before the first token.
    """
    if not column.same:
        return None
    weights = (1.0 if kl is None else math.exp(-kl) for kl in column.kl)
    return sum(w for w, same in zip(weights, column.same, strict=True) if same) / len(column.same)


def _nats(kl: float) -> str:
    """Two digits, and no more of them than can be read."""
    return f"{kl:.2g}" if kl >= 1e-3 else "below 0.001"


def _bars(column: Column) -> list[tuple[float, bool]]:
    """(height, all the same) of each bar."""
    step = max(1, math.ceil(len(column.same) / BARS))
    bars = []
    for at in range(0, len(column.same), step):
        known = [kl for kl in column.kl[at : at + step] if kl is not None]
        bars.append((_height(max(known, default=0.0)), all(column.same[at : at + step])))
    return bars


def _height(kl: float) -> float:
    """Logarithmic between a thousandth of a nat and `LOUD`."""
    share = math.log1p(1e3 * kl) / math.log1p(1e3 * LOUD)
    return FLOOR + (HEIGHT - FLOOR) * min(1.0, share)
