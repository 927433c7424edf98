"""Flags for what is asked of which model: an image and a question, or a file of many."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rotatek.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

    from rotatek.inputs.request import Clip
    from rotatek.models import VisionLanguageModel


class Row(NamedTuple):
    """One question of a command line or of a batch file; path: of the picture or the video, as it
    was given."""

    path: str
    question: str
    is_video: bool = False

    @property
    def place(self) -> dict[str, str]:
        """The row as a batch file has it."""
        return {"video" if self.is_video else "image": self.path, "question": self.question}

    def opened(self) -> "Image | list[Image] | Clip":
        """The picture, the pages of a short PDF, or frames of the video.

        Raises:
            UserError: where it cannot be read.
        """
        from rotatek.inputs.pdf import is_pdf, pictures_of  # noqa: PLC0415
        from rotatek.inputs.request import open_image  # noqa: PLC0415
        from rotatek.inputs.video import open_clip  # noqa: PLC0415  # keeps --help quick

        path = Path(self.path)
        if self.is_video:
            return open_clip(path)
        return pictures_of(path) if is_pdf(path) else open_image(path)


def add_request(parser: argparse.ArgumentParser) -> None:
    """An image and a question, or a batch of them; the model, and where and how long it runs."""
    parser.add_argument(
        "image",
        nargs="?",
        metavar="IMAGE",
        help="a PNG, JPEG or WebP file, or a PDF of up to 8 pages",
    )
    parser.add_argument("question", nargs="?", metavar="QUESTION")
    parser.add_argument(
        "--video",
        metavar="FILE",
        help="an MP4, MOV, WebM, MKV or AVI file in place of IMAGE: a frame a second, 60 at most",
    )
    parser.add_argument(
        "--batch",
        metavar="FILE.jsonl",
        help='lines of {"image": PATH, "question": TEXT}, or of "video" for "image"',
    )
    add_model(parser)
    parser.add_argument("--four-bit", action="store_true", help="4-bit weights (bitsandbytes)")
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

    return models.load(args.model, args.device, four_bit=args.four_bit)


def rows_of(args: argparse.Namespace) -> list[Row]:
    """The questions, from the arguments or the batch file.

    Raises:
        UserError: if neither or both are given, or the file is not what it should be.
    """
    if args.batch is None:
        if args.video is not None:
            if args.image is None or args.question is not None:
                raise UserError("With --video give the QUESTION alone: the video is the picture.")
            return [Row(args.video, args.image, is_video=True)]
        if args.image is None or args.question is None:
            raise UserError("Give an IMAGE and a QUESTION, or --batch FILE.jsonl.")
        return [Row(args.image, args.question)]
    if args.image is not None or args.video is not None:
        raise UserError("Give either IMAGE and QUESTION or --batch, not both.")
    try:
        lines = Path(args.batch).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("The batch file cannot be read. Check its name and encoding.") from error
    rows = [_row(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise UserError("The batch file has no questions. Add one JSON object a line.")
    return rows


def _row(number: int, line: str) -> Row:
    try:
        row = json.loads(line)
        is_video = "video" in row
        return Row(str(row["video" if is_video else "image"]), row["question"], is_video)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f'Line {number} of the batch file is not {{"image": PATH, "question": TEXT}}.'
        ) from error


def progress(rows: Sequence[Row], shown: bool) -> Iterable[Row]:
    """`rows`, with a bar on stderr for a batch."""
    from tqdm import tqdm  # noqa: PLC0415

    return tqdm(rows, unit="question", file=sys.stderr, disable=not shown)
