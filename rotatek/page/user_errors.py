"""Errors as a visitor sees them: sentences of the closed list in `rotatek.errors`, nothing else."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from rotatek import errors


def refusal(error: Exception) -> gr.Error:
    """`error` as a message that may be shown."""
    return gr.Error(
        errors.public_message(error), title="Not possible", duration=8, print_exception=False
    )


def refusing(handler: Callable) -> Callable:
    """Let only the closed list of sentences reach the screen."""

    @functools.wraps(handler)
    def guarded(*args: Any, **given: Any) -> Any:
        try:
            return handler(*args, **given)
        except gr.Error:
            raise
        except Exception as error:
            raise refusal(error) from None

    return guarded


def refusing_stream(handler: Callable) -> Callable:
    """`refusing` for generators."""

    @functools.wraps(handler)
    def guarded(*args: Any, **given: Any) -> Iterator[Any]:
        try:
            yield from handler(*args, **given)
        except (gr.Error, GeneratorExit):
            raise
        except Exception as error:
            raise refusal(error) from None

    return guarded
