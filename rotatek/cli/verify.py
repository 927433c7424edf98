"""`rotatek verify`: that compression runs with a model, and what its answers lose."""

import argparse
from pathlib import Path
from typing import Final

from rotatek.cli.answers import say
from rotatek.cli.evaluate import ask, notice
from rotatek.cli.request_arguments import add_model
from rotatek.errors import UserError

EMBEDDED: Final = ("pocket", "pocket-smol")  # models whose answers are brief
BRIEF: Final = " Answer with a single word, name or number."
USUAL_ROW: Final = "the default"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which model, which questions, and where the answers go."""
    add_model(parser)
    parser.add_argument(
        "--suite", type=Path, metavar="FOLDER",
        help="your own pictures with a questions.jsonl; by default the project's",
    )  # fmt: skip
    parser.add_argument("--questions", type=int, default=48, metavar="N", help="about so many")
    parser.add_argument(
        "--suffix", metavar="TEXT",
        help="behind every question; by default a wish for brevity, which embedded models need not",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("artifacts/verify"), metavar="FOLDER",
        help="answers.csv.gz and verify.md go there; a run that was cut off goes on",
    )  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Ask, and print bytes before and after, the kernel, and scores beside the uncompressed cache.

    Raises:
        UserError: for arguments that are refused, before the model is loaded; and where no cache
            became smaller.
    """
    from rotatek import models  # noqa: PLC0415  # keeps --help quick
    from rotatek.evaluation.answers import ANSWERS, read  # noqa: PLC0415
    from rotatek.evaluation.report import rows, table_of  # noqa: PLC0415
    from rotatek.evaluation.run import Run, engine_for  # noqa: PLC0415
    from rotatek.evaluation.suite import Suite  # noqa: PLC0415
    from rotatek.evaluation.tables import UNCOMPRESSED, VERIFIED, settings_of  # noqa: PLC0415
    from rotatek.methods.settings import USUAL  # noqa: PLC0415

    suite = Suite.read(args.suite).taken((), args.questions)
    if not any(len(questions) > 1 for questions in suite.pictures.values()):
        raise UserError("No picture has a second question. Give pictures with two questions each.")
    vlm = models.load(args.model, args.device)
    known = settings_of()
    settings = {UNCOMPRESSED: known[UNCOMPRESSED], USUAL_ROW: USUAL}
    settings |= {name: known[name] for name in VERIFIED}
    suffix = args.suffix if args.suffix is not None else "" if vlm.name in EMBEDDED else BRIEF
    engine = engine_for(vlm, suite)
    asked = Run(engine, suite, settings, args.out / ANSWERS, suffix, notice)
    ask(asked, (0, 1), None, 0)
    records = [one for one in rows(asked.path) if one.model == asked.model]
    mine = [one for one in read(asked.path) if one.model == asked.model and one.turn == 1]
    sizes = {name: sum(one.bytes for one in mine if one.setting == name) for name in settings}
    if not 0 < sizes[USUAL_ROW] < sizes[UNCOMPRESSED]:
        raise UserError(
            "Nothing was compressed: this model's caches are as large as uncompressed ones. "
            "`rotatek info` says which families are supported."
        )
    health = engine.health()
    text = (
        f"# {asked.model}: what compression does\n\n"
        f"The caches of {len(suite.pictures)} pictures took {sizes[UNCOMPRESSED]:,} bytes, and "
        f"{sizes[USUAL_ROW]:,} where nothing is chosen. Attention to them is computed by "
        f"{health.attention} on {health.device}.\n\n"
        f"{table_of(records, settings)}\n"
    )
    (args.out / "verify.md").write_text(text, encoding="utf-8")
    say(text.rstrip("\n"))
