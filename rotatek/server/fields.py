"""What the fields of a call may be, and which change nothing: neutral, ignored with a header, or
refused.

An unknown field is ignored and named in a header. If a field would change the answer, the call is
refused with the field's name.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rotatek.engine.grammar import compiled
from rotatek.errors import SettingError
from rotatek.inputs.sampling import Sampling

FIELD: Final = "response_format"
MOST_ANSWERS: Final = 16
NUMBERS: Final = (
    "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "logit_bias",
)  # fmt: skip
NAMES: Final = (*NUMBERS, "top_logprobs", FIELD)
FORMS: Final = '{"type": "text"}, {"type": "json_object"} or {"type": "json_schema", ...}'
HEADER: Final = "x-rotatek-ignored"
MOST_NAMES: Final = 20  # of a header
LONGEST_NAME: Final = 60
OTHER: Final = "other"  # the metrics' label of a field that is not in `KNOWN`
NO_BEAMS: Final = "there is no beam search"
READ: Final = (  # those without a rule are checked where they are read
    "model", "messages", "max_tokens", "max_completion_tokens", "stop", "tools", "functions",
    "rotatek", *NAMES,
)  # fmt: skip
Check = Callable[[Any], bool]
Rules = Mapping[str, tuple[Check, str]]  # which values a field may have, and what they are called


def is_one_of(*values: Any) -> Check:
    """Whether a value equals one of these."""
    return lambda given: any(given == value for value in values)


def is_nothing(given: Any) -> bool:
    """Whether a value is false, zero or empty."""
    return not given


def _is_count(given: Any) -> bool:
    is_whole = isinstance(given, int) and not isinstance(given, bool)
    return is_whole and 1 <= given <= MOST_ANSWERS


BOOLEAN: Final = is_one_of(False, True), "true or false"
NO_CALL: Final = is_one_of("none", "auto"), '"none", "auto" or left out'
RULES: Final[Rules] = {
    "stream": BOOLEAN,
    "stream_options": (lambda given: isinstance(given, dict) or not given, "an object"),
    "n": (_is_count, f"a whole number from 1 to {MOST_ANSWERS}"),
    "logprobs": (is_one_of(False, True), "true, false or left out"),
    "tool_choice": NO_CALL,
    "function_call": NO_CALL,
    # of those below another value would change the answer
    "best_of": (is_one_of(1), "1 or left out: n is the number of answers"),
    "length_penalty": (is_one_of(1), f"1 or left out: {NO_BEAMS}"),
    "use_beam_search": (is_nothing, f"false or left out: {NO_BEAMS}"),
    **dict.fromkeys(
        ("prompt_logprobs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
         "structured_outputs", "bad_words"), (is_nothing, "left out"),
    ),
    **dict.fromkeys(
        ("ignore_eos", "echo", "include_stop_str_in_output", "continue_final_message"),
        (is_nothing, "false or left out"),
    ),
    "modalities": (is_one_of(["text"], []), '["text"] or left out'),
    "audio": (is_nothing, "left out: answers are text"),
    "min_tokens": (is_one_of(0), "0 or left out"),
    "stop_token_ids": (is_nothing, "left out: give stop texts"),
    "add_generation_prompt": (is_one_of(True), "true or left out"),
    "web_search_options": (is_nothing, "left out: nothing is fetched"),
}  # fmt: skip
# No value changes the answer; these values are accepted silently.
NEUTRAL: Final[dict[str, Check]] = {
    "top_a": is_one_of(0),
    "typical_p": is_one_of(1),
    "store": is_one_of(False),
    "skip_special_tokens": is_one_of(True),
    "spaces_between_special_tokens": is_one_of(True),
}
KNOWN: Final = frozenset(NEUTRAL) | {
    "user", "metadata", "service_tier", "reasoning_effort", "parallel_tool_calls", "verbosity",
    "prediction", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "tools",
    "functions", "messages.name", "stream_options.include_obfuscation", "extra_body", "priority",
    "content.cache_control", "chat_template_kwargs", "mm_processor_kwargs", "keep_alive", "options",
}  # fmt: skip


# In names of fields where other APIs have pictures and files, which an answer must not miss.
PICTURED: Final = re.compile(
    r"(?:^|_|\b)(image|img|picture|photo|screenshot|attachment|file|document|media|video)s?(?:$|_)"
    r"|multi_?modal", re.IGNORECASE,
)  # fmt: skip
BRIEF: Final = 32  # characters of a text that is no file


class Ignored:
    """The names of a call's ignored fields, in order, each once."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def add(self, name: str, value: Any = True) -> None:
        """Note a field, unless its value is null."""
        if value is not None:
            self.names.setdefault(name)

    def rest(
        self, given: Mapping[str, Any], read: Iterable[str], inside: str, place: str = ""
    ) -> None:
        """Note the fields of an object that are not read; place: of it in the call.

        Raises:
            SettingError: for one that may have a picture.
        """
        for name, value in given.items():
            if name not in read:
                check_unread(name, value, place or inside)
                self.add(f"{inside}.{name}", value)


