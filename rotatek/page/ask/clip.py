"""A short video or a PDF in place of a picture.

A video's frames stay until the visitor brings a picture; of a PDF the first page is that picture.
"""

from pathlib import Path
from typing import Any, Final

from rotatek.errors import PdfDamaged
from rotatek.inputs.pdf import PdfFile, is_pdf
from rotatek.inputs.request import Clip
from rotatek.inputs.video import open_clip
from rotatek.page import markup
from rotatek.page.ask.widgets import AskWidgets
from rotatek.page.binding import QUIET, listen
from rotatek.page.user_errors import refusing

FRAMES: Final = 30  # of a clip on the page: what a session holds stays under 20 MB


@refusing
def take(file: str | None, *, collects: bool = False) -> dict[str, Any]:
    """Frames of an uploaded video, or a PDF's first page. Changes: clip, image, status.

    collects: whether the page has a tab that asks every page.
    """
    if file is None:
        return {}
    if is_pdf(Path(file)):
        return first_page(Path(file), collects)
    clip = open_clip(Path(file), FRAMES)
    return {"clip": clip, "image": clip.frames[0], "status": markup.line(described(clip))}


def first_page(path: Path, collects: bool) -> dict[str, Any]:
    """A PDF's first page as the picture.

    Raises:
        UserError: where it cannot be read.
    """
    with PdfFile(path) as file:
        page = next(iter(file))
        if page.image is None:
            raise page.error or PdfDamaged()
        said = f"Page 1 of {file.pages} is ready to ask about."
        if collects and file.pages > 1:
            said += " The Collection tab asks all of them."
        return {"clip": None, "image": page.image, "status": markup.line(said)}


def described(clip: Clip) -> str:
    """What will be asked about."""
    count, last = len(clip.frames), clip.times[-1]
    return f"{count} frames of {last:.0f} seconds of video are ready; the first is shown. Ask on."


@refusing
def drop() -> dict[str, Any]:
    """A picture again. Changes: clip."""
    return {"clip": None}


def wire_clip(widgets: AskWidgets, *, collects: bool = False) -> None:
    """A video shows its first frame, a PDF its first page; a picture takes its place."""
    question, status = widgets.question, widgets.answers.status
    clip = question.clip
    shown = {"clip": clip.frames, "image": question.image, "status": status}

    def taken(file: str | None) -> dict[str, Any]:
        return take(file, collects=collects)

    listen(clip.upload.upload, taken, {"file": clip.upload}, shown, **QUIET)
    pictures = [question.image.upload, question.image.clear]
    if question.gallery is not None:
        pictures.append(question.gallery.select)
    listen(pictures, drop, {}, {"clip": clip.frames}, **QUIET)
