"""Handlers get their inputs by name, and what they return goes to the widgets of that name."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from gradio.utils import get_function_params

from rotatek.page.binding import called_by_name, listen
from rotatek.page.user_errors import refusing, refusing_stream

VISITOR: Any = SimpleNamespace(session_hash="visitor")


def total(one: int, two: int, session: str | None = None, **rest: int) -> dict[str, Any]:
    """Adds up."""
    return {"sum": one + two + sum(rest.values()), "session": session}


def test_values_arrive_by_name_whatever_their_order() -> None:
    call = called_by_name(refusing(total), ["three", "two", "one"], ["session", "sum", "other"])
    session, found, other = call(VISITOR, 300, 20, 1)
    assert (session, found) == ("visitor", 321)
    assert other == gr.skip()
    assert call.__doc__ == "Adds up."


def test_programs_see_the_names() -> None:
    call = called_by_name(total, ["two", "one", "five"])
    assert [name for name, *_ in get_function_params(call)] == ["two", "one", "five"]
    assert call(VISITOR, 1, 2, 3) == {"sum": 6, "session": "visitor"}


def test_a_stream_stays_one_and_its_failure_is_a_sentence() -> None:
    @refusing_stream
    def counted(most: int) -> Iterator[dict[str, int]]:
        yield from ({"at": number} for number in range(most))
        raise RuntimeError("secret")

    call = called_by_name(counted, ["most"], ["at"])
    stream = call(VISITOR, 2)
    assert [next(stream), next(stream)] == [0, 1]
    with pytest.raises(gr.Error, match="Something went wrong"):
        next(stream)


@pytest.mark.parametrize("inputs", [["one"], ["one", "two", "session", "session"]])
def test_a_handler_that_wants_other_inputs_is_found_when_the_page_is_built(inputs: list) -> None:
    def exactly(one: int, two: int) -> None:
        """Takes two."""

    with pytest.raises(TypeError):
        called_by_name(exactly, inputs)


def test_a_handler_that_changes_nothing_may_be_bound() -> None:
    with gr.Blocks():
        button, box = gr.Button(), gr.Number()
        listen(button.click, lambda one: None, {"one": box}, {})
        listen([button.click, box.change], lambda one: {"two": one}, {"one": box}, {"two": box})
