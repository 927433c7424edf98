"""How handlers are bound to widgets: by the names of their parameters and of what they return.

What goes wrong reaches the screen as a sentence of the closed list in `rotatek.errors`.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, get_origin

import gradio as gr

from rotatek import errors

VISITORS: Final = 64  # answered at once at most; memory limits them before
MODEL_WORK: Final[dict[str, Any]] = {"concurrency_id": "model", "concurrency_limit": VISITORS}
QUIET: Final[dict[str, Any]] = {"show_progress": "hidden", "api_visibility": "private"}
AT_ONCE: Final[dict[str, Any]] = QUIET | {"queue": False}
DRAWING: Final[dict[str, Any]] = QUIET | {
    "trigger_mode": "always_last",
    "concurrency_id": "drawing",
    "concurrency_limit": 4,
}
Shown = dict[str, Any]  # what a handler changes, by the names of widgets


class Widgets(dict[str, Any]):
    """Gradio's components by the names that handlers know them by; groups: those that a handler
    takes together, by the name of its `**parameter`."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.groups: dict[str, tuple[str, ...]] = {}

    def listen(self, triggers: Any, handler: Callable, changes: str = "", **options: Any) -> Any:
        """Call `handler` at `triggers`, one of Gradio's event listeners or several.

        Args:
            handler: takes values of widgets by their names, those of a group as `**form`, and
                `session`, whose visit it is. It returns what it changes by name; annotated as an
                `Iterator`, it streams that. What it leaves out stays as it is.
            changes: names of the widgets that it may change, with spaces between.

        Returns:
            Gradio's event, after which others may come.
        """
        signature, outputs = inspect.signature(handler), changes.split()
        names: list[str] = []
        for name, parameter in signature.parameters.items():
            group = self.groups[name] if parameter.kind is parameter.VAR_KEYWORD else (name,)
            names += [one for one in group if one not in (*names, "session")]

        def found(request: gr.Request, values: Sequence[Any]) -> Any:
            known = dict(zip(names, values, strict=True))
            if "session" in signature.parameters:
                known["session"] = request.session_hash or ""
            return handler(**known)

        def ordered(shown: Mapping[str, Any] | None) -> Any:
            values = tuple((shown or {}).get(name, gr.skip()) for name in outputs)
            return values[0] if len(values) == 1 else values or None

        def call(request: gr.Request, *values: Any) -> Any:
            with refusing():
                return ordered(found(request, values))

        def stream(request: gr.Request, *values: Any) -> Iterator[Any]:
            with refusing():
                for shown in found(request, values):
                    yield ordered(shown)

        called = stream if get_origin(signature.return_annotation) is Iterator else call
        given, shown = ([self[name] for name in part] for part in (names, outputs))
        on = triggers if callable(triggers) else partial(gr.on, triggers)
        return on(called, given, shown, **options)


def refusal(error: Exception) -> gr.Error:
    """`error` as a message that may be shown."""
    return gr.Error(
        errors.public_message(error), title="Not possible", duration=8, print_exception=False
    )


@contextmanager
def refusing() -> Iterator[None]:
    """Let only the closed list of sentences reach the screen."""
    try:
        yield
    except gr.Error:
        raise
    except Exception as error:
        raise refusal(error) from None
