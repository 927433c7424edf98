"""Shared by commands: the model and the questions that flags name, and the lines that come out.

Tensors are imported late, so that `--help` of a command without settings is instant.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rotatek.errors import SettingError, UserError, public_message
from rotatek.inputs.text_files import as_json, lines_of, parsed

if TYPE_CHECKING:
    from PIL.Image import Image

    from rotatek.models import VisionLanguageModel

Report = dict[str, Any]


class Row(NamedTuple):
    """A question of a command line, or of a line of a batch file. place: what its report begins
    with; line: the line, in words; fault: of that line, in a sentence."""

    path: str
    question: str
    place: Mapping[str, Any] = {}
    line: str = ""
    fault: str = ""

    def opened(self) -> "Image | list[Image]":
        """The picture, or the pages of a short PDF."""
        from rotatek.inputs.images import open_image  # noqa: PLC0415
        from rotatek.inputs.pdf import is_pdf, pictures_of  # noqa: PLC0415

        if self.fault:
            raise UserError(self.fault)
        path = Path(self.path)
        return pictures_of(path) if is_pdf(path) else open_image(path)


def add_request(parser: argparse.ArgumentParser) -> None:
    """An image and a question, or a batch of them; and the model."""
    parser.add_argument(
        "image",
        nargs="?",
        metavar="IMAGE",
        help="a PNG, JPEG, WebP, GIF, BMP, TIFF or AVIF file, or a PDF of up to 8 pages",
    )
    parser.add_argument("question", nargs="?", metavar="QUESTION")
    parser.add_argument(
        "--batch", metavar="FILE.jsonl", help='lines of {"image": PATH, "question": TEXT}'
    )
    add_model(parser)


def add_model(parser: argparse.ArgumentParser) -> None:
    """Which model, and on which device."""
    parser.add_argument(
        "--model", default="pocket", metavar="NAME", help="pocket, a folder, or a hub id"
    )
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda, or auto for several GPUs")


def load_model(args: argparse.Namespace) -> "VisionLanguageModel":
    """The model that the flags name."""
    from rotatek import models  # noqa: PLC0415

    return models.load(args.model, args.device)


def rows_of(args: argparse.Namespace) -> list[Row]:
    """The questions; a bad line among good ones is a row with a fault."""
    if args.batch is None:
        if args.image is None or args.question is None:
            raise UserError("Give an IMAGE and a QUESTION, or --batch FILE.jsonl.")
        return [Row(args.image, args.question)]
    if args.image is not None:
        raise UserError("Give either IMAGE and QUESTION or --batch, not both.")
    name, rows = f"batch file {Path(args.batch).name}", []
    for number, text in lines_of(args.batch, f"The {name}"):
        line = f"Line {number} of the {name}"
        try:
            place = {key: parsed(text)[key] for key in ("image", "question")}
            if not all(isinstance(given, str) for given in place.values()):
                raise TypeError
            rows.append(Row(place["image"], place["question"], place, line))
        except (ValueError, KeyError, TypeError):
            fault = f'{line} is not {{"image": PATH, "question": TEXT}}.'
            rows.append(Row("", "", {"line": number}, line, fault))
    if not rows:
        raise UserError("The batch file has no questions. Add one JSON object a line.")
    if all(row.fault for row in rows):
        raise UserError(rows[0].fault)
    return rows


@contextmanager
def passing(row: Row, batch: bool) -> Iterator[list[Report]]:
    """In a batch, report a row's failure on stderr and in its result, and go on. Settings hold for
    all rows, so a wrong setting ends the run."""
    bad: list[Report] = []
    try:
        yield bad
    except Exception as error:
        if not batch or isinstance(error, SettingError):
            raise
        sentence = public_message(error)
        notice(row.fault or f"{row.line}: {sentence}")
        bad.append({"error": sentence})


def notice(sentence: str) -> None:
    """A line on stderr, above a bar."""
    from tqdm import tqdm  # noqa: PLC0415

    tqdm.write(sentence, file=sys.stderr)


def say(text: object) -> None:
    """Print on stdout; where that cannot be written, also on stderr, before it is raised."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError:  # a full disk
        print(text, file=sys.stderr)
        raise


def print_json(figures: Report) -> None:
    """One line, which stays JSON in every encoding."""
    text = as_json(figures)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(figures)
    say(text)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
