"""The tidy tables of `python -m benchmarks real-keys`, which documents and the page read."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from rotatek.evaluation.cells import record_of, rows

REAL_KEYS: Final = "real-keys.csv.gz"  # as `gzip` makes it of the command's figures.csv
SPECTRA: Final = "real-keys-spectra.csv"
STORED: Final = "real-keys-stored.csv"  # of `python -m benchmarks stored-keys`
FIRST, LATER = "first", "later"  # the question is read before or after the context is compressed

Record = TypeVar("Record", bound=tuple)  # a class of NamedTuple


class Divergence(NamedTuple):
    """One setting's means over a model's segments.

    Attributes:
        model: its name.
        context: compressed tokens.
        asked: `FIRST` or `LATER`.
        arm: the setting's label, which begins with its method's.
        segments: of text.
        live: bytes of the compressed part over the plain cache's.
        nats: what a token costs more.
        kl: divergence of a token's distribution from the plain cache's, in nats.
        spread: the standard deviation of kl between segments.
        top1: share of tokens whose most likely one is the same.
    """

    model: str
    context: int
    asked: str
    arm: str
    segments: int
    live: float
    nats: float
    kl: float
    spread: float
    top1: float

    @property
    def method(self) -> str:
        """The label of the method that the arm begins with."""
        return self.arm.partition(",")[0].partition(" ")[0]


class Spectrum(NamedTuple):
    """How the variation of one layer's Keys or Values is spread over channels, mean over heads.

    Attributes:
        model: its name.
        tokens: measured ones.
        layer: from 0.
        part: "keys" or "values".
        rank: exp(entropy of the covariance's eigenvalues as shares) over d.
        eighth, quarter, half: share of the energy in the largest d/8, d/4, d/2 of them.
        mean: the mean's share of all energy.
        loudest: how many times the median channel the loudest one is.
    """

    model: str
    tokens: int
    layer: int
    part: str
    rank: float
    eighth: float
    quarter: float
    half: float
    mean: float
    loudest: float


def read(path: Path, kind: type[Record]) -> list[Record]:
    """The complete lines of a table; none where there is no file."""
    if not path.exists():
        return []
    complete = (row for row in rows(path) if all(row.get(name) for name in kind.__annotations__))
    return [record_of(row, kind) for row in complete]


def write(path: Path, lines: Iterable[tuple], fields: Sequence[str]) -> None:
    """Write a table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(fields)
        writer.writerows(lines)
