"""The results of evaluations as tidy tables: a record for each measurement, with named fields.

A folder of results holds `runs.json` (what each run asked of which weights, and its tables),
`cells.csv.gz` (a record for each setting in each table), `pairs.csv.gz` (each comparison that a
claim makes) and `claims.csv` (what came of each claim). Documents and the page read these fields.
The labels in `row`, `first` and `second` are displayed and never parsed.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from rotatek.evaluation.chains import FIRST
from rotatek.evaluation.result_json import text_of

Record = TypeVar("Record")
RUNS, CELLS, PAIRS, CLAIMS = "runs.json", "cells.csv.gz", "pairs.csv.gz", "claims.csv"
PACKED: Final = ".gz"  # how the name of a compressed file ends
NUMBERS: Final = ("nominal", "live", "same", "exact", "new_tokens", "error_rate")
SCORES: Final = ("score", "difference", "pages", "ours")  # each with its interval
KIND: Final = "kind "  # how the columns of a kind of question begin


class Score(NamedTuple):
    """A mean score in [0, 1], or a difference of two, with its 95 % interval."""

    mean: float
    low: float
    high: float

    def in_percent(self, digits: int = 0) -> str:
        """`83.2 (80 to 86)`: the interval's ends with so many digits."""
        mean, low, high = (100 * value for value in self)
        return f"{mean:.1f} ({low:.{digits}f} to {high:.{digits}f})"


class Outcome(NamedTuple):
    """How many of `of` comparisons have an interval above zero, and below it."""

    better: int
    worse: int
    of: int

    @classmethod
    def over(cls, compared: Iterable[Score]) -> "Outcome":
        """Of paired differences."""
        every = list(compared)
        above, below = sum(one.low > 0 for one in every), sum(one.high < 0 for one in every)
        return cls(above, below, len(every))


@dataclass(frozen=True)
class Cell:
    """A setting in a table: what it is, and how its answers scored; shares are in [0, 1].

    Args:
        model: its name.
        suite: of the questions.
        ask: how they were asked, one of `rotatek.evaluation.chains.ASKS`; or that they opened
            conversations whose later questions are counted in cells of their own.
        table: that it is in.
        row: its label there.
        line: the label of the line or group in which a figure draws it, or "".
        times: how many times smaller it was solved to be, or 0.
        settings: flat: both methods' names, their shares and bits, and what is not at its default.
        nominal: share of the visual cache as the paper counts it.
        live: share of the bytes of an uncompressed cache of the same prompts, text included.
        same: share of answers that are the uncompressed model's; None where it was not asked.
        exact: share of answers that are accepted ones.
        new_tokens: of an answer, in the mean.
        error_rate: of the characters of whole pages; None where none was asked.
        score: by each question's own metric.
        difference: from the uncompressed model, paired; None where it was not asked.
        pages: the same on whole pages alone.
        ours: what the table's `beside` scores in as many live bytes, less this, paired; None where
            it is this method, or has no row that is as small.
        kinds: score by kind of question.
    """

    model: str
    suite: str
    table: str
    row: str
    line: str
    times: int
    settings: Mapping[str, Any]
    nominal: float
    live: float
    same: float | None
    exact: float | None
    new_tokens: float | None
    error_rate: float | None
    score: Score
    difference: Score | None = None
    pages: Score | None = None
    ours: Score | None = None
    kinds: Mapping[str, Score] = field(default_factory=dict)
    ask: str = FIRST

    @property
    def against_ours(self) -> Score | None:
        """`ours` of a row that has no such bits itself, after a pruner."""
        return None if "smaller" in self.settings else self.ours

    def flat(self) -> dict[str, Any]:
        """Every field as a column."""
        words = {name: getattr(self, name) for name in WORDS}
        numbers = {name: getattr(self, name) for name in NUMBERS}
        scores = {name: getattr(self, name) for name in SCORES}
        scores |= {KIND + name: score for name, score in self.kinds.items()}
        found = words | dict(self.settings) | numbers
        for name, score in scores.items():
            low, mean, high = _columns(name)
            mine = score or (None, None, None)
            found |= {mean: mine[0], low: mine[1], high: mine[2]}
        return found

    @classmethod
    def of(cls, flat: Mapping[str, str]) -> "Cell":
        """The inverse of `flat`, from text."""
        given = {name: _value(text) for name, text in flat.items() if text != ""}
        kinds = [name for name in flat if name.startswith(KIND) and _columns(name)[0] in flat]
        scores: dict[str, Any] = {name: _score(given, name) for name in SCORES}
        made = {name.removeprefix(KIND): _score(given, name) for name in kinds}
        named = (column for name in (*SCORES, *kinds) for column in _columns(name))
        used = {*WORDS, *NUMBERS, *named}
        words: dict[str, Any] = {name: flat.get(name, "") for name in WORDS}
        words |= {"times": int(flat["times"]), "ask": words["ask"] or FIRST}
        words |= {name: given.get(name) for name in NUMBERS}
        return cls(
            settings={name: value for name, value in given.items() if name not in used},
            kinds={name: score for name, score in made.items() if score},
            **words,
            **scores,
        )


