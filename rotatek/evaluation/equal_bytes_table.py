"""The table of rivals: every method at a few budgets of live bytes, solved for one model and suite.

Which setting meets a budget depends on the model's shape and on how long prompts are, so the rows
are solved once, in the mean over prompts of the suite that are each counted for themselves, and
kept in the run's folder: a run that goes on, its other
processes and its report read them there.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

from rotatek.compare.columns import QUARTER, pruners, reducers, title_of
from rotatek.compare.equal_bytes import NEAR, MeanScale, rivals, settings_for_budget
from rotatek.evaluation.suite import Suite
from rotatek.evaluation.tables import UNCOMPRESSED_ROW, Claim, Row, Table
from rotatek.inputs.request import make_request
from rotatek.methods.channels import CHANNELS, ChannelMethod
from rotatek.methods.channels.full import Full
from rotatek.methods.options import options_of
from rotatek.methods.settings import Settings
from rotatek.models import Prompt, VisionLanguageModel

NAME: Final = "rivals"
TITLE: Final = "Every method at equal live bytes of the visual tokens"
TIMES: Final = (2, 4, 8, 16, 32)  # smaller than uncompressed
SAMPLED: Final = 9  # prompts whose bytes are counted, of every length the suite has


def stored(folder: Path) -> Table | None:
    """The table that a run's folder holds, if any."""
    path = folder / f"{NAME}.json"
    if not path.exists():
        return None
    return table_of(rows_from(json.loads(path.read_text(encoding="utf-8"))))


def table_of(rows: Sequence[Row]) -> Table:
    """Solved rows, and what is expected of ours against every rival of the same size."""
    claims = []
    for first, second in product(rows, rows):
        if first.times == second.times and is_ours(first.settings) > is_ours(second.settings):
            claims.append(Claim(first.label, second.label, topic=NAME))
            if first.settings.channels.bits_a_number is not None:
                claims.append(Claim(first.label, second.label, topic=f"{NAME}-bits"))
    return Table(NAME, TITLE, (UNCOMPRESSED_ROW, *rows), tuple(claims), "all", "live")


def is_ours(settings: Settings) -> bool:
    """Whether a row is a form of ours whose bytes follow from what a prompt holds."""
    return isinstance(settings.channels, CHANNELS.default) and settings.channels.adapts


def rows_from(flat: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Rows as a file holds them: flat settings, and how many times smaller, by label."""
    made = []
    for label, values in flat.items():
        given = dict(values)
        # Files of earlier versions have the number in the label alone.
        times = given.pop("times", None) or label.rpartition(", ")[2].removesuffix("x")
        settings = Settings.from_dict(given)
        made.append(Row(label, settings, line_of(settings), int(times)))
    return made


def flat_rows(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """The inverse of `rows_from`, ready for JSON."""
    return {
        row.label: {"times": row.times, **row.settings.without_paths().as_dict()} for row in rows
    }


def line_of(settings: Settings) -> str:
    """A method's words without the pruner it needs at some sizes, and without how many bits."""
    method = settings.channels
    if getattr(method, "bits", None) is not None:
        return f"{method.label} (bits)"
    return title_of(settings if method.stores_everything else Settings(channels=method))


def solve(vlm: VisionLanguageModel, suite: Suite, folder: Path) -> Table:
    """Solve the rows for a model and a suite, and keep them in `folder`."""
    scale = MeanScale(vlm, sampled(vlm, suite), adapting())
    return keep(list(rows_of(scale)), folder)


def keep(rows: Sequence[Row], folder: Path) -> Table:
    """Write solved rows into a run's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}.json"
    draft = path.with_suffix(f".partial-{os.getpid()}")
    draft.write_text(json.dumps(flat_rows(rows), indent=1) + "\n", encoding="utf-8")
    draft.replace(path)
    return table_of(rows)


def adapting() -> list[ChannelMethod]:
    """Forms of ours whose bytes follow from what a prompt holds: presets, and bits of a number."""
    ours = CHANNELS.default
    found = [one for one in ours.presets().values() if one.adapts]
    bits = [one.low for one in options_of(ours) if one.key == "bits"]
    found += [Settings.of(bits=least).channels for least in bits]
    return list(dict.fromkeys(one.within(0.0) for one in found))


def rows_of(scale: MeanScale) -> Iterator[Row]:
    """Every budget, heaviest first: tokens alone, the paper's methods, rivals, ours beyond it.

    A method that has to drop tokens has a row with each of the paper's pruners. One that cannot be
    made so light, not even so, has no row there; nor has one that stays as it was at the budget
    before.
    """
    droppers = [kind() for kind in pruners() if kind.of_paper]
    forms: list[ChannelMethod] = [Full(), *(kind().at(QUARTER) for kind in reducers())]
    forms += [one.within(0.0) for one in rivals().values()] + adapting()
    seen: set[Settings] = set()
    for times in TIMES:
        target = scale.budget(times)
        for form, pruner in product(forms, droppers):
            settings = settings_for_budget(form, [pruner], target, scale)
            if scale(settings) <= NEAR * target and settings not in seen:
                seen.add(settings)
                label = f"{title_of(settings)}, {times}x"
                yield Row(label, settings, line_of(settings), times)


def sampled(vlm: VisionLanguageModel, suite: Suite) -> list[Prompt]:
    """Prompts of the suite, evenly out of its order."""
    items = list(suite.items)[:: max(1, len(suite.items) // SAMPLED)][:SAMPLED]
    return [
        vlm.prompt(make_request(suite.image(item.document), item.question, 1)) for item in items
    ]
