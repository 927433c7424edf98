"""`rotatek evaluate`: the paper's tables, on any model and suite."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rotatek.cli.answers import say
from rotatek.cli.request_arguments import Removed, add_model
from rotatek.cli.settings_arguments import add_option, given
from rotatek.errors import SettingError, UserError
from rotatek.evaluation import equal_bytes_table
from rotatek.evaluation.answer_archive import restore, unpack
from rotatek.evaluation.chains import ASKS, FIRST, SECOND
from rotatek.evaluation.journal import journals
from rotatek.evaluation.suite import (
    EMBEDDED,
    LONG_TOKENS,
    QUESTIONS,
    SHORT_TOKENS,
    FileSuite,
    StoredSuite,
    Suite,
    draw,
)
from rotatek.evaluation.tables import Table, from_file, named, second_table, tables, with_options
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import check_taken
from rotatek.methods.tokens import TOKENS

if TYPE_CHECKING:
    from rotatek.evaluation.evaluate import Evaluation

STOPPED_EARLY: Final = 3
PARTS: Final = "Start N processes with --part 1/N to --part N/N and the same --out."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for the questions, the model, the settings, and the share of the work."""
    add_model(parser)
    _add_questions(parser)
    _add_tables(parser)
    _add_running(parser)


def _add_questions(parser: argparse.ArgumentParser) -> None:
    embedded = " or ".join(EMBEDDED)
    parser.add_argument(
        "--suite", default="pocket", metavar="SUITE", help=f"{embedded}, or FILE.jsonl"
    )
    parser.add_argument("--questions", type=int, default=1_000, metavar="N", help="embedded suites")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the embedded suites")
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="of pictures with a questions.jsonl, as --suite",
    )
    parser.add_argument(
        "--ask",
        choices=ASKS,
        default=FIRST,
        help="each question for itself; or on the cache that the picture's first question left; or "
        "on that of a question about nothing in particular",
    )
    parser.add_argument("--suffix", default="", metavar="TEXT", help="appended to every question")
    parser.add_argument("--short-tokens", type=int, default=SHORT_TOKENS, metavar="N")
    parser.add_argument("--long-tokens", type=int, default=LONG_TOKENS, metavar="N")


