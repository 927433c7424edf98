"""Several processes side by side: each answers its part, spread over the GPUs there are.

A part is `rotatek evaluate ... --part I/N`, which may also be run by hand. It reads the journal and
writes one of its own, which is merged back, also after an interruption.
"""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from rotatek.errors import SettingError, UserError
from rotatek.evaluation.journal import Answers, Journal, read_answers, read_header

_PARTS: Final = "journal-part-*.jsonl"
_STOPPED_EARLY: Final = 3
_LOOK_S: Final = 0.5


def parse_part(text: str) -> tuple[int, int]:
    """I/N as numbers, 0 <= I < N.

    Raises:
        SettingError: if it is not a part.
    """
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


def write_refused(out: Path, index: int, refused: Mapping[str, str]) -> None:
    """Leave the settings that a part could not answer, for `merge`."""
    (out / f"refused-part-{index}.json").write_text(json.dumps(refused), encoding="utf-8")


def on_gpu(device: str | None) -> bool:
    """Whether a model asked for on `device` runs on a GPU: cuda, cuda:N, auto, or no choice."""
    kind = (device or "auto").partition(":")[0]
    return kind in ("cuda", "auto") and torch.cuda.is_available()


def environment(index: int, count: int, device: str | None) -> dict[str, str]:
    """A part's environment: one of the visible GPUs, or its share of the cores.

    A device with a number is that one for every part, and auto may need all of them.
    """
    env = dict(os.environ)
    gpu = on_gpu(device)
    if gpu and device in (None, "cuda"):
        gpus = [name for name in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        gpus = gpus or [str(i) for i in range(torch.cuda.device_count())]
        env["CUDA_VISIBLE_DEVICES"] = gpus[index % len(gpus)]
    threads = 1 if gpu else max(1, (os.cpu_count() or 1) // count)
    env.setdefault("OMP_NUM_THREADS", str(threads))
    return env


@dataclass(frozen=True)
class Group:
    """Processes side by side.

    Args:
        command: of one of them, less its part.
        out: the run's folder.
        count: how many.
        device: as the command was given it.
    """

    command: Sequence[str]
    out: Path
    count: int
    device: str | None = None

    def run(self, watch: Callable[[int], None]) -> bool:
        """Run every part to its end; `run_tower` is told how many answers there are in all.

        Returns:
            False if one stopped early (`--limit-s`).

        Raises:
            UserError: if one failed, or if this process was asked to terminate; what was answered
                is kept.
        """
        parts = [part_path(self.out, index) for index in range(self.count)]
        held = _lines(self.out / "journal.jsonl")
        with _termination() as asked, self._started() as children:
            running = True
            while running and not asked.wait(_LOOK_S):
                running = any(child.poll() is None for child in children)
                watch(held + sum(_lines(part) for part in parts))
        if asked.is_set():
            raise UserError(
                "The evaluation was stopped. What was answered is kept: run the command again to "
                "go on, or with --report to see what there is."
            )
        failed = [i for i, c in enumerate(children) if c.returncode not in (0, _STOPPED_EARLY)]
        if failed:
            raise UserError(
                f"Part {failed[0]} of the evaluation failed; its log is "
                f"{self._log(failed[0]).name} in the --out folder. Run the command again to go on."
            )
        return all(child.returncode == 0 for child in children)

    @contextmanager
    def _started(self) -> Iterator[list[subprocess.Popen]]:
        """The parts as running processes; none is left behind."""
        self.out.mkdir(parents=True, exist_ok=True)
        children: list[subprocess.Popen] = []
        try:
            for index in range(self.count):
                children.append(self._start(index))
            yield children
        finally:
            for child in children:
                if child.poll() is None:
                    child.terminate()
            for child in children:
                child.wait()

    def _start(self, index: int) -> subprocess.Popen:
        words = [*self.command, "--part", f"{index}/{self.count}"]
        env = environment(index, self.count, self.device)
        with self._log(index).open("w") as log:
            return subprocess.Popen(words, stdout=log, stderr=log, env=env)

    def _log(self, index: int) -> Path:
        return self.out / f"part-{index}.log"


def merge(out: Path) -> dict[str, str]:
    """Gather the parts' answers in the journal and remove the parts.

    Returns:
        sentences by settings that were refused.
    """
    refused: dict[str, str] = {}
    main: Journal | None = None
    for path in sorted(out.glob(_PARTS)):
        main = main or Journal(out / "journal.jsonl", read_header(path))
        found = read_answers(path, main.header)
        main.add([answer for key, answer in found.items() if key not in main.answers])
        path.unlink()
    for path in sorted(out.glob("refused-part-*.json")):
        refused |= json.loads(path.read_text(encoding="utf-8"))
        path.unlink()
    return refused


def gather(out: Path, suite: dict[str, Any]) -> tuple[dict[str, Any], Answers]:
    """Header and answers of the journal and of parts not merged yet; the files stay as they are.

    Raises:
        UserError: if there is none, or if its questions are not those of `suite`.
    """
    paths = [out / "journal.jsonl", *sorted(out.glob(_PARTS))]
    paths = [path for path in paths if path.exists()]
    if not paths:
        raise UserError("There is no journal in --out yet. Run the evaluation first.")
    header = read_header(paths[0])
    if header["suite"] != suite:
        raise UserError(
            "The journal's questions are other ones. Give the --suite, --questions and --seed "
            "it was made with."
        )
    answers: Answers = {}
    for path in paths:
        answers |= read_answers(path, header)
    return header, answers


def _lines(path: Path) -> int:
    """Answers in a journal: its lines less the header."""
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


@contextmanager
def _termination() -> Iterator[threading.Event]:
    """An event that SIGTERM sets, as `timeout` and batch systems send it, in place of the end."""
    asked = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: asked.set())
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, before)
