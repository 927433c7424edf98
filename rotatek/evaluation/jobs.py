"""Several processes side by side: each answers its part, spread over the GPUs there are.

A part is `python -m rotatek evaluate ... --part I/N`. It starts from a copy of the journal, and
what it adds is merged back, also from parts that an interruption left behind.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from rotatek.errors import SettingError, UserError
from rotatek.evaluation.run import Journal

_OWN = {"jobs", "part", "report", "action", "command"}  # not handed on
_STOPPED_EARLY = 3
_LOOK_S = 0.5


def parse_part(text: str) -> tuple[int, int]:
    """I/N as numbers, 0 <= I < N; SettingError if it is not a part."""
    try:
        index, count = (int(word) for word in text.split("/"))
    except ValueError:
        index, count = 0, 0
    if not 0 <= index < count:
        raise SettingError("--part", "I/N with 0 <= I < N", text)
    return index, count


def part_path(out: Path, index: int) -> Path:
    """The journal of one part."""
    return out / f"journal-part-{index}.jsonl"


def words(args: Namespace) -> list[str]:
    """The options of `args` as a command line, less those that are the parent's."""
    line = []
    for name, value in vars(args).items():
        if name in _OWN or callable(value) or value is None or value is False:
            continue
        line.append("--" + name.replace("_", "-"))
        line += [] if value is True else [str(value)]
    return line


def environment(index: int, jobs: int, device: str | None) -> dict[str, str]:
    """A part's environment: one of the visible GPUs, or its share of the cores."""
    env = dict(os.environ)
    on_gpu = torch.cuda.is_available() and (device is None or device.startswith("cuda"))
    gpus = env.get("CUDA_VISIBLE_DEVICES", "").split(",") if on_gpu else []
    if on_gpu:
        gpus = [gpu for gpu in gpus if gpu] or [str(i) for i in range(torch.cuda.device_count())]
        env["CUDA_VISIBLE_DEVICES"] = gpus[index % len(gpus)]
    threads = 1 if on_gpu else max(1, (os.cpu_count() or 1) // jobs)
    env.setdefault("OMP_NUM_THREADS", str(threads))
    return env


def run(args: Namespace, watch: Callable[[int], None]) -> bool:
    """Run every part to its end; `watch` is told how many answers there are in all.

    Returns False if one stopped early (`--limit-s`). UserError if one failed; what the others
    answered is kept.
    """
    out, journal = args.out, args.out / "journal.jsonl"
    parts = [part_path(out, index) for index in range(args.jobs)]
    for part in parts:
        if journal.exists():
            shutil.copyfile(journal, part)
    held = _lines(journal)
    with _started(args) as children:
        running = True
        while running:
            running = any(child.poll() is None for child in children)
            watch(held + sum(max(0, _lines(part) - held) for part in parts))
            time.sleep(_LOOK_S)
    failed = [i for i, c in enumerate(children) if c.returncode not in (0, _STOPPED_EARLY)]
    if failed:
        raise UserError(
            f"Part {failed[0]} of the evaluation failed; its log is "
            f"{_log(out, failed[0]).name} in the --out folder. Run the command again to go on."
        )
    return all(child.returncode == 0 for child in children)


def merge(out: Path) -> dict[str, str]:
    """Gather the parts' answers in the journal and remove the parts; returns what was refused."""
    refused: dict[str, str] = {}
    for path in sorted(out.glob("journal-part-*.jsonl")):
        part = Journal(path, _header(path))
        main = Journal(out / "journal.jsonl", part.header)
        fresh = [answer for key, answer in part.answers.items() if key not in main.answers]
        main.add(fresh)
        path.unlink()
    for path in sorted(out.glob("refused-part-*.json")):
        refused |= json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
    return refused


def _header(path: Path) -> dict:
    with path.open(encoding="utf-8") as file:
        return json.loads(file.readline())


def _lines(path: Path) -> int:
    """Answers in a journal: its lines less the header."""
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def _log(out: Path, index: int) -> Path:
    return out / f"part-{index}.log"


@contextmanager
def _started(args: Namespace) -> Iterator[list[subprocess.Popen]]:
    """The parts as running processes; none is left behind."""
    args.out.mkdir(parents=True, exist_ok=True)
    children = []
    try:
        for index in range(args.jobs):
            command = [sys.executable, "-m", "rotatek", "evaluate", *words(args)]
            with _log(args.out, index).open("w") as log:
                children.append(
                    subprocess.Popen(
                        [*command, "--part", f"{index}/{args.jobs}"],
                        stdout=log,
                        stderr=log,
                        env=environment(index, args.jobs, args.device),
                    )
                )
        yield children
    finally:
        for child in children:
            if child.poll() is None:
                child.terminate()
        for child in children:
            child.wait()
