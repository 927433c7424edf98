"""Fields of a call that change nothing here: neutral, ignored with a header, or refused.

An unknown field is ignored and named in a header. If a field would change the answer, the call is
refused with the field's name.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rotatek.errors import SettingError
from rotatek.server import sampling_fields

HEADER: Final = "x-rotatek-ignored"
MOST_NAMES: Final = 20  # of a header
LONGEST_NAME: Final = 60
OTHER: Final = "other"  # the metrics' label of a field that is not in `KNOWN`
NO_BEAMS: Final = "there is no beam search"
READ: Final = (
    "model", "messages", "max_tokens", "max_completion_tokens", "stop", "stream", "stream_options",
    "tools", "functions", "tool_choice", "function_call", "rotatek", *sampling_fields.NAMES,
)  # fmt: skip
Neutral = Callable[[Any], bool]


def _is(*values: Any) -> Neutral:
    return lambda given: any(given == value for value in values)


def _is_nothing(given: Any) -> bool:
    return not given


# Another value would change the answer: what each must be, and which values are it.
FIXED: Final[dict[str, tuple[Neutral, str]]] = {
    "best_of": (_is(1), "1 or left out: n is the number of answers"),
    "length_penalty": (_is(1), f"1 or left out: {NO_BEAMS}"),
    "use_beam_search": (_is_nothing, f"false or left out: {NO_BEAMS}"),
    "prompt_logprobs": (_is_nothing, "left out"),
    "guided_json": (_is_nothing, "left out"),
    "guided_regex": (_is_nothing, "left out"),
    "guided_choice": (_is_nothing, "left out"),
    "guided_grammar": (_is_nothing, "left out"),
    "structured_outputs": (_is_nothing, "left out"),
    "modalities": (_is(["text"], []), '["text"] or left out'),
    "audio": (_is_nothing, "left out: answers are text"),
    "min_tokens": (_is(0), "0 or left out"),
    "ignore_eos": (_is_nothing, "false or left out"),
    "echo": (_is_nothing, "false or left out"),
    "bad_words": (_is_nothing, "left out"),
    "stop_token_ids": (_is_nothing, "left out: give stop texts"),
    "include_stop_str_in_output": (_is_nothing, "false or left out"),
    "continue_final_message": (_is_nothing, "false or left out"),
    "add_generation_prompt": (_is(True), "true or left out"),
    "web_search_options": (_is_nothing, "left out: nothing is fetched"),
}
# No value changes the answer; these values are accepted silently.
NEUTRAL: Final[dict[str, Neutral]] = {
    "top_a": _is(0),
    "typical_p": _is(1),
    "store": _is(False),
    "skip_special_tokens": _is(True),
    "spaces_between_special_tokens": _is(True),
}
KNOWN: Final = frozenset(NEUTRAL) | {
    "user", "metadata", "service_tier", "reasoning_effort", "parallel_tool_calls", "verbosity",
    "prediction", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "tools",
    "functions", "messages.name", "stream_options.include_obfuscation", "extra_body", "priority",
    "content.cache_control", "chat_template_kwargs", "mm_processor_kwargs", "keep_alive", "options",
}  # fmt: skip


class Ignored:
    """The names of a call's ignored fields, in order, each once."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def add(self, name: str, value: Any = True) -> None:
        """Note a field, unless its value is null."""
        if value is not None:
            self.names.setdefault(name)

    def rest(self, given: Mapping[str, Any], read: Iterable[str], inside: str) -> None:
        """Note the fields of an object that are not read."""
        for name, value in given.items():
            if name not in read:
                self.add(f"{inside}.{name}", value)


def check_fields(given: Mapping[str, Any], ignored: Ignored) -> None:
    """Refuse fields that would change the answer, and note those that do not.

    Raises:
        SettingError: for the first field of `FIXED` that is not as it has to be.
    """
    for name, value in given.items():
        if name in FIXED:
            is_neutral, allowed = FIXED[name]
            if not is_neutral(value):
                raise SettingError(name, allowed, value)
        elif name not in READ and not (name in NEUTRAL and NEUTRAL[name](value)):
            ignored.add(name)


def header_of(names: Iterable[str]) -> str:
    """Names for a header: printable ASCII, so many and so long at most."""
    clean = ("".join(c if "!" <= c <= "~" and c != "," else "?" for c in n) for n in names)
    return ", ".join([name[:LONGEST_NAME] or "?" for name in clean][:MOST_NAMES])


def label_of(name: str) -> str:
    """A field's label in the metrics, from a fixed set."""
    return name if name in KNOWN else OTHER
