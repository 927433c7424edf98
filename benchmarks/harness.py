"""Shared by all benchmarks: running one, its JSON file, its tables, and progress lines."""

import gc
import importlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from rotatek.evaluation.result_json import text_of

Row = dict[str, Any]
WIDE: Final = 14  # columns
TIMING: Final = {"us", "low_us", "high_us"}  # one time with its quartiles: a cell of a table
SECTION, WHOLE, MERGED = "section", "whole", "merged"


class Benchmark(NamedTuple):
    """One benchmark, as data.

    Args:
        run: "module:function" below `benchmarks`. The function takes the options by name. It
            returns a report that JSON can hold, or yields it several times while it grows, so that
            a run that is cut off has kept what it had.
        answers: the question that it answers.
        takes: how long it runs, and on what.
        options: names of those that it takes; `catalogue.OPTIONS` says what they are.
        layout: "whole": the file is the report, with the machine in front. "section": the file has
            the report under the benchmark's name, beside others'. "merged": the report's entries
            are added to those of the file.
        gpu: it runs on a GPU alone, but for --tiny and --device cpu.
        candidates: it times candidates for a choice in the code; `all` leaves it out.
        faults: "module:function" from a report to sentences of what is wrong; any makes the
            command's exit status 1.
        words: options that the command line takes by their place.
    """

    run: str
    answers: str
    takes: str
    options: tuple[str, ...] = ()
    layout: str = WHOLE
    gpu: bool = True
    candidates: bool = False
    faults: str | None = None
    words: tuple[str, ...] = ()


def found_at(place: str) -> Any:
    """The object that "module:name" names, below `benchmarks`."""
    module, name = place.split(":")
    return getattr(importlib.import_module(f"benchmarks.{module}"), name)


def run(name: str, benchmark: Benchmark, options: Mapping[str, Any], path: Path | None) -> int:
    """Run one benchmark, write its file, print its tables; 1 where it found a fault, else 0."""
    begun = time.perf_counter()
    known = (*benchmark.words, *benchmark.options)
    given = {option: options[option] for option in known if option in options}
    found = found_at(benchmark.run)(**given)
    report: Row = {}
    for report in [found] if isinstance(found, dict) else found:
        if path is not None:
            write(path, name, benchmark.layout, report)
    say(f"# {name}: {time.perf_counter() - begun:.0f} s")
    say("\n\n".join(tables(report, name)))
    gc.collect()  # graphs hold buffers in cycles
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    wrong = found_at(benchmark.faults)(report) if benchmark.faults else []
    for sentence in wrong:
        say(f"WRONG: {sentence}")
    return int(bool(wrong))


def write(path: Path, name: str, layout: str, report: Row) -> None:
    """Write a report as its layout says."""
    held = json.loads(path.read_text()) if layout != WHOLE and path.exists() else {}
    if layout == SECTION:
        held |= {"hardware": machine()["device"], "torch": torch.__version__, name: report}
    else:
        held |= (machine() if layout == WHOLE else {}) | report
    path.write_text(text_of(held), encoding="utf-8")


def machine() -> Row:
    """The GPU's name, or "cpu", and torch's version."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"device": device, "torch": torch.__version__}


def say(text: str, row: Mapping[str, Any] | None = None) -> None:
    """Print a line at once: a text, or a name and the cells of its row."""
    line = text if row is None else f"{text:<30} " + "  ".join(map(" ".join, cells(row).items()))
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def chosen(names: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    """The names that were asked for, or all.

    Raises:
        SystemExit: if one is not known, in a sentence.
    """
    known = list(known)
    for name in names or ():
        if name not in known:
            raise SystemExit(f"There is no {name!r}; choose from: {'; '.join(known)}.")
    return list(names or known)


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """A table of rows, with every column that any of them has; a wide one is turned."""
    head = list(dict.fromkeys(name for row in rows for name in row))
    lines = [head, *([row.get(name, "-") for name in head] for row in rows)]
    if len(head) > max(WIDE, len(rows)):
        lines = [list(line) for line in zip(*lines, strict=True)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables(found: Mapping[str, Any], title: str = "") -> Iterator[str]:
    """A report as Markdown: lists and mappings of rows as tables, single figures as a line."""
    if rows := rows_of(found):
        yield f"{title}\n\n{markdown(rows)}"
        return
    nested: Row = {}
    single: Row = {}
    for name, value in found.items():
        if not name.startswith("spread"):
            (single if depth(value) == 0 else nested)[name] = value
    if single:
        yield f"{title}: ".removeprefix(": ") + ", ".join(map(" ".join, cells(single).items()))
    for name, value in nested.items():
        under = f"{title}, {name}" if title else name
        if not isinstance(value, list):
            yield from tables(value, under)
        elif max(map(depth, value)) <= 2:
            yield f"{under}\n\n{markdown(list(map(cells, value)))}"
        else:
            for one in value:
                yield from tables(one, f"{under}, {one.get('model', '')}")


def rows_of(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """The rows of a mapping of rows that share a column; none where it is something else."""
    if not found or not all(isinstance(v, Mapping) and 0 < depth(v) <= 2 for v in found.values()):
        return []
    if not set.intersection(*(set(value) for value in found.values())):
        return []
    return [{"": name} | cells(value) for name, value in found.items()]


def depth(value: Any) -> int:
    """Levels of mappings; a time with its quartiles is a single figure."""
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return 1 + max(map(depth, value))
    if not isinstance(value, Mapping) or set(value) == TIMING:
        return 0
    return 1 + max(map(depth, value.values()), default=0)


def cells(row: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A row's cells: nested figures have names of two words, spreads are left out."""
    found: dict[str, str] = {}
    for name, value in row.items():
        if name == "shape" and isinstance(value, Mapping):
            found[name] = " ".join(f"{key}={each}" for key, each in value.items() if _tells(each))
        elif isinstance(value, Mapping) and set(value) != TIMING:
            if not name.startswith("spread"):
                found |= cells(value, prefix if name == "times" else f"{prefix}{name}: ")
        else:
            found[prefix + name] = _cell(value)
    return found


def _tells(value: Any) -> bool:
    """Whether a field of a shape is not what all shapes have."""
    return value is not None and value not in ("torch.bfloat16", "bfloat16")


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value["us"]
    if isinstance(value, list):
        return ", ".join(map(_cell, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