def _add_tables(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tables",
        metavar="NAMES",
        help="all, or names with commas; list shows them. By default all of first questions, and "
        "the table `second` of others",
    )
    parser.add_argument(
        "--settings", metavar="FILE.json", help='instead: {"label": {"keep_channels": 0.1}, ...}'
    )
    group = parser.add_argument_group(
        "options of methods", "of every row whose method has them and leaves them at their default"
    )
    for registry in (TOKENS, CHANNELS):
        for key, owned in registry.options().items():
            if owned[0][1].kind != "fraction":  # shares are what the rows are about
                add_option(group, key, owned, registry)


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=int, metavar="N", help="questions at once: 128 on a GPU")
    parser.add_argument("--graph", action="store_true", help="decode by CUDA graph (GPU only)")
    parser.add_argument("--jobs", action=Removed, const=PARTS, help=argparse.SUPPRESS)
    parser.add_argument(
        "--part", metavar="I/N", default="1/1",
        help="ask one part of N only: N processes share --out",
    )  # fmt: skip
    parser.add_argument(
        "--sharing", type=int, metavar="N",
        help="processes that share the GPU's memory: by default as many as parts",
    )  # fmt: skip
    parser.add_argument(
        "--report", action="store_true", help="run nothing: write the report of what --out holds"
    )
    parser.add_argument(
        "--no-report", action="store_true", help="only answer: --report writes it, on any machine"
    )
    parser.add_argument(
        "--pack",
        type=Path,
        metavar="FILE",
        help="also pack the answers there are into one small file, from which every table follows",
    )
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="first lay a packed file's answers into --out"
    )
    parser.add_argument(
        "--draw",
        action="store_true",
        help="only draw the suite, and solve budgets where a table has them, into --out",
    )
    parser.add_argument("--limit-s", type=float, metavar="S", help="stop, to go on later, after S")
    parser.add_argument(
        "--out", type=Path, default=Path("artifacts/evaluation"), metavar="FOLDER",
        help="journal.jsonl, questions, pictures and results go there",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Answer the missing questions, then write the report.

    Returns:
        0, or 3 if it stopped early: run it again.

    Raises:
        UserError: for arguments that are refused, before anything is loaded.
    """
    args.tables = args.tables or ("all" if args.ask == FIRST else SECOND)
    if args.tables == "list":
        for table in (*tables().values(), second_table()):
            print(f"{table.name:<20} {len(table.rows):>3} rows  {table.title}")
        print(f"{equal_bytes_table.NAME:<20}   solved  {equal_bytes_table.TITLE}; not among all")
        return 0
    chosen = tables_of(args)
    if args.report:
        kept = args.out / QUESTIONS
        suite = StoredSuite(kept) if kept.exists() else open_suite(args)
        evaluation = evaluation_of(args, chosen + solved_table(args), suite)
        if args.pack is not None:
            say(evaluation.pack(args.pack))
        if not args.no_report:
            say(evaluation.write_report())
        return 0
    if args.resume is not None and args.resume.exists() and not journals(args.out):
        restore(unpack(args.resume), args.out)
    suite = open_suite(args)
    solved = solved_table(args, suite)
    return 0 if args.draw else answer_all(args, evaluation_of(args, chosen + solved, suite))


def answer_all(args: argparse.Namespace, evaluation: "Evaluation") -> int:
    """Answer the missing questions, and write the report; the exit status."""
    outcome = evaluation.answer()
    if outcome.unwritten:
        say(outcome.unwritten.rstrip("\n"))
        raise UserError(
            f"{evaluation.journal} could not be written. The answers that it lacks are the lines "
            "above: free some space and append them, or run the command again."
        )
    if args.pack is not None:
        say(evaluation.pack(args.pack, outcome.refused))
    if not args.no_report:
        say(evaluation.write_report(outcome.refused))
    if not outcome.finished:
        return STOPPED_EARLY
    bad = len(outcome.left_out) + len(getattr(evaluation.suite, "bad", ()))
    if bad:
        raise UserError(
            f"{bad} of the suite's questions could not be asked. Mend those named above."
        )
    return 0


def evaluation_of(args: argparse.Namespace, chosen: list[Table], suite: Suite) -> "Evaluation":
    """The suite that the arguments name."""
    from rotatek.evaluation.evaluate import Evaluation  # noqa: PLC0415
    from rotatek.evaluation.runner import RunOptions  # noqa: PLC0415

    limits, part = (args.short_tokens, args.long_tokens), part_of(args.part)
    sharing = part[1] if args.sharing is None else args.sharing
    if sharing < 1:
        raise SettingError("--sharing", "a whole number from 1", sharing)
    options = RunOptions(args.batch, args.suffix, limits, args.graph, args.ask, sharing)
    return Evaluation(args.model, suite, chosen, args.out, args.device, options, args.limit_s, part)


def part_of(text: str) -> tuple[int, int]:
    """A part's index from 0, and the number of parts, from "1/4".

    Raises:
        SettingError: for anything else.
    """
    number, slash, parts = text.partition("/")
    if slash and number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts):
        return int(number) - 1, int(parts)
    raise SettingError("--part", "a part and their number, such as 1/4", text)


def tables_of(args: argparse.Namespace) -> list[Table]:
    """The tables that the arguments ask for.

    Raises:
        UserError: for a name, a file or an option that there is not.
    """
    if args.settings:
        chosen = [from_file(Path(args.settings))]
    else:
        names = [name for name in args.tables.split(",") if name != equal_bytes_table.NAME]
        chosen = named(",".join(names)) if names else []
    options: dict[str, Any] = given(args)
    made = [with_options(table, options) for table in chosen] if options else chosen
    check_taken([row.settings for table in made for row in table.rows], options)
    return made


def solved_table(args: argparse.Namespace, suite: Suite | None = None) -> list[Table]:
    """The table that is solved for a model, where it was asked for: from --out, or solved now.

    Args:
        args: of the command.
        suite: on which it may be solved; None where nothing is to be run.
    """
    if args.settings or equal_bytes_table.NAME not in args.tables.split(","):
        return []
    kept = equal_bytes_table.stored(args.out)
    if kept is None and suite is not None:
        from rotatek import models  # noqa: PLC0415  # heavy imports only when they are needed

        kept = equal_bytes_table.solve(models.load(args.model, args.device), suite, args.out)
    return [] if kept is None else [kept]


def open_suite(args: argparse.Namespace) -> Suite:
    """An embedded suite, drawn into --out if missing; or a file, with a copy of its questions."""
    if args.folder is not None:
        args.suite = str(args.folder / QUESTIONS)
    if args.suite in EMBEDDED:
        if not 1 <= args.questions <= 100_000:
            raise SettingError("--questions", "a whole number from 1 to 100,000", args.questions)
        return draw(args.suite, args.questions, args.seed, args.out)
    suite = FileSuite(Path(args.suite))
    for sentence in suite.bad:
        print(sentence, file=sys.stderr)
    StoredSuite.save(suite, args.out / QUESTIONS)
    return suite
