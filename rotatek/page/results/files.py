"""The committed results: tidy tables of answers and of speed, and the choice of what is counted."""

import contextlib
from pathlib import Path
from typing import Final, NamedTuple

from rotatek.evaluation.cells import Cell, Results, Score
from rotatek.evaluation.real_keys import REAL_KEYS, SPECTRA, Divergence, Spectrum, read
from rotatek.evaluation.speed_claims import Speed, measured
from viz import Drawing

EVERY: Final = "all"
SAME: Final = "agreement"
MEASURES: Final = {"score": "score", SAME: "same answer as uncompressed"}

Drawings = dict[str, tuple[str, Drawing]]  # name -> title, figure


class Files(NamedTuple):
    """What was measured; nothing where a file is missing or damaged."""

    results: Results = Results()
    speeds: tuple[Speed, ...] = ()
    keys: tuple[Divergence, ...] = ()
    spectra: tuple[Spectrum, ...] = ()


class Asked(NamedTuple):
    """Which answers are counted, and how: a key of `MEASURES`, a kind of question or `EVERY`."""

    measure: str = "score"
    category: str = EVERY

    def of(self, cell: Cell) -> Score | None:
        """A cell's value of the measure; only the score has an interval."""
        if self.measure == SAME:
            return None if cell.same is None else Score(cell.same, cell.same, cell.same)
        return cell.score if self.category == EVERY else cell.kinds.get(self.category)


def load(folder: Path) -> Files:
    """The measurements that are there and can be read."""
    results, speeds = Results(), tuple[Speed, ...]()
    with contextlib.suppress(OSError, ValueError):
        results = Results.load(folder)
    with contextlib.suppress(OSError, ValueError):
        speeds = tuple(measured(folder))
    keys, spectra = tuple[Divergence, ...](), tuple[Spectrum, ...]()
    with contextlib.suppress(OSError, ValueError):
        keys = tuple(read(folder / REAL_KEYS, Divergence))
        spectra = tuple(read(folder / SPECTRA, Spectrum))
    return Files(results, speeds, keys, spectra)


def categories(files: Files) -> list[str]:
    """Kinds of questions that every cell of a model scores on their own; none where there is one
    kind."""
    found: dict[str, None] = {}
    for run in files.results.main:
        cells = (cell for mine in files.results.of(run).values() for cell in mine)
        many = [cell.kinds for cell in cells if len(cell.kinds) > 1]
        kinds = many[0] if many else ()
        found |= dict.fromkeys(kind for kind in kinds if all(kind in mine for mine in many))
    return list(found)
