"""The upload box. Gradio's own opens files with every parser that Pillow has; this one does not."""

from abc import ABCMeta
from pathlib import Path
from typing import Any, Final

import gradio as gr
from gradio.data_classes import ImageData
from PIL.Image import Image as Picture

from rotatek import errors
from rotatek.inputs.images import open_image
from rotatek.page.binding import refusal, refusing

SEEN: Final = (b"\x89PNG", b"\xff\xd8", b"GIF8", b"RIFF", b"BM")  # browsers show such files
UNSEEN: Final = "unseen"  # the key of a picture's `info`: whether browsers cannot show its file


class CheckedUpload:
    """How an image box takes an upload: bytes are checked, and nothing is fetched.

    Gradio has already verified that the path lies in its upload folder.
    """

    def preprocess(self, payload: ImageData | None) -> Picture | None:
        """The uploaded file as a checked RGB picture, or None while the box is empty.

        Raises:
            gr.Error: with a sentence of `rotatek.errors`.
        """
        if payload is None:
            return None
        with refusing():
            if payload.path is None or (payload.url or "").lower().startswith("data:"):
                raise errors.ImageNotAFile
            picture = open_image(Path(payload.path))
            with Path(payload.path).open("rb") as file:
                picture.info[UNSEEN] = not file.read(4).startswith(SEEN)
            return picture

    async def async_move_resource_to_block_cache(
        self, url_or_file_path: str | Path | None
    ) -> str | None:
        """Keep local files as Gradio does; refuse a URL, which it would download."""
        if str(url_or_file_path).lower().startswith(("http:", "https:")):
            raise refusal(errors.ImageNotAFile())
        move: Any = super()
        try:
            return await move.async_move_resource_to_block_cache(url_or_file_path)
        except FileNotFoundError:  # it was swept away meanwhile
            raise refusal(errors.FileUnreadable()) from None

    def get_block_name(self) -> str:
        """Drawn in the browser as an ordinary image box."""
        return "image"


# A class statement would run gradio's own metaclass, which writes a stub file beside this one.
SafeImage: Final = ABCMeta.__new__(
    type(gr.Image), "SafeImage", (CheckedUpload, gr.Image), {"__module__": __name__}
)


def image_box(**options: Any) -> gr.Image:
    """An upload box for files and the clipboard; no camera, nothing recompressed with loss."""
    return SafeImage(
        type="pil", format="png", sources=["upload", "clipboard"], image_mode="RGB", **options
    )
