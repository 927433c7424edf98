"""One evaluation from beginning to end: a model, a suite and tables of settings; then a report."""

import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from rotatek.evaluation import processes, report
from rotatek.evaluation.journal import Journal, weights_id
from rotatek.evaluation.runner import Runner, RunOptions
from rotatek.evaluation.suite import Suite, describe
from rotatek.evaluation.tables import Table, wanted
from rotatek.evaluation.units import Unit, size
from rotatek.models import VisionLanguageModel, load


@dataclass(frozen=True)
class Outcome:
    """What came of answering: whether all is done, and settings that were refused, with why."""

    finished: bool
    refused: dict[str, str] = field(default_factory=dict)


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
    """

    model: str
    suite: Suite
    tables: Sequence[Table]
    out: Path
    device: str | None = None
    options: RunOptions = field(default_factory=RunOptions)
    limit_s: float | None = None

    def answer(self, part: tuple[int, int] | None = None) -> Outcome:
        """Answer what is missing in this process.

        Args:
            part: (i, n) is the i-th of n parts, which has a journal of its own to be merged.
        """
        vlm = load(self.model, self.device)
        header = describe_run(vlm, self.suite, self.options)
        whole = self.out / "journal.jsonl"
        if part is None:
            journal = Journal(whole, header)
        else:
            journal = Journal(processes.part_path(self.out, part[0]), header, earlier=whole)
        runner = Runner(vlm, self.suite, journal, self.options, _notice)
        units = runner.units(list(wanted(self.tables)), part or (0, 1))
        finished = _work(runner, units, self.limit_s)
        if part is not None:
            processes.write_refused(self.out, part[0], runner.refused)
        return Outcome(finished, runner.refused)

    def answer_in_processes(self, command: Sequence[str], count: int) -> Outcome:
        """Let several processes answer, each its part.

        Args:
            command: of `rotatek evaluate`, for a part's process.
            count: of processes.

        Raises:
            UserError: if one failed, or if this process was asked to end; answers are kept.
        """
        refused: dict[str, str] = {}
        long = [item for item in self.suite.items if item.long]
        counts = {"all": len(self.suite.items), "long": len(long)}
        total = sum(counts[scope] for _, scope in wanted(self.tables))
        try:
            with tqdm(total=total, unit="answer", file=sys.stderr) as bar:
                group = processes.Group(command, self.out, count, self.device)
                finished = group.run(lambda held: bar.update(held - bar.n))
        finally:
            refused |= processes.merge(self.out)
        return Outcome(finished, refused)

    def write_report(self, refused: dict[str, str] | None = None) -> Path:
        """Write the report of the answers that there are, as JSON and as Markdown.

        Args:
            refused: of a run that ends here, which also says where it ran.

        Returns:
            the Markdown file.
        """
        header, answers = processes.gather(self.out, describe(self.suite))
        ran = {} if refused is None else {**versions(self.device), "refused": refused}
        built = report.build(self.tables, self.suite.items, answers, {**header, **ran})
        text = json.dumps(built, ensure_ascii=False).replace('{"label": ', '\n{"label": ') + "\n"
        (self.out / "results.json").write_text(text, encoding="utf-8")
        page = self.out / "results.md"
        page.write_text(report.markdown(built), encoding="utf-8")
        return page


def _work(runner: Runner, units: list[Unit], limit_s: float | None) -> bool:
    """Answer with a progress bar on stderr; False if the time was over first."""
    total = size(units)
    with tqdm(total=total, unit="answer", file=sys.stderr, smoothing=0.05) as bar:
        for added in runner.run(units):
            bar.update(added)
            if limit_s is not None and bar.format_dict["elapsed"] > limit_s:
                return bar.n >= total
    return True


def _notice(text: str) -> None:
    tqdm.write(text, file=sys.stderr)


def describe_run(vlm: VisionLanguageModel, suite: Suite, options: RunOptions) -> dict[str, Any]:
    """What makes answers comparable: weights, precision, questions, lengths."""
    return {
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


def versions(device: str | None) -> dict[str, Any]:
    """Where it ran; two machines may share a journal."""
    name = "cpu"
    if processes.on_gpu(device):
        numbered = device if device and ":" in device else None
        name = torch.cuda.get_device_name(numbered)
    found = {"python": platform.python_version(), "device": name}
    for package in ("rotatek", "torch", "transformers", "triton"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return {"ran_on": found}
