"""Checks of calls to the page's functions before Gradio reads them, so that errors have messages.

Gradio answers a call with too few values, or with a value that a widget cannot hold, by an error
without a message. Its text boxes turn numbers and lists into text.
"""

from collections.abc import Sequence
from typing import Any, Final

import gradio as gr
from gradio.exceptions import InvalidPathError
from starlette.requests import Request
from starlette.responses import JSONResponse

from rotatek import errors
from rotatek.page.upload import CheckedUpload
from rotatek.page.user_errors import refusal

BODY: Final = (
    'Send JSON like {"data": [...]}, one value for each field; /gradio_api/info names them.'
)


class CheckedBlocks(gr.Blocks):
    """A page whose functions refuse input that they cannot read with our own messages."""

    async def preprocess_data(
        self, block_fn: Any, inputs: list[Any], state: Any, explicit_call: bool = False
    ) -> Any:
        """Gradio's own reading of the values, after ours.

        Raises:
            gr.Error: with a sentence of `rotatek.errors`.
        """
        try:
            if block_fn.api_visibility == "public":
                check_values(block_fn.api_name, block_fn.inputs, inputs)
            return await super().preprocess_data(block_fn, inputs, state, explicit_call)
        except gr.Error:
            raise
        except InvalidPathError:
            raise refusal(errors.FileUnreadable()) from None
        except Exception as error:
            raise refusal(error) from None

    def get_block_name(self) -> str:
        """Drawn in the browser as any page."""
        return "blocks"


def check_values(name: str, widgets: Sequence[Any], values: Any) -> None:
    """Refuse what a program sent to the function `name`, if it is not one value a widget.

    Raises:
        FieldsMissing, ImageNotAFile, QuestionNotText: with what to send instead.
    """
    labels = [widget.label for widget in widgets]
    if not isinstance(values, Sequence) or len(values) != len(labels):
        given = len(values) if isinstance(values, Sequence) else 0
        raise errors.FieldsMissing(
            f"/{name} takes {len(labels)} values, and {given} were sent. In this order: "
            f"{', '.join(labels)}."
        )
    for widget, value in zip(widgets, values, strict=True):
        if isinstance(widget, CheckedUpload) and not isinstance(value, dict | None):
            raise errors.ImageNotAFile
        if isinstance(widget, gr.Textbox) and not isinstance(value, str | None):
            raise errors.QuestionNotText


def malformed(request: Request, error: Exception) -> JSONResponse:
    """A body that is no call at all."""
    return JSONResponse({"detail": BODY}, 422)
