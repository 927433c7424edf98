"""A run's answers in one small file, from which every table can be computed again.

Lines of JSON under xz. The first says what the answers belong to: the model with the fingerprint of
its weights and its type, the suite, where it ran, and the settings. Each further line is a question
with its accepted answers, "said": every different answer to it with its tokens, the sum of their
scores, "by": which of those each setting gave (-1: none), and "bytes": the live bytes of each
answering setting's cache, in thousandths of the uncompressed one. A question's answers are stored
together because they are alike, so the file is small.
"""

import lzma
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

from rotatek.errors import UserError
from rotatek.evaluation import equal_bytes_table
from rotatek.evaluation.journal import JOURNAL, Answer, Answers, Journal, setting_id
from rotatek.evaluation.result_json import shortened
from rotatek.evaluation.suite import QUESTIONS, Item, StoredSuite, describe
from rotatek.evaluation.tables import Row
from rotatek.inputs.text_files import as_lines, lines_of, parsed
from rotatek.methods.settings import Settings

SUFFIX: Final = ".jsonl.xz"
DIGITS: Final = 4  # of a question's sum of scores, behind the point
SHARE_DIGITS: Final = 3  # of live bytes, the significant ones: tables show three
AFTERWARDS: Final = ("ran_on", "refused", "solved")  # fields that a journal does not have
TOLERANCE: Final = 1e-4  # between the sum that was kept and the same one computed again
# LZMA for texts in one-byte letters: what comes before a letter tells more than where it lies.
TEXT: Final = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}


class AnswerArchive(NamedTuple):
    """What a file of answers holds.

    Attributes:
        header: of the run; its settings are in `settings`.
        settings: by their names in `answers`.
        items: the suite's questions.
        answers: by setting and item.
    """

    header: dict[str, Any]
    settings: dict[str, Settings]
    items: list[Item]
    answers: Answers

    @property
    def solved(self) -> list[Row]:
        """The rows of rivals that were solved for this run."""
        return equal_bytes_table.rows_from(self.header.get("solved", {}))

    @property
    def name(self) -> str:
        """Of the suite."""
        return str(self.header["suite"]["name"])


def pack(path: Path, kept: AnswerArchive) -> None:
    """Write a file of answers, in one step.

    Args:
        path: of the file.
        kept: what it is to hold.
    """
    lines = as_lines(_lines(kept), spaced=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".partial-{os.getpid()}")
    draft.write_bytes(lzma.compress(lines.encode(), filters=[TEXT]))
    draft.replace(path)


def unpack(path: Path) -> AnswerArchive:
    """Read a file of answers, and compute every score again.

    Raises:
        UserError: if it is no such file, or its scores are not those of its answers.
    """
    try:
        text = lzma.decompress(path.read_bytes()).decode()
        header, *rows = [parsed(line.text) for line in lines_of(text)]
        settings = [Settings.from_dict(one) for one in header.pop("settings")]
        names = [setting_id(one) for one in settings]
        items, answers = [], Answers()
        for row in rows:
            item = Item(**{**row["item"], "accepted": tuple(row["item"]["accepted"])})
            items.append(item)
            answers |= _answers(item, row, names)
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UserError("The file of answers cannot be read. Pack the run again.") from error
    return AnswerArchive(header, dict(zip(names, settings, strict=True)), items, answers)


def restore(kept: AnswerArchive, folder: Path) -> None:
    """Write the answers as a run's journal and questions, so that the run can continue."""
    StoredSuite.save(Named(kept.name, kept.items), folder / QUESTIONS)
    if kept.solved:
        equal_bytes_table.keep(kept.solved, folder)
    known = {name: value for name, value in kept.header.items() if name not in AFTERWARDS}
    journal = Journal(folder / JOURNAL, known)
    journal.record(kept.settings.values())
    journal.add(kept.answers.values())


class Named:
    """Questions with a suite's name and without its pictures."""

    def __init__(self, name: str, items: Sequence[Item]) -> None:
        self.name, self.items = name, items

    def image(self, document: int) -> Any:
        """Refused: a file of answers holds no pictures."""
        raise UserError("A picture is missing beside the questions. Draw them again.")


def collect(
    header: Mapping[str, Any], items: Sequence[Item], answers: Answers, known: Sequence[Settings]
) -> AnswerArchive:
    """What a run's folder holds, ready to be packed.

    Args:
        header: of the journal, and where it ran.
        items: the suite's questions.
        answers: of the journal.
        known: settings that it may have answered under.
    """
    answered = {name for name, _ in answers}
    named = {setting_id(one): one for one in known}
    settings = {name: one for name, one in named.items() if name in answered}
    mine = {key: answer for key, answer in answers.items() if key[0] in settings}
    assert describe(Named(header["suite"]["name"], items)) == header["suite"]
    return AnswerArchive(dict(header), settings, list(items), mine)


def _lines(kept: AnswerArchive) -> Iterator[dict[str, Any]]:
    names = list(kept.settings)
    flat = [one.without_paths().as_dict() for one in kept.settings.values()]
    yield {**kept.header, "settings": flat}
    for item in kept.items:
        given = [kept.answers.get((name, item.name)) for name in names]
        said = list(dict.fromkeys((one.answer, one.tokens) for one in given if one is not None))
        places = {pair: place for place, pair in enumerate(said)}
        yield {
            "item": asdict(item),
            "said": said,
            "scores": round(sum(item.score(text) for text, _ in said), DIGITS),
            "by": [-1 if one is None else places[one.answer, one.tokens] for one in given],
            "bytes": [_thousandths(one.kv_share) for one in given if one is not None],
        }


def _thousandths(share: float) -> float:
    """A share in thousandths, an int where that says it all: "562" is shorter than "562.0"."""
    value = shortened(1000 * share, SHARE_DIGITS)
    return int(value) if value.is_integer() else value


def _answers(item: Item, row: Mapping[str, Any], names: Sequence[str]) -> Answers:
    """A question's answers by setting."""
    if abs(sum(item.score(text) for text, _ in row["said"]) - row["scores"]) > TOLERANCE:
        raise UserError(
            "The scores in the file of answers are not those of its answers. Pack the run "
            "again, or name the metric that has changed."
        )
    found = Answers()
    gave = [(name, place) for name, place in zip(names, row["by"], strict=True) if place >= 0]
    for (name, place), thousandths in zip(gave, row["bytes"], strict=True):
        text, tokens = row["said"][place]
        share = shortened(thousandths / 1000, SHARE_DIGITS)
        found[name, item.name] = Answer(name, item.name, text, tokens, share)
    return found