SUITES: Final = {  # in words, the main one first
    "pocket (seed 0)": "training's own renderers, other seeds",
    "pocket-unseen (seed 0)": "unseen renderers",
    "questions.jsonl": "pages by other hands",
}
WORDS: Final = ("model", "suite", "ask", "table", "row", "line", "times")


class Pair(NamedTuple):
    """One comparison that a claim makes.

    Attributes:
        claim: its key.
        model, table: where; for a measurement of speed the benchmark.
        counted: "nominal" (the rows as they are), "live" (the second row's method at the first
            one's live bytes) or "measured" (a ratio of measured values).
        first, second: the rows' labels.
        relation: what is claimed: "at least", "about", or a bound on a ratio.
        questions: that both answered; 0 for a measurement.
        difference, low, high: first less second in [-1, 1] with its interval, or the ratio.
        says: "for", "against", "better" (than "about") or "open".
    """

    claim: str
    model: str
    table: str
    counted: str
    first: str
    second: str
    relation: str
    questions: int
    difference: float
    low: float
    high: float
    says: str


class Found(NamedTuple):
    """What came of a claim on one model.

    Attributes:
        claim: its key.
        text: in words.
        where: in the paper; "" for what we expect beyond it.
        model: on which; "" for a claim that no table tests.
        counted: as in `Pair`.
        verdict: found, better, mixed, not found or open.
        pairs: compared.
        against: those of them that contradict it.
        difference, low, high: mean over pairs with its interval; of ratios the least and the most.
        note: why it is open, or what the ratio is of.
    """

    claim: str
    text: str
    where: str
    model: str
    counted: str
    verdict: str
    pairs: int = 0
    against: int = 0
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Results:
    """Some runs' results.

    Args:
        runs: headers: model, suite, where it ran, and `tables`, a record for each table.
        cells: every setting in every table.
        pairs: every comparison of a claim.
        found: every claim.
    """

    runs: Sequence[Mapping[str, Any]] = ()
    cells: Sequence[Cell] = ()
    pairs: Sequence[Pair] = ()
    found: Sequence[Found] = ()

    def save(self, folder: Path) -> None:
        """Write the four files of a folder of results."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RUNS).write_text(text_of(self.runs), encoding="utf-8")
        flat = [cell.flat() for cell in self.cells]
        kinds = dict.fromkeys(
            column for cell in self.cells for kind in cell.kinds for column in _columns(KIND + kind)
        )
        ends = [*NUMBERS, *(c for name in SCORES for c in _columns(name)), *kinds]
        options = sorted({name for row in flat for name in row} - {*WORDS, *ends})
        write(folder / CELLS, [*WORDS, *options, *ends], flat)
        for name, records, kind in ((PAIRS, self.pairs, Pair), (CLAIMS, self.found, Found)):
            write(folder / name, kind._fields, [one._asdict() for one in records])

    @classmethod
    def load(cls, folder: Path) -> "Results":
        """Read a folder of results.

        Raises:
            OSError: if a file is missing.
            ValueError: if one is damaged.
        """
        runs = json.loads((folder / RUNS).read_text(encoding="utf-8"))
        try:
            cells = [Cell.of(row) for row in rows(folder / CELLS)]
            pairs = records(folder / PAIRS, Pair)
            return cls(runs, cells, pairs, records(folder / CLAIMS, Found))
        except (KeyError, TypeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError("The files of results are damaged. Run `make results`.") from error

    def of(self, run: Mapping[str, Any], ask: str = "") -> dict[str, list[Cell]]:
        """A run's cells, by table; ask: of another part of it, such as its openings."""
        found: dict[str, list[Cell]] = {table["name"]: [] for table in run["tables"]}
        mine = run["model"]["name"], run["suite"]["name"], ask or run.get("ask", FIRST)
        for cell in self.cells:
            if (cell.model, cell.suite, cell.ask) == mine:
                found[cell.table].append(cell)
        return found

    @property
    def main(self) -> list[Mapping[str, Any]]:
        """The runs of more than one table, which claims are judged on."""
        return [run for run in self.runs if len(run["tables"]) > 1 and "ask" not in run]

    @property
    def against_rivals(self) -> Outcome:
        """Ours in second questions, compared with every rival at its live bytes."""
        return Outcome.over(cell.against_ours for cell in self.cells if cell.against_ours)

    @property
    def conversations(self) -> list[Mapping[str, Any]]:
        """The runs of second questions, or of questions behind a neutral one."""
        return [run for run in self.runs if "ask" in run]


