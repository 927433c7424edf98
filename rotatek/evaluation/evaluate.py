"""One evaluation from beginning to end: a model, a suite and tables of settings; then a report."""

import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from rotatek.errors import UserError
from rotatek.evaluation import equal_bytes_table, report
from rotatek.evaluation.answer_archive import collect, pack
from rotatek.evaluation.chains import FIRST, chains
from rotatek.evaluation.journal import (
    JOURNAL,
    Answers,
    Journal,
    journals,
    read_header,
    read_journals,
    weights_id,
)
from rotatek.evaluation.runner import Runner, RunOptions
from rotatek.evaluation.suite import Selection, Suite, describe
from rotatek.evaluation.tables import Table, wanted
from rotatek.evaluation.work_batches import Unit, Wanted, size
from rotatek.inputs.text_files import whole_characters
from rotatek.models import VisionLanguageModel, load


@dataclass(frozen=True)
class Outcome:
    """The outcome of answering.

    Attributes:
        finished: whether all is done.
        refused: settings that were refused, with why.
        left_out: names of questions that cannot be asked, which were named on stderr.
        unwritten: lines that the journal's disk did not take.
    """

    finished: bool
    refused: dict[str, str] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    unwritten: str = ""


@dataclass(frozen=True)
class Evaluation:
    """What to evaluate, and where answers and results go.

    Args:
        model: a registered name, a folder or a hub id.
        suite: the questions.
        tables: the settings to compare.
        out: the folder of journal, questions, pictures and results.
        device: cpu, cuda, cuda:N, auto, or the best there is.
        options: how questions are asked.
        limit_s: seconds after which to stop, to go on another time.
        part: the share of the work that this process does: its number from 0, and how many parts
            there are. Each has a journal of its own in the same folder.
    """

    model: str
    suite: Suite
    tables: Sequence[Table]
    out: Path
    device: str | None = None
    options: RunOptions = field(default_factory=RunOptions)
    limit_s: float | None = None
    part: tuple[int, int] = (0, 1)

    def answer(self) -> Outcome:
        """Answer what is missing in this process."""
        began = time.monotonic()
        vlm = load(self.model, self.device)
        header = describe_run(vlm, self.suite, self.options)
        journal = Journal(self.journal, header)
        journal.answers |= read_journals(self.out, header)
        chosen: Wanted = list(wanted(self.tables))
        journal.record(settings for settings, _ in chosen)
        suite: Suite = self.suite
        if self.options.ask != FIRST:
            suite = Selection(suite, chains(suite.items, self.options.ask))
            chosen = [(one, "all") for one, _ in chosen]
        runner = Runner(vlm, suite, journal, self.options, notice)
        units = runner.units(chosen, part=self.part)
        end = None if self.limit_s is None else began + self.limit_s
        finished = _work(runner, units, end)
        return Outcome(finished, runner.refused, frozenset(runner.left_out), journal.unwritten)

    @property
    def journal(self) -> Path:
        """Where answers are written."""
        number, parts = self.part
        return self.out / (JOURNAL if parts == 1 else f"journal-{number}-of-{parts}.jsonl")

    def write_report(self, refused: dict[str, str] | None = None) -> Path:
        """Write the report of the answers that there are: tidy tables, and a page of Markdown.

        Args:
            refused: of a run that ends here, which also says where it ran.

        Returns:
            the Markdown file.
        """
        header, answers = self._held()
        ran = {} if refused is None else {**versions(self.device), "refused": refused}
        built = report.build(self.tables, self.suite.items, answers, {**header, **ran})
        built.save(self.out)
        page = self.out / "results.md"
        page.write_text(whole_characters(report.markdown(built)), encoding="utf-8")
        return page

    def pack(self, path: Path, refused: dict[str, str] | None = None) -> Path:
        """Write what there is into one small file, with where it ran.

        Args:
            path: of the file (`rotatek.evaluation.answer_archive`).
            refused: settings that could not be answered, with why.
        """
        header, answers = self._held()
        solved = next(
            (table.rows[1:] for table in self.tables if table.name == equal_bytes_table.NAME), ()
        )
        rows = equal_bytes_table.flat_rows(solved)
        ran = {} if refused is None else {"refused": refused}
        where = {**versions(self.device), **ran, "solved": rows}
        known = list(dict.fromkeys(settings for settings, _ in wanted(self.tables)))
        pack(path, collect({**header, **where}, self.suite.items, answers, known))
        return path

    def _held(self) -> tuple[dict[str, Any], Answers]:
        """Header and answers of the journals."""
        paths = journals(self.out)
        if not paths:
            raise UserError("There is no journal in --out yet. Run the evaluation first.")
        header = read_header(paths[0])
        if header["suite"] != describe(self.suite):
            raise UserError(
                "The journal's questions are other ones. Give the --suite, --questions and --seed "
                "it was made with."
            )
        return header, read_journals(self.out, header)


def _work(runner: Runner, units: list[Unit], end: float | None) -> bool:
    """Answer with a progress bar on stderr, until a further step may pass the clock's `end`; False
    if some are left."""
    total, longest, began = size(units), 0.0, time.monotonic()
    with tqdm(total=total, unit="answer", file=sys.stderr, smoothing=0.05) as bar:
        for added in runner.run(units):
            bar.update(added)
            now = time.monotonic()
            longest, began = max(longest, now - began), now
            if end is not None and now + longest > end:
                return bar.n >= total
    return True


def notice(text: str) -> None:
    """A line on stderr, beside the progress bar."""
    tqdm.write(text, file=sys.stderr)


def describe_run(vlm: VisionLanguageModel, suite: Suite, options: RunOptions) -> dict[str, Any]:
    """What makes answers comparable: weights, precision, questions, lengths."""
    asked = {} if options.ask == FIRST else {"ask": options.ask}
    return asked | {
        "model": {
            "name": Path(vlm.name).name,  # of a folder, not where it lies
            "family": vlm.family,
            "parameters": sum(p.numel() for p in vlm.model.parameters()),
            "weights": weights_id(vlm),
            "dtype": str(vlm.model.dtype).removeprefix("torch."),
        },
        "suite": describe(suite),
        "suffix": options.suffix,
        "max_new_tokens": list(options.limits),
    }


def on_gpu(device: str | None) -> bool:
    """Whether a model asked for on `device` runs on a GPU: cuda, cuda:N, auto, or no choice."""
    kind = (device or "auto").partition(":")[0]
    return kind in ("cuda", "auto") and torch.cuda.is_available()


def versions(device: str | None) -> dict[str, Any]:
    """Where it ran; two machines may share a journal."""
    name = "cpu"
    if on_gpu(device):
        numbered = device if device and ":" in device else None
        name = torch.cuda.get_device_name(numbered)
    found = {"python": platform.python_version(), "device": name}
    for package in ("rotatek", "torch", "transformers", "triton"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return {"ran_on": found}
