"""The command `python -m rotatek evaluate`: a model, a suite, tables of settings."""

import argparse
import json
import platform
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from rotatek.config import BASELINE, Settings
from rotatek.errors import SettingError, UserError
from rotatek.evaluation import jobs, report
from rotatek.evaluation.journal import Journal, weights_id
from rotatek.evaluation.run import Runner, Unit, size
from rotatek.evaluation.suite import (
    EMBEDDED,
    LONG_TOKENS,
    QUESTIONS,
    SHORT_TOKENS,
    FileSuite,
    StoredSuite,
    Suite,
    describe,
    draw,
)
from rotatek.evaluation.tables import Row, Scope, Table, tables, wanted
from rotatek.models import VisionLanguageModel, load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--model", default="pocket", metavar="NAME", help="a name, folder, hub id")
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda, or auto for several GPUs")
    parser.add_argument(
        "--suite", default="pocket", metavar="SUITE", help="pocket, pocket-unseen or FILE.jsonl"
    )
    parser.add_argument("--questions", type=int, default=1_000, metavar="N", help="embedded suites")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the embedded suites")
    parser.add_argument(
        "--tables",
        default="all",
        metavar="NAMES",
        help="all, or names with commas; list shows them",
    )
    parser.add_argument(
        "--settings", metavar="FILE.json", help='instead: {"label": {"keep_channels": 0.1}, ...}'
    )
    parser.add_argument(
        "--cache-dtype", default="model", help="storage of every RotateK row: model, fp8 or int8"
    )
    parser.add_argument("--suffix", default="", metavar="TEXT", help="appended to every question")
    parser.add_argument("--short-tokens", type=int, default=SHORT_TOKENS, metavar="N")
    parser.add_argument("--long-tokens", type=int, default=LONG_TOKENS, metavar="N")
    parser.add_argument("--batch", type=int, metavar="N", help="questions at once: 64 on a GPU")
    parser.add_argument("--graph", action="store_true", help="decode by CUDA graph (GPU only)")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="processes side by side, over all GPUs"
    )
    parser.add_argument("--part", metavar="I/N", help="answer the I-th of N parts only; see --jobs")
    parser.add_argument(
        "--report", action="store_true", help="run nothing: write the report of what --out holds"
    )
    parser.add_argument(
        "--no-report", action="store_true", help="only answer: --report writes it, on any machine"
    )
    parser.add_argument(
        "--draw", action="store_true", help="only draw an embedded suite into --out, for later runs"
    )
    parser.add_argument("--limit-s", type=float, metavar="S", help="stop, to go on later, after S")
    parser.add_argument(
        "--out", type=Path, default=Path("artifacts/evaluation"), metavar="FOLDER",
        help="journal.jsonl, questions, pictures and results go there",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Run what is missing, then write the report. Status 3: stopped early, run it again."""
    if args.tables == "list":
        for table in tables().values():
            print(f"{table.name:<20} {len(table.rows):>3} rows  {table.title}")
        return 0
    chosen = choose(args)
    if args.jobs < 1:
        raise SettingError("--jobs", "a whole number from 1", args.jobs)
    part = jobs.parse_part(args.part) if args.part else None
    if args.report:
        kept = args.out / QUESTIONS
        write_report(args, chosen, StoredSuite(kept) if kept.exists() else open_suite(args))
        return 0
    suite = open_suite(args)
    if args.draw:
        return 0
    if part is not None:
        return 0 if answer_part(args, chosen, suite, part) else 3
    refused = jobs.merge(args.out)  # what an interrupted run left
    finished, more = (run_jobs if args.jobs > 1 else run_here)(args, chosen, suite)
    if not args.no_report:
        write_report(args, chosen, suite, {**refused, **more})
    return 0 if finished else 3


def write_report(
    args: argparse.Namespace,
    chosen: list[Table],
    suite: Suite,
    refused: dict[str, str] | None = None,
) -> None:
    """Write the report of the answers that there are; of a run that ends here, say where it ran."""
    header, answers = jobs.gather(args.out, describe(suite))
    ran = {} if refused is None else {**versions(args.device), "refused": refused}
    write(args.out, report.build(chosen, suite.items, answers, {**header, **ran}))


def run_here(
    args: argparse.Namespace,
    chosen: list[Table],
    suite: Suite,
    part: tuple[int, int] | None = None,
) -> tuple[bool, dict[str, str]]:
    """Answer in this process; whether it finished, and the settings that were refused."""
    vlm = load(args.model, args.device)
    limits = (args.short_tokens, args.long_tokens)
    header = describe_run(vlm, suite, args.suffix, limits)
    whole = args.out / "journal.jsonl"
    if part is None:
        journal = Journal(whole, header)
    else:
        journal = Journal(jobs.part_path(args.out, part[0]), header, earlier=whole)
    runner = Runner(
        vlm,
        suite,
        journal,
        batch=args.batch or (64 if vlm.device.type == "cuda" else 8),
        suffix=args.suffix,
        limits=limits,
        graph=args.graph,
        notice=_notice,
    )
    units = runner.units(list(wanted(chosen)), part or (0, 1))
    return work(runner, units, args.limit_s), runner.refused


def answer_part(
    args: argparse.Namespace, chosen: list[Table], suite: Suite, part: tuple[int, int]
) -> bool:
    """Answer one part and leave its journal to be merged; whether it finished."""
    finished, refused = run_here(args, chosen, suite, part)
    path = args.out / f"refused-part-{part[0]}.json"
    path.write_text(json.dumps(refused), encoding="utf-8")
    return finished


def run_jobs(
    args: argparse.Namespace, chosen: list[Table], suite: Suite
) -> tuple[bool, dict[str, str]]:
    """Let several processes answer; whether they finished, and the settings that were refused."""
    refused: dict[str, str] = {}
    counts = {"all": len(suite.items), "long": sum(item.long for item in suite.items)}
    total = sum(counts[scope] for _, scope in wanted(chosen))
    try:
        with tqdm(total=total, unit="answer", file=sys.stderr) as bar:
            finished = jobs.run(args, lambda held: bar.update(held - bar.n))
    finally:
        refused |= jobs.merge(args.out)
    return finished, refused


def write(folder: Path, built: dict[str, Any]) -> None:
    """Save a report as JSON, a row a line, and as Markdown."""
    text = json.dumps(built, ensure_ascii=False).replace('{"label": ', '\n{"label": ') + "\n"
    (folder / "results.json").write_text(text, encoding="utf-8")
    (folder / "results.md").write_text(report.markdown(built), encoding="utf-8")
    print(folder / "results.md")


def _notice(text: str) -> None:
    tqdm.write(text, file=sys.stderr)


def _stored(table: Table, cache_dtype: Any) -> Table:
    """The same table with its RotateK rows in another storage."""
    rows = [
        replace(row, settings=replace(row.settings, cache_dtype=cache_dtype))
        if row.settings.channels == "rotatek"
        else row
        for row in table.rows
    ]
    return replace(table, rows=tuple(rows))


def choose(args: argparse.Namespace) -> list[Table]:
    """The tables that the options ask for."""
    chosen = custom(Path(args.settings)) if args.settings else select(tables(), args.tables)
    if args.cache_dtype != "model":
        chosen = [_stored(table, args.cache_dtype) for table in chosen]
    return chosen


def select(known: dict[str, Table], names: str) -> list[Table]:
    """Tables by name."""
    if names == "all":
        return list(known.values())
    for name in names.split(","):
        if name not in known:
            raise SettingError("--tables", "all, list, or some of " + ", ".join(known), name)
    return [known[name] for name in names.split(",")]


def custom(path: Path) -> list[Table]:
    """One table from a file of labelled settings, the uncompressed model first."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        pairs = [(str(label), dict(values)) for label, values in rows.items()]
    except (OSError, ValueError, AttributeError, TypeError) as exc:
        raise UserError(
            'The settings file is not JSON of the form {"label": {"keep_channels": 0.25}, ...}.'
        ) from exc
    made = [Row(label, Settings.from_dict(values)) for label, values in pairs]
    scope: Scope = "all"
    return [Table(path.stem, path.stem, (Row("Uncompressed", BASELINE), *made), (), scope)]


def open_suite(args: argparse.Namespace) -> Suite:
    """An embedded suite, drawn into --out where it is not there; or a file, its questions kept."""
    if args.suite in EMBEDDED:
        if not 1 <= args.questions <= 100_000:
            raise SettingError("--questions", "a whole number from 1 to 100,000", args.questions)
        return draw(args.suite, args.questions, args.seed, args.out)
    suite = FileSuite(Path(args.suite))
    StoredSuite.save(suite, args.out / QUESTIONS)
    return suite


def work(runner: Runner, units: list[Unit], limit_s: float | None) -> bool:
    """Answer with a progress bar on stderr; False if the time was over first."""
    total = size(units)
    with tqdm(total=total, unit="answer", file=sys.stderr, smoothing=0.05) as bar:
        for added in runner.run(units):
            bar.update(added)
            if limit_s is not None and bar.format_dict["elapsed"] > limit_s:
                return bar.n >= total
    return True


def describe_run(
    vlm: VisionLanguageModel, suite: Suite, suffix: str, limits: tuple[int, int]
) -> dict[str, Any]:
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
        "suffix": suffix,
        "max_new_tokens": list(limits),
    }


def versions(device: str | None) -> dict[str, Any]:
    """Where it ran; two machines may share a journal."""
    name = "cpu"
    if jobs.on_gpu(device):
        numbered = device if device and ":" in device else None
        name = torch.cuda.get_device_name(numbered)
    found = {"python": platform.python_version(), "device": name}
    for package in ("rotatek", "torch", "transformers", "triton"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return {"ran_on": found}
