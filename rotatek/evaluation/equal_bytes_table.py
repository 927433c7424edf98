"""The table of rivals: every method at a few budgets of live bytes, solved for one model and suite.

Which setting meets a budget depends on the model's shape and on how long a prompt is. So a suite's
questions are divided into classes whose prompts have as many visual tokens, to a tenth, and each
row is solved for every class, once, and kept in the run's folder: a run that goes on, its other
processes and its report read them there.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

from rotatek.compare.columns import QUARTER, pruners, reducers, title_of
from rotatek.compare.equal_bytes import NEAR, Scale, rivals, settings_for_budget
from rotatek.evaluation.suite import Item, Suite
from rotatek.evaluation.tables import UNCOMPRESSED_ROW, Claim, Row, Table
from rotatek.inputs.request import make_request
from rotatek.methods.channels import CHANNELS, ChannelMethod
from rotatek.methods.channels.full import Full
from rotatek.methods.options import options_of
from rotatek.methods.settings import Settings
from rotatek.models import Prompt, VisionLanguageModel

NAME: Final = "rivals"
TITLE: Final = "Every method at equal live bytes of the visual tokens"
CLASSES: Final = ""  # in a file of rows: which questions' prompts are alike
TIMES: Final = (2, 4, 8, 16, 32)  # smaller than uncompressed
ALIKE: Final = 1.1  # of visual tokens: prompts that a budget is solved for together


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
    """Whether a row is a form of RotateK whose bytes depend on the prompt."""
    return isinstance(settings.channels, CHANNELS.default) and settings.channels.adapts


def rows_from(flat: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Rows as a file holds them: flat settings, and how many times smaller, by label."""
    made = []
    flat = dict(flat)
    classes = tuple(map(frozenset, flat.pop(CLASSES, {}).get("names", ())))
    for label, values in flat.items():
        given = dict(values)
        solved = tuple(Settings.from_dict(one) for one in given.pop("variants", ()))
        # Files of earlier versions have the number in the label alone.
        times = given.pop("times", None) or label.rpartition(", ")[2].removesuffix("x")
        settings = Settings.from_dict(given)
        row = Row(label, settings, line_of(settings), int(times), solved, classes)
        made.append(row if solved else replace(row, classes=()))
    return made


def flat_rows(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """The inverse of `rows_from`, ready for JSON."""
    made: dict[str, dict[str, Any]] = {}
    for row in rows:
        made[row.label] = {"times": row.times, **row.settings.without_paths().as_dict()}
        if row.variants:
            made[row.label]["variants"] = [one.without_paths().as_dict() for one in row.variants]
            made[CLASSES] = {"names": [sorted(names) for names in row.classes]}
    return made


def line_of(settings: Settings) -> str:
    """A method's label without the pruner that it needs at some sizes, and without its bits."""
    method = settings.channels
    if getattr(method, "bits", None) is not None:
        return f"{method.label} (bits)"
    return title_of(settings if method.stores_everything else Settings(channels=method))


def solve(vlm: VisionLanguageModel, suite: Suite, folder: Path) -> Table:
    """Solve the rows for a model and a suite, and keep them in `folder`."""
    found = classes_of(vlm, suite)
    scales = [Scale(vlm, prompt, adapting()) for prompt, _ in found]
    return keep(list(rows_of(scales, tuple(names for _, names in found))), folder)


def keep(rows: Sequence[Row], folder: Path) -> Table:
    """Write solved rows into a run's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{NAME}.json"
    draft = path.with_suffix(f".partial-{os.getpid()}")
    draft.write_text(json.dumps(flat_rows(rows), indent=1) + "\n", encoding="utf-8")
    draft.replace(path)
    return table_of(rows)


def adapting() -> list[ChannelMethod]:
    """Forms of RotateK whose bytes depend on the prompt: presets, and bits of a number."""
    ours = CHANNELS.default
    found = [one for one in ours.presets().values() if one.adapts]
    bits = [one.low for one in options_of(ours) if one.key == "bits"]
    found += [Settings.of(bits=least).channels for least in bits]
    return list(dict.fromkeys(one.with_share(0.0) for one in found))


def rows_of(scales: Sequence[Scale], classes: tuple[frozenset[str], ...]) -> Iterator[Row]:
    """Every budget, heaviest first: tokens alone, the paper's methods, rivals, ours beyond it.

    Args:
        scales: of each class's prompts, by rising length.
        classes: names of the questions in each.

    The class of most questions decides which rows there are. A method that has to drop tokens has a
    row with each of the paper's pruners. A method has no row at a budget that it cannot reach, nor
    where it is unchanged from the budget before.
    """
    droppers = [kind() for kind in pruners() if kind.of_paper]
    forms: list[ChannelMethod] = [Full(), *(kind().with_keep(QUARTER) for kind in reducers())]
    forms += [one.with_share(0.0) for one in rivals().values()] + adapting()
    seen: set[Settings] = set()
    most = scales[max(range(len(classes)), key=lambda place: len(classes[place]))]
    for times in TIMES:
        target = most.shape.budget(times)
        for form, pruner in product(forms, droppers):
            settings = settings_for_budget(form, [pruner], target, most)
            if most(settings) <= NEAR * target and settings not in seen:
                seen.add(settings)
                label = f"{title_of(settings)}, {times}x"
                solved = tuple(
                    settings_for_budget(form, [pruner], scale.shape.budget(times), scale)
                    for scale in scales
                )
                yield Row(label, settings, line_of(settings), times, solved, classes)


def classes_of(vlm: VisionLanguageModel, suite: Suite) -> list[tuple[Prompt, frozenset[str]]]:
    """Questions whose prompts have about as many visual tokens, each class with its middle prompt.

    A picture's questions differ by a few tokens of text and are in one class.
    """
    opened: dict[int, list[Item]] = {}
    for item in suite.items:
        opened.setdefault(item.document, []).append(item)

    def prompt(document: int) -> Prompt:
        asked = opened[document][0].question
        return vlm.prompt(make_request(suite.image(document), asked, 1))

    tokens = {document: prompt(document).visual_tokens for document in opened}
    groups: list[list[int]] = []
    for document in sorted(tokens, key=tokens.__getitem__):
        if groups and tokens[document] <= ALIKE * tokens[groups[-1][0]]:
            groups[-1].append(document)
        else:
            groups.append([document])
    named = [frozenset(item.name for one in group for item in opened[one]) for group in groups]
    middle = [prompt(group[len(group) // 2]) for group in groups]
    return list(zip(middle, named, strict=True))
