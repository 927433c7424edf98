"""How handlers are bound to widgets: by the names of their parameters and of what they return."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, get_origin

import gradio as gr

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
    """Gradio's components by the names that handlers know them by.

    Attributes:
        settings: names of those that `form.settings_of` takes, for a handler's `**form`.
    """

    settings: tuple[str, ...] = ()

    def listen(self, triggers: Any, handler: Callable, changes: str = "", **options: Any) -> Any:
        """Call `handler` at `triggers`, one of Gradio's event listeners or several.

        Args:
            triggers: as `widgets["ask"].click`.
            handler: takes values of widgets by their names, those of the settings as `**form`, and
                `session`, whose visit it is. It returns what it changes by name, or streams it.
            changes: names of the widgets that it may change, with spaces between.
            options: of Gradio's event.

        Returns:
            Gradio's event, after which others may come.

        Raises:
            KeyError: for a name that no widget has.
        """
        names: list[str] = []
        for name, parameter in inspect.signature(handler).parameters.items():
            is_form = parameter.kind is parameter.VAR_KEYWORD
            names += [n for n in self.settings if n not in names] if is_form else [name]
        names = [name for name in names if name != "session"]
        outputs = changes.split()
        call = called_by_name(handler, names, outputs)
        given, shown = ([self[name] for name in part] for part in (names, outputs))
        if not isinstance(triggers, list):
            return triggers(call, given, shown, **options)
        return gr.on(triggers, call, given, shown, **options)


def called_by_name(
    handler: Callable, inputs: Sequence[str], outputs: Sequence[str] | None = None
) -> Callable:
    """`handler` as Gradio calls it: with the inputs' values in order, and the visitor's request.

    Args:
        handler: takes the inputs as keyword arguments, and `session`, whose visit it is, where it
            has a parameter of that name. Where it returns an `Iterator`, so does the call.
        inputs: names of the values, in the order in which they come.
        outputs: names of what is returned, in the order in which Gradio takes them; the handler
            returns a mapping, and what it leaves out stays as it is. None: it returns one value.
    """
    signature = inspect.signature(handler)
    wants_session = "session" in signature.parameters

    def given(request: gr.Request, values: Sequence[Any]) -> dict[str, Any]:
        known = dict(zip(inputs, values, strict=True))
        return known | ({"session": request.session_hash} if wants_session else {})

    def call(request: gr.Request, *values: Any) -> Any:
        return in_order(handler(**given(request, values)), outputs)

    def stream(request: gr.Request, *values: Any) -> Iterator[Any]:
        for found in handler(**given(request, values)):
            yield in_order(found, outputs)

    made: Any = stream if get_origin(signature.return_annotation) is Iterator else call
    named = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in inputs]
    first = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    made.__signature__ = inspect.Signature([first, *named])
    made.__doc__, made.__name__ = handler.__doc__, handler.__name__
    return made


def in_order(found: Mapping[str, Any] | Any, outputs: Sequence[str] | None) -> Any:
    """What a handler returned by name, as Gradio takes it."""
    if not outputs:
        return found
    values = tuple((found or {}).get(name, gr.skip()) for name in outputs)
    return values[0] if len(values) == 1 else values
