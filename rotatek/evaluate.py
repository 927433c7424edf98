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
from rotatek.evaluation.run import Journal, Runner, weights_id
from rotatek.evaluation.suite import (
    LONG_TOKENS,
    SHORT_TOKENS,
    SPLITS,
    EmbeddedSuite,
    FileSuite,
    StoredSuite,
    Suite,
    describe,
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
    parser.add_argument("--limit-s", type=float, metavar="S", help="stop, to go on later, after S")
    parser.add_argument(
        "--out", type=Path, default=Path("artifacts/evaluation"), metavar="FOLDER",
        help="results.json, results.md and journal.jsonl go there",
    )  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Run what is missing, then write the report. Status 3: stopped early, run it again."""
    known = tables()
    if args.tables == "list":
        for table in known.values():
            print(f"{table.name:<20} {len(table.rows):>3} rows  {table.title}")
        return 0
    chosen = custom(Path(args.settings)) if args.settings else select(known, args.tables)
    if args.cache_dtype != "model":
        chosen = [_stored(table, args.cache_dtype) for table in chosen]
    if args.jobs < 1:
        raise SettingError("--jobs", "a whole number from 1", args.jobs)
    part = jobs.parse_part(args.part) if args.part else (0, 1)
    kept = args.out / "questions.jsonl"
    if args.report and kept.exists():
        report_only(args.out, chosen, StoredSuite(kept), {})
        return 0
    suite = open_suite(args.suite, args.questions, args.seed)
    if args.report:
        report_only(args.out, chosen, suite, {})
        return 0
    if not args.part:
        StoredSuite.save(suite, kept)
    if args.jobs > 1:
        finished, refused = run_jobs(args, chosen, suite)
        report_only(args.out, chosen, suite, {**versions(args.device), "refused": refused})
        return 0 if finished else 3
    vlm = load(args.model, args.device)
    batch = args.batch or (64 if vlm.device.type == "cuda" else 8)
    limits = (args.short_tokens, args.long_tokens)
    header = describe_run(vlm, suite, args.suffix, limits)
    name = jobs.part_path(args.out, part[0]) if args.part else args.out / "journal.jsonl"
    journal = Journal(name, header)
    runner = Runner(
        vlm,
        suite,
        journal,
        batch=batch,
        suffix=args.suffix,
        limits=limits,
        graph=args.graph,
        notice=_notice,
    )
    finished = work(runner, list(wanted(chosen)), args.limit_s, part)
    if args.part:
        path = args.out / f"refused-part-{part[0]}.json"
        path.write_text(json.dumps(runner.refused), encoding="utf-8")
        return 0 if finished else 3
    built = report.build(
        chosen, suite.items, journal.answers, {**header, **versions(str(vlm.device))}
    )
    built["refused"] = runner.refused
    write(args.out, built)
    return 0 if finished else 3


def report_only(out: Path, chosen: list[Table], suite: Suite, more: dict[str, Any]) -> None:
    """Write the report of a journal that is there."""
    journal = Journal.read(out / "journal.jsonl", describe(suite))
    built = report.build(chosen, suite.items, journal.answers, {**journal.header, **more})
    write(out, built)


def run_jobs(
    args: argparse.Namespace, chosen: list[Table], suite: Suite
) -> tuple[bool, dict[str, str]]:
    """Let several processes answer; whether they finished, and the settings that were refused."""
    jobs.merge(args.out)  # what an interrupted run left
    counts = {"all": len(suite.items), "long": sum(item.long for item in suite.items)}
    total = sum(counts[scope] for _, scope in wanted(chosen))
    with tqdm(total=total, unit="answer", file=sys.stderr) as bar:
        finished = jobs.run(args, lambda held: bar.update(held - bar.n))
    return finished, jobs.merge(args.out)


def write(folder: Path, built: dict[str, Any]) -> None:
    """Save a report as JSON and as Markdown."""
    text = json.dumps(built, indent=1, ensure_ascii=False) + "\n"
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


def open_suite(name: str, questions: int, seed: int) -> Suite:
    """An embedded suite by name, or a file."""
    if name in SPLITS:
        if not 1 <= questions <= 100_000:
            raise SettingError("--questions", "a whole number from 1 to 100,000", questions)
        return EmbeddedSuite(name, questions, seed)
    return FileSuite(Path(name))


def work(
    runner: Runner, todo: list[tuple[Settings, str]], limit_s: float | None, part: tuple[int, int]
) -> bool:
    """Answer with a progress bar on stderr; False if the time was over first."""
    missing = sum(len(owed) for _, owed in runner.missing(todo))
    with tqdm(total=missing, unit="answer", file=sys.stderr, smoothing=0.05) as bar:
        for added in runner.run(todo, part):
            bar.update(added)
            if limit_s is not None and bar.format_dict["elapsed"] > limit_s:
                return bar.n >= missing
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
    on_gpu = torch.cuda.is_available() and (device is None or device.startswith("cuda"))
    name = torch.cuda.get_device_name(None) if on_gpu else "cpu"
    found = {"python": platform.python_version(), "device": name}
    for package in ("rotatek", "torch", "transformers", "triton"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return {"ran_on": found}
