"""Two result files of the benchmarks beside each other: what became slower beyond the spread.

A time counts as changed when it differs by more than 2 % and by more than the larger spread of the
two, the distance between its quartiles over its median. Rivals' arms and read-only launches are
controls: they are shown where they moved, and never fail a comparison.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

Found = dict[str, Any]
LEAST: Final = 0.02  # a smaller change is never reported
CONTROLS: Final = (
    "read only", "floor", "flash", "cudnn", "paper", "dense flash", "flash_attention",
    "cudnn_attention", "paper's loop k=32", "k=32, cuBLAS", "ThinK, rebuilt", "SparK, rebuilt",
)  # fmt: skip
SAME, SLOWER, FASTER, CONTROL = "same", "slower", "faster", "control"


class NotComparable(ValueError):
    """Two files that do not measure the same thing, in one sentence."""


class Time(NamedTuple):
    """Microseconds: the median and the quartiles."""

    us: float
    low_us: float
    high_us: float

    @property
    def spread(self) -> float:
        """The distance between the quartiles over the median."""
        return (self.high_us - self.low_us) / self.us


class Key(NamedTuple):
    """Whose time: benchmark, shape in words, arm."""

    benchmark: str
    shape: str
    arm: str


class Change(NamedTuple):
    """One time in both files, with what it amounts to."""

    key: Key
    old: Time
    new: Time
    verdict: str

    @property
    def ratio(self) -> float:
        """New over old."""
        return self.new.us / self.old.us


def load(path: Path) -> Found:
    """The results in a file.

    Raises:
        NotComparable: if it is missing, is no JSON, or is not a file of these benchmarks.
    """
    try:
        found = json.loads(path.read_text())
    except OSError:
        raise NotComparable(f"{path} cannot be read.") from None
    except ValueError:
        raise NotComparable(f"{path} is damaged: it is not JSON.") from None
    if not isinstance(found, dict) or not isinstance(found.get("hardware"), str):
        raise NotComparable(f"{path} is no result file of `bench`: it names no hardware.")
    return found


def times(found: Found) -> dict[Key, Time]:
    """Every time with a spread, by benchmark, shape and arm.

    Raises:
        NotComparable: if a time is damaged or stands there twice.
    """
    held: dict[Key, Time] = {}
    for benchmark, shape, arm, value in _cells(found):
        key = Key(benchmark, shape, arm)
        if key in held:
            raise NotComparable(f"{_words(key)} stands twice in one file.")
        held[key] = _time(key, value)
    return held


def _cells(found: Found) -> Iterator[tuple[str, str, str, Any]]:
    for benchmark, part in found.items():
        if isinstance(part, dict):
            for row in _rows(benchmark, part):
                shape = _shape(row)
                for arm, value in (row.get("times") or row.get("spread_us") or {}).items():
                    yield benchmark, shape, arm, value


def _rows(benchmark: str, part: Found) -> list[Found]:
    rows = part.get("spreads", part.get("rows", [part]))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise NotComparable(f"The rows of {benchmark} are damaged.")
    for row in rows:
        if not isinstance(row.get("times") or row.get("spread_us") or {}, dict):
            raise NotComparable(f"The times of {benchmark} are damaged.")
    return rows


def _shape(row: Found) -> str:
    """What a row was measured on, in words: its shape, or its own names and whole numbers."""
    shape = row.get("shape")
    fields = shape if isinstance(shape, dict) else row
    plain = {name: value for name, value in fields.items() if isinstance(value, str | int)}
    plain.pop("best_dense", None)
    return " ".join(f"{name}={value}" for name, value in plain.items())


def _time(key: Key, value: Any) -> Time:
    fields = value if isinstance(value, dict) else {}
    numbers = [fields.get(name) for name in Time._fields]
    good = [
        float(number)
        for number in numbers
        if isinstance(number, int | float) and math.isfinite(number) and number > 0
    ]
    if len(good) < len(numbers) or not good[1] <= good[0] <= good[2]:
        raise NotComparable(f"The time of {_words(key)} is damaged or has no spread.")
    return Time(*good)


def _words(key: Key) -> str:
    return f"{key.benchmark}, {key.shape}, {key.arm}"


def compare(old: Found, new: Found) -> list[Change]:
    """Every time of the benchmarks that both files hold.

    Raises:
        NotComparable: on another GPU, other shapes or arms, or where nothing is common.
    """
    if old["hardware"] != new["hardware"]:
        machines = f"{old['hardware']} and {new['hardware']}"
        raise NotComparable(f"The files are from different hardware: {machines}.")
    before, after = times(old), times(new)
    common = {key.benchmark for key in before} & {key.benchmark for key in after}
    if not common:
        raise NotComparable("The files have no benchmark with spreads in common.")
    for name, these, those in (("second", before, after), ("first", after, before)):
        missing = [key for key in these if key.benchmark in common and key not in those]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise NotComparable(f"The {name} file lacks {_words(missing[0])}{more}.")
    return [
        Change(key, time, after[key], _verdict(key.arm, time, after[key]))
        for key, time in before.items()
        if key.benchmark in common
    ]


def _verdict(arm: str, old: Time, new: Time) -> str:
    noise = max(LEAST, old.spread, new.spread)
    if abs(new.us / old.us - 1) <= noise:
        return SAME
    if arm in CONTROLS:
        return CONTROL
    return SLOWER if new.us > old.us else FASTER


def report(changes: list[Change]) -> str:
    """Markdown: the times that changed, worst first, and how many did not."""
    moved = [change for change in changes if change.verdict != SAME]
    lines = ["| benchmark | shape | arm | old us | new us | new / old | spread | |"]
    lines.append("|" + "---|" * 8)
    for change in sorted(moved, key=lambda row: -row.ratio):
        spread = max(change.old.spread, change.new.spread)
        lines.append(
            f"| {' | '.join(change.key)} | {change.old.us:.2f} | {change.new.us:.2f} "
            f"| {change.ratio:.3f} | {100 * spread:.1f} % | {change.verdict} |"
        )
    count = Counter(change.verdict for change in changes)
    summary = (
        f"{len(changes)} times: {count[SLOWER]} slower, {count[FASTER]} faster, "
        f"{count[CONTROL]} of a rival or a read-only launch moved, "
        f"{count[SAME]} within the spread or 2 %."
    )
    return "\n".join([*(lines if moved else []), "", summary]).strip()


def run(paths: list[Path]) -> tuple[str, int]:
    """What to print, and the exit status: 1 on a regression, 2 where nothing can be compared."""
    if len(paths) != 2:
        return "compare needs two files: OLD NEW.", 2
    try:
        old, new = (load(path) for path in paths)
        changes = compare(old, new)
    except NotComparable as error:
        return str(error), 2
    text = report(changes)
    if old.get("torch") != new.get("torch"):
        text += f" torch {old.get('torch')} against {new.get('torch')}."
    return text, int(any(change.verdict == SLOWER for change in changes))
