"""The file of answers, `answers.csv.gz`: one row an answer, of any number of models and runs.

It is a CSV in gzip that any program reads. A picture's rows are appended as one gzip member in one
write, so several processes may share a file, and a run that was cut off leaves whole pictures: a
member that is not complete is forgotten when the file is read, and cut off by the next run.
"""

import csv
import errno
import gzip
import io
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from rotatek.errors import UserError

ANSWERS: Final = "answers.csv.gz"


class Answer(NamedTuple):
    """One answer to one question.

    Attributes:
        question: its id, such as `sign.webp#2`.
        setting: the name of what compressed the cache.
        turn: 1 for the first question about the picture; later ones meet the cache it left.
        score: in [0, 1], by the question's own metric.
        same: whether the text is the uncompressed cache's.
        bytes: live bytes of this prompt's cache before the answer, text and bases included.
        full_bytes: of an uncompressed cache of the same tokens.
        whole_tokens: visual tokens whose Keys and Values are stored as they were.
        kl: KL(uncompressed || this) in nats, the mean over the tokens of the uncompressed cache's
            answer; None for a first question.
        same_choices: share of those tokens whose likeliest candidates are equal; None as `kl`.
    """

    model: str
    split: str
    question: str
    setting: str
    turn: int
    answer: str
    score: float
    same: bool
    bytes: int
    full_bytes: int
    whole_tokens: int
    kl: float | None = None
    same_choices: float | None = None

    @property
    def picture(self) -> str:
        """The picture that the question is about."""
        return self.question.rpartition("#")[0]


def read(path: Path) -> list[Answer]:
    """Every answer of a file; none where it is not there."""
    if not path.exists():
        return []
    rows = csv.DictReader(io.StringIO(_whole(path.read_bytes())[0].decode(), newline=""))
    try:
        return [
            Answer(
                row["model"], row["split"], row["question"], row["setting"], int(row["turn"]),
                row["answer"], float(row["score"]), row["same"] == "1", int(row["bytes"]),
                int(row["full_bytes"]), int(row["whole_tokens"]),
                *(float(row[name]) if row[name] else None for name in ("kl", "same_choices")),
            )
            for row in rows
        ]  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path.name} is not a file of answers. Give another --out.") from error


def begin(path: Path) -> list[Answer]:
    """Make the file where it is missing, cut off what a killed run left incomplete, and read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as file:
            file.write(_member([Answer._fields]))
    except FileExistsError:
        complete = _whole(path.read_bytes())[1]
        if complete < path.stat().st_size:
            os.truncate(path, complete)
    return read(path)


def append(path: Path, answers: Iterable[Answer]) -> None:
    """Add rows at the end of a file that was begun; where the disk is full, it is as it was."""
    data = _member(
        (
            *one[:6], round(one.score, 5), int(one.same), *one[8:11],
            *("" if value is None else f"{value:.6g}" for value in one[11:]),
        )
        for one in answers
    )  # fmt: skip
    with path.open("ab", buffering=0) as file:
        end = file.tell()
        if file.write(data) < len(data):
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _member(rows: Iterable[Iterable[object]]) -> bytes:
    made = io.StringIO(newline="")
    csv.writer(made, lineterminator="\n").writerows(rows)
    return gzip.compress(made.getvalue().encode(), mtime=0)


def _whole(data: bytes) -> tuple[bytes, int]:
    """The text of all complete members, and where the last of them ends."""
    text, end = [], 0
    while end < len(data):
        member = zlib.decompressobj(wbits=31)
        try:
            found = member.decompress(data[end:])
        except zlib.error as error:
            raise UserError("The file of answers is damaged. Give another --out.") from error
        if not member.eof:
            break
        text.append(found)
        end = len(data) - len(member.unused_data)
    return b"".join(text), end
