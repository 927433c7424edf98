"""What was answered, on disk: one JSON object a line, so that an interrupted run goes on.

The settings themselves are written down beside their names. So answers are found again when a
method has gained an option since: what a record lacks has its default, from which the name follows.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import torch

from rotatek.errors import UserError
from rotatek.inputs.text_files import as_lines, decoded, lines_of, parsed
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel

JOURNAL: Final = "journal.jsonl"  # in a run's folder


@dataclass(frozen=True)
class Answer:
    """What one setting said to one question.

    Args:
        setting: its `setting_id`.
        item: the question's name.
        answer: the text.
        tokens: new tokens, the end not counted.
        kv_share: bytes of this prompt's cache after prefill over those of an uncompressed one, text
            included; counted as if it were alone, whatever the batch.
    """

    setting: str
    item: str
    answer: str
    tokens: int
    kv_share: float


_FIELDS: Final = {one.name for one in fields(Answer)}


def setting_id(settings: Settings) -> str:
    """A short, stable name of one setting."""
    text = json.dumps(settings.as_dict(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def weights_id(vlm: VisionLanguageModel) -> str:
    """A fingerprint of the weights: names, shapes and sums of every parameter."""
    digest = hashlib.sha256()
    with torch.inference_mode():
        for name, value in vlm.model.named_parameters():
            total = float(value.abs().sum(dtype=torch.float64)) if value.is_floating_point() else 0
            digest.update(f"{name} {tuple(value.shape)} {total:.4e}".encode())
    return digest.hexdigest()[:16]


Answers = dict[tuple[str, str], Answer]  # by setting and item


def read_header(path: Path) -> dict[str, Any]:
    """What a journal's answers belong to."""
    lines = _lines(path)
    if not lines:
        raise UserError(f"The journal {path.name} is damaged. Give another --out, or delete it.")
    return lines[0]


def read_answers(path: Path, header: Mapping[str, Any]) -> Answers:
    """The answers of a journal, none if it is not there; the file stays as it is.

    A line that was cut short by a crash is forgotten.

    Raises:
        UserError: if its first line is not `header`.
    """
    lines = _lines(path)
    if lines and lines[0] != header:
        changed = sorted(k for k in {*header, *lines[0]} if header.get(k) != lines[0].get(k))
        raise UserError(
            f"The journal belongs to another run ({', '.join(changed)} differ). Give another "
            "--out, or delete the journal."
        )
    now = {line["named"]: _name_now(line) for line in lines[1:] if "named" in line}
    answers = [Answer(**line) for line in lines[1:] if line.keys() == _FIELDS]
    mine = [replace(one, setting=now.get(one.setting, one.setting)) for one in answers]
    return {(answer.setting, answer.item): answer for answer in mine}


def _name_now(line: Mapping[str, Any]) -> str:
    """The name that a written setting has in this version, or had where it is no longer known."""
    try:
        return setting_id(Settings.from_dict(line["settings"]))
    except UserError:
        return str(line["named"])


def journals(folder: Path) -> list[Path]:
    """A run's journals: one, or one for every process that had a part of it."""
    return sorted(folder.glob("journal*.jsonl"))


def read_journals(folder: Path, header: Mapping[str, Any]) -> Answers:
    """The answers of all of a run's journals.

    Raises:
        UserError: if one of them is another run's.
    """
    found = Answers()
    for path in journals(folder):
        found |= read_answers(path, header)
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    found = []
    for line in lines_of(decoded(path.read_bytes(), f"The journal {path.name}", "replace")):
        with contextlib.suppress(ValueError):
            found.append(parsed(line.text))
    return [line for line in found if isinstance(line, dict)]


class Notes:
    """Answers in memory, on their way to a journal."""

    def __init__(self) -> None:
        self.answers: Answers = {}

    def add(self, answers: Iterable[Answer]) -> None:
        """Note them."""
        self.answers.update({(answer.setting, answer.item): answer for answer in answers})


class Journal(Notes):
    """Answers on disk; the first line says what they belong to.

    Args:
        path: of the file; its folder is made.
        header: what the answers belong to.

    Attributes:
        unwritten: lines that the disk did not take; each `add` tries them again.

    Raises:
        UserError: for another run's journal.
    """

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path, self.header = path, header
        self.unwritten = ""
        self.answers = read_answers(path, header)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in _lines(path) if "named" in line]
        named = [line | {"named": _name_now(line)} for line in kept]
        self._named = {line["named"] for line in named}
        self._write([header, *named, *(asdict(answer) for answer in self.answers.values())])

    def record(self, settings: Iterable[Settings]) -> None:
        """Write down what the names of some settings stand for."""
        fresh = {setting_id(one): one for one in settings}
        lines = [
            {"named": name, "settings": one.as_dict()}
            for name, one in fresh.items()
            if name not in self._named and one == one.without_paths()  # a file may change
        ]
        self._named |= {str(line["named"]) for line in lines}
        self._append(lines)

    def add(self, answers: Iterable[Answer]) -> None:
        """Append and flush."""
        fresh = list(answers)
        super().add(fresh)
        self._append([asdict(answer) for answer in fresh])

    def _append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append to the file. On a disk that is full now, lines wait for the next ones: what was
        computed is not lost before the run ends."""
        self.unwritten += as_lines(list(lines))
        with contextlib.suppress(OSError), self.path.open("ab", buffering=0) as file:
            end, left = file.tell(), self.unwritten.encode()
            try:
                while left:
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(end)  # or half a line would spoil the next one
                raise
            self.unwritten = ""

    def _write(self, lines: list[dict[str, Any]]) -> None:
        """Replace the file in one step."""
        draft = self.path.with_suffix(".partial")
        draft.write_text(as_lines(lines), encoding="utf-8")
        draft.replace(self.path)
