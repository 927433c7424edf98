"""A call of `/v1/responses`, translated into a call of `/v1/chat/completions`.

Items of the input become messages, and `chat` reads the parts of either API. Features of this API
that the server does not have are refused by name.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rotatek import errors
from rotatek.inputs.text_files import whole_characters
from rotatek.methods.settings import Settings
from rotatek.server.chat_request import Call, object_of, read_call
from rotatek.server.fields import BOOLEAN, Rules, check_rules, is_nothing, is_one_of
from rotatek.server.files import Find

Past = Callable[[str], tuple[list[dict[str, Any]], int]]
RULES: Final[Rules] = {  # of fields of this API alone
    "instructions": (lambda given: isinstance(given, str), "a text"),
    "store": BOOLEAN,
    "text": (lambda given: isinstance(given, dict), "an object with a format"),
    "tools": (lambda given: isinstance(given, list), "a list"),
    "background": (is_nothing, "false or left out: answers are given at once"),
    "conversation": (is_nothing, "left out: give previous_response_id"),
    "prompt": (is_nothing, "left out: give instructions and input"),
    "n": (is_one_of(1), "1: a response has one answer"),
    "context_management": (is_nothing, "left out"),
}
OWN: Final = ("input", "instructions", "max_output_tokens", "previous_response_id", "text", "store")
NAMES: Final = {"max_tokens": "max_output_tokens", "response_format": "text.format"}
SILENT: Final = {"truncation": ("disabled",), "include": ([],), "top_logprobs": (0,)}
# Fields of the call that the response says again, with what it says where they are left out.
ECHOED: Final[dict[str, Any]] = {
    "instructions": None, "max_output_tokens": None, "metadata": {}, "parallel_tool_calls": True,
    "previous_response_id": None, "temperature": None, "top_p": None, "tool_choice": "auto",
    "tools": [], "truncation": "disabled", "user": None, "reasoning": {"effort": None},
    "text": {"format": {"type": "text"}},
}  # fmt: skip


@dataclass(frozen=True)
class ResponseCall:
    """One checked call.

    Args:
        call: as a chat.
        echoed: fields that the response says again.
        messages: the whole chat without instructions, as a chat call has it, for later calls.
        store: whether the response is kept for them.
        size: bytes of `messages`, about.
    """

    call: Call
    echoed: dict[str, Any]
    messages: list[dict[str, Any]]
    store: bool
    size: int


def read_response_call(
    body: bytes, models: Sequence[str], usual: Settings, find: Find, past: Past
) -> ResponseCall:
    """A call from a request's body. Takes as long as decoding its pictures.

    Args:
        body: JSON.
        models: as of `read_call`.
        usual: as of `read_call`.
        find: as of `read_call`.
        past: the chat that an earlier response ended, and its bytes, by its id; raises
            `ResponseUnknown`.

    Raises:
        UserError: as of `read_call`; `param` names the field of this API.
    """
    given = object_of(body)
    check_rules(given, RULES)
    earlier = given.get("previous_response_id")
    before, size = ([], 0) if earlier is None else past(str(earlier))
    items = list(_items(given.get("input")))
    chat = [*before, *(message for _, message in items)]
    led = []
    if "instructions" in given:
        led = [{"role": "system", "content": given["instructions"]}]
    try:
        call = read_call(_chat_call(given, [*led, *chat]), models, usual, find)
    except errors.UserError as error:
        numbers = [number for number, _ in items]
        error.param = _param(error.param, len(led) + len(before), numbers)
        raise
    echoed = {name: given.get(name, value) for name, value in ECHOED.items()}
    store = bool(given.get("store", True))
    return ResponseCall(call, _sayable(echoed), chat, store, size + len(body))


def _sayable(given: dict[str, Any]) -> dict[str, Any]:
    """The client's values without lone surrogates and numbers that JSON does not have."""
    text = whole_characters(json.dumps(given, ensure_ascii=False))
    found: dict[str, Any] = json.loads(text, parse_constant=lambda _: None)
    return found


def _items(given: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Messages of the input, each with the number of its item.

    Raises:
        InputUnreadable: for anything else; `param` names the item.
    """
    if isinstance(given, str):
        yield 0, {"role": "user", "content": given}
        return
    if not isinstance(given, list) or not given:
        raise errors.InputUnreadable
    for number, item in enumerate(given):
        message = _message(item)
        if message is None:
            unread = errors.InputUnreadable()
            unread.param = f"input[{number}]"
            raise unread
        if message:
            yield number, message


def _message(item: Any) -> dict[str, Any] | None:
    """An item as a message of a chat; empty for a model's reasoning, None for an item that is no
    message."""
    if not isinstance(item, dict):
        return None
    kind = item.get("type", "message")
    if kind == "message" and "role" in item:
        return {"role": item["role"], "content": item.get("content")}
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        calls = [{"id": item.get("call_id"), "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": calls}
    if kind == "function_call_output":
        told = {"tool_call_id": item.get("call_id"), "content": item.get("output")}
        return {"role": "tool"} | told
    return {} if kind == "reasoning" else None


def _chat_call(given: Mapping[str, Any], messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The equivalent chat call; the chat API checks the fields that both APIs have."""
    kept = {
        name: value
        for name, value in given.items()
        if name not in OWN and name not in ("metadata", "n")
        and value not in SILENT.get(name, ())
    }  # fmt: skip
    if "tools" in kept:
        kept["tools"] = [_tool(tool) for tool in kept["tools"]]
    if "max_output_tokens" in given:
        kept["max_tokens"] = given["max_output_tokens"]
    form = given.get("text", {}).get("format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        named = {name: value for name, value in form.items() if name != "type"}
        form = {"type": "json_schema", "json_schema": named}
    if form is not None:
        kept["response_format"] = form
    return kept | {"messages": messages}


def _tool(given: Any) -> dict[str, Any]:
    """A function as the chat API describes it."""
    kind = given.get("type") if isinstance(given, dict) else given
    if kind != "function":
        allowed = 'functions of yours, {"type": "function", "name": ...}: nothing is run here'
        raise errors.SettingError("tools", allowed, kind)
    return {"type": "function", "function": {k: v for k, v in given.items() if k != "type"}}


def _param(given: str | None, led: int, numbers: Sequence[int]) -> str | None:
    """The field of this API that a chat's field comes from; led: messages before the input's."""
    found = re.fullmatch(r"messages\[(\d+)\](.*)", given or "", re.DOTALL)
    if found is None:
        return "input" if given == "messages" else NAMES.get(given or "", given)
    at = int(found[1]) - led
    if not 0 <= at < len(numbers):
        return "instructions" if at < 0 and led == 1 else "previous_response_id"
    return f"input[{numbers[at]}]{found[2]}"