def joined(parts: Iterable[Results]) -> Results:
    """Several results as one."""
    every = list(parts)
    fields = ([one for part in every for one in getattr(part, name)]
              for name in ("runs", "cells", "pairs", "found"))  # fmt: skip
    return Results(*fields)


def pareto_front(
    found: Iterable[Record], cost: Callable[[Record], float], worth: Callable[[Record], float]
) -> list[Record]:
    """By rising cost, those that are worth more than all that cost less."""
    kept: list[Record] = []
    for one in sorted(found, key=lambda one: (cost(one), -worth(one))):
        if not kept or worth(one) > worth(kept[-1]):
            kept.append(one)
    return kept


def strongest(cells: Sequence[Cell], pairs: Sequence[Pair]) -> dict[int, tuple[Cell, Cell, Pair]]:
    """The best row of ours and the best of the others' at each size, with their difference.

    Args:
        cells: of a model's table of rivals.
        pairs: of the claim about rivals, on that model.
    """
    by_words = {cell.row: cell for cell in cells}
    found: dict[int, tuple[Cell, Cell, Pair]] = {}
    for pair in pairs:
        ours, other = by_words[pair.first], by_words[pair.second]
        best = found.get(ours.times)
        key = (ours.score.mean, other.score.mean)
        if best is None or key > (best[0].score.mean, best[1].score.mean):
            found[ours.times] = ours, other, pair
    return dict(sorted(found.items()))


def records(path: Path, kind: type[Record]) -> list[Record]:
    """The records of a CSV file, each field of its type."""
    return [record_of(row, kind) for row in rows(path)]


def record_of(row: Mapping[str, str], kind: type[Record]) -> Record:
    """One line of a CSV file as a record."""
    types = kind.__annotations__
    return kind(**{name: _typed(text, types[name]) for name, text in row.items()})


def rows(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file, which may be compressed, by its columns."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == PACKED else data).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def write(path: Path, columns: Sequence[str], flat: Iterable[Mapping[str, Any]]) -> None:
    """Write records to a CSV file, compressed if its name says so; numbers to five digits."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _text(value) for name, value in row.items()} for row in flat)
    data = file.getvalue().encode()
    # Without a time in it, equal records are equal bytes.
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == PACKED else data)


def _columns(name: str) -> tuple[str, str, str]:
    """Low end, mean and high end."""
    return f"{name} low", name, f"{name} high"


def _score(given: Mapping[str, Any], name: str) -> Score | None:
    low, mean, high = _columns(name)
    return Score(given[mean], given[low], given[high]) if mean in given else None


def _text(value: Any) -> str:
    """A value as a file has it; None is an empty field."""
    return f"{value + 0.0:.5g}" if isinstance(value, float) else "" if value is None else str(value)


def _value(text: str) -> Any:
    """A number where it is one."""
    try:
        return float(text)
    except ValueError:
        return text


def _typed(text: str, kind: Any) -> Any:
    if kind is str:
        return text
    return int(text) if kind is int else float(text) if text else None
