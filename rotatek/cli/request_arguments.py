"""Flags for the model and its request: an image and a question, or a file of many."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rotatek.errors import UserError
from rotatek.inputs.text_files import lines_of, parsed, read_text

if TYPE_CHECKING:
    from PIL.Image import Image

    from rotatek.inputs.request import Request
    from rotatek.inputs.sampling import Sampling
    from rotatek.models import VisionLanguageModel


class Row(NamedTuple):
    """One question of a command line or of a batch file.

    Attributes:
        path: of the picture, as it was given.
        question: the text.
        line: of the batch file, in words; none where there is no such file.
        number: of that line.
        fault: the fault of the line, in a sentence.
    """

    path: str
    question: str
    line: str = ""
    number: int = 0
    fault: str = ""

    @property
    def place(self) -> dict[str, str | int]:
        """The row as a batch file has it; its line where that cannot be read."""
        if self.fault:
            return {"line": self.number}
        return {"image": self.path, "question": self.question}

    def opened(self) -> "Image | list[Image]":
        """The picture, or the pages of a short PDF.

        Raises:
            UserError: where it cannot be read.
        """
        from rotatek.inputs.images import open_image  # noqa: PLC0415  # keeps --help quick
        from rotatek.inputs.pdf import is_pdf, pictures_of  # noqa: PLC0415

        if self.fault:
            raise UserError(self.fault)
        path = Path(self.path)
        return pictures_of(path) if is_pdf(path) else open_image(path)

    def request(self, max_new_tokens: int, sampling: "Sampling") -> "Request":
        """The row as it is asked.

        Args:
            max_new_tokens: the longest answer.
            sampling: how tokens are chosen.

        Raises:
            UserError: where it is refused.
        """
        from rotatek.inputs.request import make_request  # noqa: PLC0415

        return make_request(self.opened(), self.question, max_new_tokens, sampling=sampling)


def add_request(parser: argparse.ArgumentParser) -> None:
    """An image and a question, or a batch of them; the model, and where and how long it runs."""
    parser.add_argument(
        "image",
        nargs="?",
        metavar="IMAGE",
        help="a PNG, JPEG, WebP, GIF, BMP, TIFF or AVIF file, or a PDF of up to 8 pages",
    )
    parser.add_argument("question", nargs="?", metavar="QUESTION")
    parser.add_argument(
        "--batch",
        metavar="FILE.jsonl",
        help='lines of {"image": PATH, "question": TEXT}',
    )
    add_model(parser)
    parser.add_argument("--graph", action="store_true", help="decode by CUDA graph (GPU only)")
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Which model, and on which device."""
    parser.add_argument(
        "--model", default="pocket", metavar="NAME", help="pocket, a folder, or a hub id"
    )
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda, or auto for several GPUs")


def load_model(args: argparse.Namespace) -> "VisionLanguageModel":
    """The model that the flags name."""
    from rotatek import models  # noqa: PLC0415  # heavy imports only when they are needed

    return models.load(args.model, args.device)


def rows_of(args: argparse.Namespace) -> list[Row]:
    """The questions, from the arguments or the batch file.

    A bad line among good ones is a row with a fault.

    Raises:
        UserError: if neither or both are given, or the file has no good line.
    """
    if args.batch is None:
        if args.image is None or args.question is None:
            raise UserError("Give an IMAGE and a QUESTION, or --batch FILE.jsonl.")
        return [Row(args.image, args.question)]
    if args.image is not None:
        raise UserError("Give either IMAGE and QUESTION or --batch, not both.")
    name = f"the batch file {Path(args.batch).name}"
    lines = lines_of(read_text(args.batch, f"The{name[3:]}"))
    rows = [_row(line.number, line.text, f"Line {line.number} of {name}") for line in lines]
    if not rows:
        raise UserError("The batch file has no questions. Add one JSON object a line.")
    if all(row.fault for row in rows):
        raise UserError(rows[0].fault)
    return rows


def _row(number: int, text: str, line: str) -> Row:
    try:
        row = parsed(text)
        path, question = row["image"], row["question"]
        if isinstance(path, str) and isinstance(question, str):
            return Row(path, question, line, number)
    except (ValueError, KeyError, TypeError):
        pass
    fault = f'{line} is not {{"image": PATH, "question": TEXT}}.'
    return Row("", "", line=line, number=number, fault=fault)


def progress(rows: Sequence[Row], shown: bool) -> Iterable[Row]:
    """`rows`, with a bar on stderr for a batch."""
    from tqdm import tqdm  # noqa: PLC0415

    return tqdm(rows, unit="question", file=sys.stderr, disable=not shown)
