"""How handlers are bound to widgets: by name, never by a widget's place in a list."""

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
Widgets = Mapping[str, Any]  # Gradio's components by the names that handlers know


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

    Raises:
        TypeError: where the handler does not take just these inputs.
    """
    signature = inspect.signature(handler)
    wants_session = "session" in signature.parameters
    signature.bind(**dict.fromkeys([*inputs, *(["session"] if wants_session else [])]))

    def given(request: gr.Request, values: Sequence[Any]) -> dict[str, Any]:
        known = dict(zip(inputs, values, strict=True))
        return known | ({"session": request.session_hash} if wants_session else {})

    def call(request: gr.Request, *values: Any) -> Any:
        return _in_order(handler(**given(request, values)), outputs)

    def stream(request: gr.Request, *values: Any) -> Iterator[Any]:
        for found in handler(**given(request, values)):
            yield _in_order(found, outputs)

    made: Any = stream if get_origin(signature.return_annotation) is Iterator else call
    named = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in inputs]
    first = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    made.__signature__ = inspect.Signature([first, *named])
    made.__doc__, made.__name__ = handler.__doc__, handler.__name__
    return made


def _in_order(found: Any, outputs: Sequence[str] | None) -> Any:
    """What a handler returned by name, as Gradio takes it."""
    if not outputs:
        return found
    values = tuple((found or {}).get(name, gr.skip()) for name in outputs)
    return values[0] if len(values) == 1 else values


def listen(
    triggers: Any, handler: Callable, inputs: Widgets, outputs: Widgets, **options: Any
) -> Any:
    """Call `handler` at `triggers` with the values of `inputs`, and show what it returns.

    Args:
        triggers: one of Gradio's event listeners, or several.
        handler: as `called_by_name` takes it; it returns values for some of `outputs`, by name.
        options: of Gradio's event.

    Returns:
        Gradio's event, after which others may come.
    """
    call = called_by_name(handler, list(inputs), list(outputs))
    if not isinstance(triggers, list):
        return triggers(call, list(inputs.values()), list(outputs.values()), **options)
    return gr.on(triggers, call, list(inputs.values()), list(outputs.values()), **options)


def listen_to_selection(trigger: Any, handler: Callable, outputs: Widgets, **options: Any) -> Any:
    """Call `handler` with the number of what was selected, and show what it returns by name."""

    def selected(event: gr.SelectData) -> Any:
        return _in_order(handler(event.index), list(outputs))

    return trigger(selected, None, list(outputs.values()), **options)
