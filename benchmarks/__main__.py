"""`python -m benchmarks NAME [--json FILE] [...]`: run one benchmark, print its tables.

`NAME --help` says what it answers and which options it takes; README.md lists all of them. `all`
runs every benchmark of the kernels. `table FILE` prints the tables of a JSON file. `compare OLD
NEW` prints what changed between two files beyond the spread; its exit status is 1 where a time of
ours became slower, and 2 where the files do not measure the same.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.catalogue import BENCHMARKS, OPTIONS
from benchmarks.harness import SECTION, run, say, tables
from benchmarks.kernels import compare

ALL: Final = [n for n, one in BENCHMARKS.items() if one.layout == SECTION and not one.candidates]
READERS: Final[dict[str, tuple[str, Callable[[list[Path]], tuple[str, int]]]]] = {
    "table": ("print a file's tables", lambda files: ("\n\n".join(tables(_read(files))), 0)),
    "compare": ("print what changed from one file to another", compare.run),
}


def _read(files: list[Path]) -> dict[str, Any]:
    if len(files) != 1:
        raise SystemExit("This command reads one file.")
    found: dict[str, Any] = json.loads(files[0].read_text())
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, (text, _) in READERS.items():
        commands.add_parser(name, help=text).add_argument("files", nargs="+", type=Path)
    for name, one in BENCHMARKS.items():
        text = f"{one.answers} Takes {one.takes}."
        command = commands.add_parser(name, help=one.answers, description=text)
        for word in one.words:
            command.add_argument(word, **OPTIONS[word])
        _add(command, one.options)
    every = dict.fromkeys(option for name in ALL for option in BENCHMARKS[name].options)
    _add(commands.add_parser("all", help="all benchmarks of the kernels"), every)
    return parser


def _add(parser: argparse.ArgumentParser, options: Iterable[str]) -> None:
    """Options that are not given are not passed on: the benchmark has the default."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here")
    for option in options:
        parser.add_argument(f"--{option}", default=argparse.SUPPRESS, **OPTIONS[option])


def main(words: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    parser = _parser()
    options = vars(parser.parse_args(words))
    name: str = options["name"]
    if name in READERS:
        text, status = READERS[name][1](options["files"])
        say(text)
        return status
    names = ALL if name == "all" else [name]
    on_cpu = options.get("tiny") or options.get("device") == "cpu"
    if any(BENCHMARKS[n].gpu for n in names) and not on_cpu and not torch.cuda.is_available():
        has_tiny = "tiny" in BENCHMARKS[names[0]].options
        tiny = "; --tiny tries it out on a CPU" if has_tiny else ""
        sys.stderr.write(f"{name} needs a GPU{tiny}.\n")
        return 2
    return max([run(n, BENCHMARKS[n], options, options["json"]) for n in names])


if __name__ == "__main__":
    sys.exit(main())
