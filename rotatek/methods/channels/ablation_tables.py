"""RotateK's own tables in the evaluation: its design choices and its bits.

The registry asks a method for `studies()`; RotateK's rows are built here, from the class that it
passes. Labels and expectations are data: a report adds the result to each.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, Final

from rotatek.methods.channels.base import ChannelMethod, Relation, Study

HEAD: Final = 128  # channels of a head in the paper's models, and in `pocket`
TIMES: Final = (5, 8, 16, 24)
Made = Callable[..., ChannelMethod]
Rows = dict[str, tuple[dict[str, Any], ChannelMethod]]
Expected = tuple[str, str, Relation, str]


def studies(made: Made) -> tuple[Study, ...]:
    """Every table of RotateK; `made` is the method."""
    return _ablation(made), _bits(made)


def _ablation(made: Made) -> Study:
    """Solver x weighting, without pruning and at the two budgets of the paper's table."""
    places: dict[str, tuple[dict[str, Any], float]] = {
        "32 channels": ({}, 0.25),
        "12 channels": ({}, 12 / HEAD),
        "FastV 0.3, 32 channels": ({"tokens": "fastv", "keep_tokens": 0.3}, 0.25),
        "VisionZip 0.25, 32 channels": ({"tokens": "visionzip", "keep_tokens": 0.25}, 0.25),
    }
    rows: Rows = {
        f"{place}: {solver}, {weighting}": (
            pruner, made(keep=keep, solver=solver, weighting=weighting)
        )
        for (place, (pruner, keep)), solver, weighting in product(
            places.items(), ("subspace", "eigh"), ("paper", "none")
        )
    }  # fmt: skip
    claims: list[Expected] = []
    for place, (pruner, keep) in places.items():
        rows[f"{place}: as printed"] = pruner, made(keep=keep, solver="paper")
        found = f"{place}: subspace, paper"
        claims.append((found, f"{place}: eigh, paper", "about", "solver"))
        claims.append((f"{place}: as printed", f"{place}: eigh, paper", "about", "printed"))
        topic = "weighting" if pruner else "weighting-alone"  # the paper always drops tokens
        claims.append((found, f"{place}: subspace, none", "at least", topic))
    return Study("ablation", "Design choices of RotateK", rows, tuple(claims))


def _bits(made: Made) -> Study:
    """Bits by energy, alone and after both of the paper's pruners."""
    places: dict[str, dict[str, Any]] = {
        "": {},
        "FastV 0.4, ": {"tokens": "fastv", "keep_tokens": 0.4},
        "VisionZip 0.4, ": {"tokens": "visionzip", "keep_tokens": 0.4},
    }
    words = {times: f"{times} times smaller" for times in TIMES}
    rows: Rows = {
        place + words[times]: (pruner, made(smaller=times))
        for (place, pruner), times in product(places.items(), TIMES)
    }
    claims: list[Expected] = [(one, "Uncompressed", "about", "bits") for one in words.values()]
    return Study("bits", "Beyond the paper: the bits that channels earn", rows, tuple(claims))