def check_unread(name: str, value: Any, place: str = "") -> None:
    """Refuse a field that is not read and has a picture, as other APIs spell it.

    Raises:
        SettingError: `param` is the field.
    """
    held = (
        len(value) > BRIEF if isinstance(value, str) else isinstance(value, dict | list) and value
    )
    if held and PICTURED.search(re.sub("([A-Z])", r"_\1", name)):
        field = f"{place}.{name}" if place else name
        raise SettingError(field, "left out: pictures are read as parts of type image_url", value)


def check_rules(given: Mapping[str, Any], rules: Rules) -> None:
    """Refuse a value that a field may not have.

    Raises:
        SettingError: for the first such field.
    """
    for name, value in given.items():
        if name in rules and not rules[name][0](value):
            raise SettingError(name, rules[name][1], value)


def check_fields(given: Mapping[str, Any], ignored: Ignored) -> None:
    """Refuse fields that would change the answer, and note those that do not.

    Raises:
        SettingError: as of `check_rules` and `check_unread`.
    """
    check_rules(given, RULES)
    for name, value in given.items():
        is_known = name in RULES or name in READ
        if not is_known and not (name in NEUTRAL and NEUTRAL[name](value)):
            check_unread(name, value)
            ignored.add(name)


def header_of(names: Iterable[str]) -> str:
    """Names for a header: printable ASCII, so many and so long at most."""
    clean = ("".join(c if "!" <= c <= "~" and c != "," else "?" for c in n) for n in names)
    return ", ".join([name[:LONGEST_NAME] or "?" for name in clean][:MOST_NAMES])


def label_of(name: str) -> str:
    """A field's label in the metrics, from a fixed set."""
    return name if name in KNOWN else OTHER


def sampling_of(given: Mapping[str, Any]) -> Sampling:
    """How a call's answers are chosen, with a seed where they are drawn.

    Args:
        given: the call's fields; what is left out is greedy.

    Raises:
        SettingError: for a value out of range.
        SchemaUnusable: for a schema that cannot be followed.
        SchemasNotInstalled: for a schema, where the library is not there.
    """
    own = {name: given[name] for name in NUMBERS if given.get(name) is not None}
    return Sampling(
        **own, top_logprobs=_tops_of(given), grammar=_grammar_of(given.get(FIELD))
    ).seeded()


def _tops_of(given: Mapping[str, Any]) -> int | None:
    """How many likely tokens are reported with each; None where no log probabilities are wanted."""
    wanted, top = given.get("logprobs"), given.get("top_logprobs")
    if wanted:
        return 0 if top is None else top
    if top not in (None, 0):
        raise SettingError("top_logprobs", "left out, or beside logprobs: true", top)
    return None


def _grammar_of(form: Any) -> str:
    """The grammar of an answer's form; empty for any text."""
    if form is None:
        return ""
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return ""
    if kind == "json_object":
        return compiled('{"type": "object"}')
    if kind != "json_schema":
        raise SettingError(FIELD, FORMS, form)
    named = form.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    if not isinstance(schema, dict):
        raise SettingError(f"{FIELD}.json_schema.schema", "a JSON schema, which is an object", form)
    return compiled(json.dumps(schema), lenient=named.get("strict") is not True)
