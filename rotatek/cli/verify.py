"""`rotatek verify`: how far a model's cache can be compressed, as a ladder with a verdict."""

import argparse
import json
from pathlib import Path
from typing import Final

from rotatek.cli.evaluate import ask
from rotatek.cli.shared import add_model, notice, say
from rotatek.errors import UserError

EMBEDDED: Final = ("pocket", "pocket-smol")  # models whose answers are brief
BRIEF: Final = " Answer with a single word, name or number."


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
        help="answers.csv.gz, verify.md and verify.json go there; what is answered is kept",
    )  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Ask and time every rung, and print the ladder, its verdicts, and one recommendation."""
    from rotatek import models  # noqa: PLC0415  # keeps --help quick
    from rotatek.engine.engine import Engine  # noqa: PLC0415
    from rotatek.evaluation import ladder  # noqa: PLC0415
    from rotatek.evaluation.answers import ANSWERS, read  # noqa: PLC0415
    from rotatek.evaluation.report import rows  # noqa: PLC0415
    from rotatek.evaluation.run import Run, engine_for  # noqa: PLC0415
    from rotatek.evaluation.suite import Suite  # noqa: PLC0415
    from rotatek.evaluation.tables import BESIDE, LADDER, UNCOMPRESSED, settings_of  # noqa: PLC0415

    suite = Suite.read(args.suite).taken((), args.questions)
    if not any(len(questions) > 1 for questions in suite.pictures.values()):
        raise UserError("No picture has a second question. Give pictures with two questions each.")
    vlm = models.load(args.model, args.device)
    factors = {f"RotateK, smaller {factor}": factor for factor in LADDER}
    known = settings_of()
    settings = {name: known[name] for name in (UNCOMPRESSED, *factors, *BESIDE)}
    suffix = args.suffix if args.suffix is not None else "" if vlm.name in EMBEDDED else BRIEF
    asked = Run(engine_for(vlm, suite), suite, settings, args.out / ANSWERS, suffix, notice)
    ask(asked, (0, 1), None, 0)
    mine = [one for one in read(asked.path) if one.model == asked.model and one.turn == 1]
    sizes = {name: sum(one.bytes for one in mine if one.setting == name) for name in settings}
    usual = f"RotateK, smaller {LADDER[0]}"
    if not 0 < sizes[usual] < sizes[UNCOMPRESSED]:
        raise UserError(
            "Nothing was compressed: this model's caches are as large as uncompressed ones. "
            "`rotatek info` says which families are supported."
        )
    alone = Engine(vlm, graphs=vlm.device.type == "cuda")
    timed = {name: one for name, one in settings.items() if name not in asked.refused}
    measured = dict(ladder.speeds(alone, suite, timed, suffix))
    found = ladder.rungs([one for one in rows(asked.path) if one.model == asked.model], measured)
    health, advice = alone.health(), ladder.advice(found, factors)
    text = (
        f"# {asked.model}: what compression does\n\n"
        f"The caches of {len(suite.pictures)} pictures took {sizes[UNCOMPRESSED]:,} bytes, and "
        f"{sizes[usual]:,} with `--smaller {LADDER[0]}`. Attention to them is computed by "
        f"{health.attention} on {health.device}.\n\n"
        f"{ladder.markdown(found)}\n\n{ladder.LEGEND}\n\n{advice}\n"
    )
    (args.out / "verify.md").write_text(text, encoding="utf-8")
    told = {
        "model": asked.model, "attention": health.attention, "device": health.device,
        "advice": advice,
        "rungs": [
            one.record._asdict() | one.speed._asdict() | {"verdict": one.verdict} for one in found
        ],
    }  # fmt: skip
    (args.out / "verify.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    say(text.rstrip("\n"))
