"""A result file of the benchmarks as a table, and two beside each other: what became slower.

A time counts as changed when it differs by more than 2 % and by more than the larger spread of the
two, the distance between its quartiles over its median. Rivals' arms and read-only launches are
controls: they are shown where they moved, and never fail a comparison.
"""

import json
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


class NotComparable(ValueError):
    """Files that do not measure the same thing, in one sentence."""


class Time(NamedTuple):
    """Microseconds: the median and the quartiles."""

    us: float
    low_us: float
    high_us: float


Times = dict[tuple[str, str, str], Time]  # by benchmark, shape in words, arm


def table(found: Found) -> str:
    """Markdown: every number that the benchmarks in a file measured."""
    lines = [f"Hardware: {found.get('hardware', '?')}; torch {found.get('torch', '?')}.", ""]
    lines += ["| benchmark | shape | what | value |", "|" + "---|" * 4]
    refused = []
    for benchmark, row in _rows(found):
        measured = {k: v for k, v in row.items() if k != "shape" and not isinstance(v, int)}
        lines += [f"| {benchmark} | {_shape(row)} | {name} | {value:.5g} |"
                  for name, value in _numbers(measured)]  # fmt: skip
    for part in found.values():
        refused += [f"Refused: {line}" for line in _dict(part).get("refused", [])]
    return "\n\n".join(["\n".join(lines), *refused])


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Numbers with their names; of a time with its spread, the median."""
    if isinstance(value, dict):
        inner = {"us": value["us"]} if set(Time._fields) == set(value) else value
        for key, one in inner.items():
            yield from _numbers(one, f"{name}, {key}".removeprefix(", "))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, float(value)


def _rows(found: Found) -> Iterator[tuple[str, Found]]:
    """Every row with the benchmark that it belongs to."""
    for benchmark, part in found.items():
        rows = part.get("spreads", part.get("rows", [part])) if isinstance(part, dict) else []
        yield from ((benchmark, _dict(row)) for row in rows)


def _dict(value: Any) -> Found:
    return value if isinstance(value, dict) else {}


def _shape(row: Found) -> str:
    """The subject of a row, in words: its shape, or its own names and integers."""
    plain = {k: v for k, v in _dict(row.get("shape", row)).items() if isinstance(v, str | int)}
    plain.pop("best_dense", None)
    return " ".join(f"{name}={value}" for name, value in plain.items())


def load(path: Path) -> tuple[Found, Times]:
    """The results in a file, and every time in it that has a spread.

    Raises:
        NotComparable: if it is missing or damaged, or is not a file of these benchmarks.
    """
    try:
        found = json.loads(path.read_text())
    except OSError:
        raise NotComparable(f"{path} cannot be read.") from None
    except ValueError:
        raise NotComparable(f"{path} is damaged: it is not JSON.") from None
    if not isinstance(_dict(found).get("hardware"), str):
        raise NotComparable(f"{path} is no result file of `bench`: it names no hardware.")
    times: Times = {}
    for benchmark, row in _rows(found):
        for arm, value in _dict(row.get("times") or row.get("spread_us")).items():
            key = benchmark, _shape(row), arm
            time = Time(*(float(_dict(value).get(name, "nan")) for name in Time._fields))
            if key in times or not 0 < time.low_us <= time.us <= time.high_us:
                raise NotComparable(
                    f"{path}: the time of {', '.join(key)} stands there twice, or is damaged."
                )
            times[key] = time
    return found, times


def verdict(arm: str, old: Time, new: Time) -> str:
    """same, slower, faster, or control: a rival's that moved."""
    spreads = ((time.high_us - time.low_us) / time.us for time in (old, new))
    if abs(new.us / old.us - 1) <= max(LEAST, *spreads):
        return "same"
    return "control" if arm in CONTROLS else "slower" if new.us > old.us else "faster"


def compare(old: Path, new: Path) -> tuple[str, bool]:
    """Markdown of the times that changed, worst first; and whether one of ours became slower.

    Raises:
        NotComparable: on another GPU, other shapes or arms, or where nothing is common.
    """
    (before, old_times), (after, new_times) = load(old), load(new)
    if before["hardware"] != after["hardware"]:
        machines = f"{before['hardware']} and {after['hardware']}"
        raise NotComparable(f"The files are from different hardware: {machines}.")
    common = {key[0] for key in old_times} & {key[0] for key in new_times}
    if not common:
        raise NotComparable("The files have no benchmark with spreads in common.")
    missing = [key for key in old_times.keys() ^ new_times.keys() if key[0] in common]
    if missing:
        raise NotComparable(f"One file lacks {', '.join(min(missing))}.")
    told = {key: verdict(key[2], time, new_times[key])
            for key, time in old_times.items() if key[0] in common}  # fmt: skip
    ratios = {key: new_times[key].us / old_times[key].us for key in told}
    lines = ["| benchmark | shape | arm | old us | new us | new / old | |", "|" + "---|" * 7]
    for key in sorted(told, key=lambda key: -ratios[key]):
        if told[key] != "same":
            us = f"{old_times[key].us:.2f} | {new_times[key].us:.2f} | {ratios[key]:.3f}"
            lines.append(f"| {' | '.join(key)} | {us} | {told[key]} |")
    count = Counter(told.values())
    summary = (
        f"{len(told)} times: {count['slower']} slower, {count['faster']} faster, "
        f"{count['control']} of a rival or a read-only launch moved, "
        f"{count['same']} within the spread or 2 %."
    )
    if before.get("torch") != after.get("torch"):
        summary += f" torch {before.get('torch')} against {after.get('torch')}."
    return "\n".join([*(lines if len(lines) > 2 else []), "", summary]).strip(), count["slower"] > 0


def run(paths: list[Path]) -> tuple[str, int]:
    """The text to print, and the exit status: 1 on a regression, 2 where nothing can be
    compared."""
    if len(paths) != 2:
        return "compare needs two files: OLD NEW.", 2
    try:
        text, slower = compare(*paths)
    except NotComparable as error:
        return str(error), 2
    return text, int(slower)
