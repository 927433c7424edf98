"""A model's own evidence in minutes: second questions, bytes, speed and memory as one table."""

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from rotatek.compare.columns import QUARTER
from rotatek.evaluation.cells import Cell, Results, Score
from rotatek.evaluation.chains import OPENING, SECOND, chains
from rotatek.evaluation.evaluate import describe_run, versions
from rotatek.evaluation.generation_cost import Cost, costs
from rotatek.evaluation.journal import JOURNAL, Journal
from rotatek.evaluation.report import build, table_of, type_of
from rotatek.evaluation.runner import Runner, RunOptions
from rotatek.evaluation.suite import Selection, Suite
from rotatek.evaluation.tables import Table, second_table
from rotatek.inputs.request import make_request
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel

LIGHT: Final = 0.2  # of the numbers' bits: what a method that stores all of them may keep
ANSWER_TOKENS: Final = 48  # of a short answer; models that chat are asked to be brief
BRIEF: Final = " Answer with a single word, name or number."
TIMED_SIDE: Final = 1344  # pixels of the picture whose cost is measured, as large as a page


def sampled(suite: Suite, pictures: int, seed: int) -> Selection:
    """Some pictures of a suite that have a question to follow, chosen by a seed; no whole pages."""
    short = [item for item in suite.items if not item.long]
    documents = [chain.document for chain in chains(short, SECOND)]
    kept = set(random.Random(seed).sample(documents, min(pictures, len(documents))))
    return Selection(suite, [item for item in short if item.document in kept])


@dataclass(frozen=True)
class Verification:
    """What to verify.

    Args:
        vlm: the model.
        suite: of whose pictures some are asked.
        out: the folder of journal and results; a run that was cut off goes on there.
        limit_s: seconds for the answers; what is not answered by then is not counted.
        side: pixels of the square picture whose cost is measured.
        suffix: behind every question.
    """

    vlm: VisionLanguageModel
    suite: Suite
    out: Path
    limit_s: float = 480.0
    side: int = TIMED_SIDE
    suffix: str = BRIEF

    def run(self, notice: Callable[[str], None]) -> tuple[str, dict[str, Any]]:
        """Answer, measure, and write `verify.md` and `verify.json`.

        Args:
            notice: called for settings that the model does not support.

        Returns:
            the page of Markdown, and the same as JSON.
        """
        table = verified_table()
        options = RunOptions(suffix=self.suffix, limits=(ANSWER_TOKENS, ANSWER_TOKENS), ask=SECOND)
        header = describe_run(self.vlm, self.suite, options)
        journal = Journal(self.out / JOURNAL, header)
        journal.record(row.settings for row in table.rows)
        asked = Selection(self.suite, chains(self.suite.items, SECOND))
        runner = Runner(self.vlm, asked, journal, options, notice)
        units = runner.units([(row.settings, "all") for row in table.rows])
        end = time.monotonic() + self.limit_s
        for _ in runner.run(units):
            if time.monotonic() > end:
                break
        device = None if self.vlm.device.type == "cuda" else "cpu"
        results = build([table], self.suite.items, journal.answers, header | versions(device))
        timed = [row for row in table.rows if row.label in {cell.row for cell in results.cells}]
        prompt = self._timed()
        measured = costs(self.vlm, prompt, [row.settings for row in timed])
        by_label = dict(zip([row.label for row in timed], measured, strict=True))
        found = report(results, by_label, prompt.visual_tokens)
        self.out.mkdir(parents=True, exist_ok=True)
        text = markdown(found)
        (self.out / "verify.md").write_text(text, encoding="utf-8")
        held = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        (self.out / "verify.json").write_text(held, encoding="utf-8")
        return text, found

    def _timed(self) -> Any:
        """A prompt about a picture of noise, which no question of the suite has."""
        noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        picture = Image.fromarray(noise).resize((self.side, self.side))
        return self.vlm.prompt(make_request(picture, "What is the total?", 8))


def verified_table() -> Table:
    """The rows of the table of second questions that fit into ten minutes."""
    table = second_table()
    return replace(table, rows=tuple(row for row in table.rows if _fits(row.settings)))


def _fits(settings: Settings) -> bool:
    """Whether a setting is the reference, drops tokens, or is small enough to be of interest."""
    method = settings.channels
    if settings.is_baseline or settings.prunes_tokens or method.bits_a_number is not None:
        return True
    if method.drops_channels:
        return isinstance(method, CHANNELS.default) and method.key_share <= QUARTER
    return settings.nominal_kv <= LIGHT


def report(results: Results, measured: dict[str, Cost], tokens: int) -> dict[str, Any]:
    """Everything that was found, ready for JSON.

    Args:
        results: of the answers.
        measured: what each row costs.
        tokens: visual tokens of the picture that costs were measured on.
    """
    (run,) = results.runs
    name = run["tables"][0]["name"] if run["tables"] else "second"
    cells = results.of(run).get(name, [])
    opened = {cell.row: cell for cell in results.of(run, OPENING).get(name, [])}
    rows = [_row(cell, opened.get(cell.row), measured[cell.row]) for cell in cells]
    questions = run["tables"][0]["questions"] if run["tables"] else 0
    pictures = run["tables"][0]["documents"] if run["tables"] else 0
    about = {name: run[name] for name in ("model", "suite", "ran_on")}
    asked = {"second_questions": questions, "pictures": pictures, "timed_visual_tokens": tokens}
    return about | asked | {"type": type_of(run), "rows": rows}


def _row(cell: Cell, opened: Cell | None, cost: Cost) -> dict[str, Any]:
    peak = None if cost.peak_bytes is None else round(cost.peak_bytes / 2**20, 1)
    return {
        "kept": cell.row, "live_share": round(cell.live, 5),
        "second": [round(value, 5) for value in cell.score], "same": cell.same,
        "first": None if opened is None else round(opened.score.mean, 5),
        "first_token_ms": round(cost.first_ms, 2), "step_ms": round(cost.step_ms, 3),
        "cache_mib": round(cost.cache_bytes / 2**20, 3), "peak_mib": peak,
    }  # fmt: skip


def markdown(found: dict[str, Any]) -> str:
    """The table, to be read and to be pasted, with what it rests on."""
    model, where = found["model"], found["ran_on"]
    heads = ("kept", "live bytes, each prompt's own", "second questions", "the same answer",
             "first questions", "first token, ms", "step, ms", "cache, MiB",
             "peak beside weights, MiB")  # fmt: skip
    body = []
    for row in found["rows"]:
        body.append((
            row["kept"], f"1 / {1 / row['live_share']:.1f}",
            Score(*row["second"]).in_percent(),
            "" if row["same"] is None else f"{100 * row['same']:.0f} %",
            "" if row["first"] is None else f"{100 * row['first']:.1f}",
            f"{row['first_token_ms']:.1f}", f"{row['step_ms']:.2f}", f"{row['cache_mib']:.1f}",
            "" if row["peak_mib"] is None else f"{row['peak_mib']:,.0f}",
        ))  # fmt: skip
    return "\n".join([
        f"# {model['name']}: second questions, bytes, speed and memory", "",
        f"{found['second_questions']} second questions about {found['pictures']} pictures of "
        f"{found['suite']['name']}, asked on the cache that each picture's first question left; "
        f"{found['type']}, {where['device']}, torch {where['torch']}, transformers "
        f"{where['transformers']}. Intervals are 95 %, resampled by picture. Speed and memory are "
        f"one prompt's of {found['timed_visual_tokens']:,} visual tokens, prompt and answer.", "",
        table_of(heads, body),
    ]) + "\n"  # fmt: skip
