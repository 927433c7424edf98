"""`rotatek evaluate`: a suite under many settings, as one file of answers and tables."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rotatek.cli.shared import add_model, notice, say
from rotatek.errors import SettingError, UserError

if TYPE_CHECKING:
    from rotatek.evaluation.run import Run

STOPPED_EARLY: Final = 3  # exit status: run it again to go on


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--suite", type=Path, metavar="FOLDER",
        help="pictures with a questions.jsonl; by default the project's own",
    )  # fmt: skip
    parser.add_argument("--splits", default="", metavar="A,B", help="of the suite; by default all")
    parser.add_argument("--questions", type=int, metavar="N", help="about so many; by default all")
    parser.add_argument("--suffix", default="", metavar="TEXT", help="behind every question")
    parser.add_argument(
        "--tables", default="all", metavar="NAMES", help="with commas; list shows them"
    )
    parser.add_argument(
        "--settings", type=Path, metavar="FILE.json",
        help='instead: {"name": {"keep_channels": 0.1}, ...}',
    )  # fmt: skip
    parser.add_argument(
        "--calibration", metavar="FILE", help="of rotatek calibrate: one setting more"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("artifacts/evaluation"), metavar="FOLDER",
        help="answers.csv.gz, report.md and a figure go there; what is answered is not asked again",
    )  # fmt: skip
    parser.add_argument("--limit-s", type=float, metavar="S", help="stop, to go on later, after S")
    parser.add_argument(
        "--at-once", type=int, default=0, metavar="N", help="pictures: 8 on a GPU, else 1"
    )
    parser.add_argument(
        "--part", default="1/1", metavar="I/N", help="of the pictures: N processes share --out"
    )
    parser.add_argument(
        "--report", action="store_true", help="ask nothing: write the report of what --out holds"
    )


def run(args: argparse.Namespace) -> int:
    """Ask what is missing, write the report, and print its tables."""
    from rotatek.evaluation import tables  # noqa: PLC0415  # heavy imports: keep --help quick
    from rotatek.evaluation.answers import ANSWERS  # noqa: PLC0415

    if args.tables == "list":
        for name, rows in tables.TABLES.items():
            print(f"{name:<10} {len(rows):>3} settings: {'; '.join(rows)}")
        return 0
    path = args.out / ANSWERS
    if args.report:
        write_report(path)
        return 0
    number, _, parts = args.part.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise SettingError("--part", "a part and their number, such as 1/4", args.part)
    if args.settings is None:
        settings = tables.settings_of(args.tables, args.calibration)
    else:
        settings = tables.from_file(args.settings)
    from rotatek import models  # noqa: PLC0415
    from rotatek.evaluation.run import Run, engine_for  # noqa: PLC0415
    from rotatek.evaluation.suite import Suite  # noqa: PLC0415

    suite = Suite.read(args.suite).taken([*filter(None, args.splits.split(","))], args.questions)
    engine = engine_for(models.load(args.model, args.device), suite)
    asked = Run(engine, suite, settings, path, args.suffix, notice)
    finished = ask(asked, (int(number) - 1, int(parts)), args.limit_s, args.at_once)
    write_report(path)
    if asked.left_out:
        raise UserError(f"{len(asked.left_out)} pictures could not be asked. Mend those above.")
    return 0 if finished else STOPPED_EARLY


def ask(asked: "Run", part: tuple[int, int], limit_s: float | None, at_once: int) -> bool:
    """Answer what is missing, with a bar on stderr; whether nothing is left."""
    from tqdm import tqdm  # noqa: PLC0415

    owed = asked.missing(part)
    counts = {name: len(questions) for name, questions in asked.suite.pictures.items()}
    total = sum(counts[picture] * len(names) for picture, names in owed.items())
    with tqdm(total=total, unit="answer", file=sys.stderr, smoothing=0.05) as bar:
        for added in asked.answer(owed, limit_s, at_once):
            bar.update(added)
    return not asked.missing(part)


def write_report(path: Path) -> None:
    """Write `report.md` and `figure.svg` beside a file of answers, and print the tables."""
    from rotatek.evaluation.report import figure, markdown, rows  # noqa: PLC0415

    records = rows(path)
    text = markdown(records)
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "report.md").write_text(text, encoding="utf-8")
    (path.parent / "figure.svg").write_text(figure(records), encoding="utf-8")
    say(text.rstrip("\n"))
