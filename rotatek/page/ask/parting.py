"""Where an answer leaves the uncompressed one, and how close it stays until then."""

import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from rotatek.engine.column import Column
from rotatek.engine.events import Likely
from viz.theme import percent

BEFORE: Final = 2  # steps that are shown before the one where answers part
END: Final = "the end"


class Place(NamedTuple):
    """A token of an answer, from 0: where it parts from another, or where the call was closest."""

    at: int
    parts: bool


def place(column: Column, reference: Column) -> Place | None:
    """Where a finished answer parts from the reference's; where it does not, the token whose
    probability was nearest to another one's. None where probabilities are not known."""
    if column.diverged_at is not None:
        return Place(column.diverged_at, True)
    if len(column.pieces) < len(reference.pieces):
        return Place(len(column.pieces), True)
    margins = [math.exp(own[0].logprob) - _rival(own) for own in column.likely if len(own) > 1]
    if not margins:
        return None
    return Place(min(range(len(margins)), key=margins.__getitem__), False)


def _rival(likely: Sequence[Likely]) -> float:
    """The probability of the likeliest other token; likely: the chosen one, then the likeliest."""
    chosen, *best = likely
    return max((math.exp(one.logprob) for one in best if one.code != chosen.code), default=0.0)


def parting(column: Column, reference: Column) -> str:
    """One line as HTML, and behind it the likeliest tokens of both at that step and before it."""
    found = place(column, reference)
    if found is None:
        return ""
    both = [_at(one, found.at) for one in (reference, column)]
    if found.parts:
        there, here = (_said(likely[:1]) or END for likely in both)
        line = f"Parts at token {found.at + 1}: {there} there, {here} here"
    else:
        own = both[1]
        line = (
            f"Same to the end; closest at token {found.at + 1}: "
            f"{_share(math.exp(own[0].logprob))} against {_share(_rival(own))}"
        )
    steps = range(max(0, found.at - BEFORE), found.at + 1)
    rows = "".join(
        f'<tr><th scope="row"><button type="button" data-token="{step}" '
        f'aria-label="Show token {step + 1}">{step + 1}</button></th>'
        + "".join(f"<td>{_said(_at(one, step)[1:]) or END}</td>" for one in (reference, column))
        + "</tr>"
        for step in steps
    )
    return (
        f'<details class="rk-parting" data-parts="{str(found.parts).lower()}">'
        f"<summary>{line}</summary><table><thead><tr>"
        '<th scope="col">token</th><th scope="col">likeliest there</th>'
        f'<th scope="col">here</th></tr></thead><tbody>{rows}</tbody></table></details>'
    )


def _at(column: Column, step: int) -> tuple[Likely, ...]:
    """What was likely at a step; nothing behind the end."""
    return column.likely[step] if step < len(column.likely) else ()


def _said(likely: Sequence[Likely]) -> str:
    """`<b>20.10</b> (.61)` of each."""
    words = (
        f"<b>{escape(one.text.strip() or ('␣' if one.text else '∅'))}</b> "
        f"({_share(math.exp(one.logprob))})"
        for one in likely
    )
    return "<br>".join(words)


def _share(probability: float) -> str:
    """`.61`."""
    if 0 < probability < 0.005:
        return "under .01"
    text = f"{probability:.2f}"
    return text.removeprefix("0") if probability < 0.995 else "1"


def reading(column: Column) -> str:
    """`The same token in 87 % of places; logit KL 0.012 nats a token, 0.34 at most.`"""
    parts = [f"The same token in {percent(sum(column.same) / max(len(column.same), 1))} of places"]
    known = [kl for kl in column.kl if kl is not None]
    if known:
        mean, worst = sum(known) / len(known), max(known)
        until = " until they part" if len(known) < len(column.kl) else ""
        parts.append(f"logit KL {_nats(mean)} nats a token{until}, {_nats(worst)} at most")
    return "; ".join(parts) + "."


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
