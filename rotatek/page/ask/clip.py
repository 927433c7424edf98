"""A short video in place of a picture: its frames stay until the visitor brings a picture."""

from pathlib import Path
from typing import Any, Final

from rotatek.inputs.request import Clip
from rotatek.inputs.video import open_clip
from rotatek.page import markup
from rotatek.page.ask.widgets import AskWidgets
from rotatek.page.binding import QUIET, listen
from rotatek.page.refusals import refusing

FRAMES: Final = 30  # of a clip on the page: what a session holds stays under 20 MB


@refusing
def take(file: str | None) -> dict[str, Any]:
    """Frames of an uploaded video. Changes: clip, image, status."""
    if file is None:
        return {}
    clip = open_clip(Path(file), FRAMES)
    return {"clip": clip, "image": clip.frames[0], "status": markup.line(told(clip))}


def told(clip: Clip) -> str:
    """What will be asked about."""
    count, last = len(clip.frames), clip.times[-1]
    return f"{count} frames of {last:.0f} seconds of video are ready; the first is shown. Ask on."


@refusing
def drop() -> dict[str, Any]:
    """A picture again. Changes: clip."""
    return {"clip": None}


def wire_clip(widgets: AskWidgets) -> None:
    """A video shows its first frame; a picture takes its place."""
    question, status = widgets.question, widgets.answers.status
    clip = question.clip
    shown = {"clip": clip.frames, "image": question.image, "status": status}
    listen(clip.upload.upload, take, {"file": clip.upload}, shown, **QUIET)
    pictures = [question.image.upload, question.image.clear]
    if question.gallery is not None:
        pictures.append(question.gallery.select)
    listen(pictures, drop, {}, {"clip": clip.frames}, **QUIET)
