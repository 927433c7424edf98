"""What the fields of a call may be, and which change nothing: ignored with a header, or refused.

An unknown field is ignored and named in a header. If a field would change the answer, the call is
refused with the field's name.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
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
FORMS: Final = '{"type": "text"}, {"type": "json_object"} or {"type": "json_schema", ...}'
HEADER: Final = "x-rotatek-ignored"
MOST_NAMES: Final = 20  # of a header
LONGEST_NAME: Final = 60
READ: Final = (  # checked where they are read
    "model", "messages", "max_tokens", "max_completion_tokens", "stop", "tools",
    "rotatek", "stream_options", *NUMBERS, "top_logprobs", FIELD,
)  # fmt: skip
BOOLEAN: Final = (False, True)
NOTHING: Final[Sequence[Any]] = (False, 0, "", [], {})
NO_BEAMS: Final = "there is no beam search"
RULES: Final[Mapping[str, tuple[Sequence[Any], str]]] = {  # values that a field may have, in words
    "stream": (BOOLEAN, "true or false"),
    "n": (range(1, MOST_ANSWERS + 1), f"a whole number from 1 to {MOST_ANSWERS}"),
    "logprobs": (BOOLEAN, "true, false or left out"),
    "tool_choice": (("none", "auto"), '"none", "auto" or left out'),
    **dict.fromkeys(("functions", "function_call"), (NOTHING, "left out: give tools")),
    # of those below another value would change the answer
    "best_of": ([1], "1 or left out: n is the number of answers"),
    "length_penalty": ([1], f"1 or left out: {NO_BEAMS}"),
    "use_beam_search": (NOTHING, f"false or left out: {NO_BEAMS}"),
    **dict.fromkeys(
        ("prompt_logprobs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
         "structured_outputs", "bad_words"), (NOTHING, "left out"),
    ),
    **dict.fromkeys(
        ("ignore_eos", "echo", "include_stop_str_in_output", "continue_final_message"),
        (NOTHING, "false or left out"),
    ),
    "modalities": ((["text"], []), '["text"] or left out'),
    "audio": (NOTHING, "left out: answers are text"),
    "min_tokens": ([0], "0 or left out"),
    "stop_token_ids": (NOTHING, "left out: give stop texts"),
    "add_generation_prompt": ([True], "true or left out"),
    "web_search_options": (NOTHING, "left out: nothing is fetched"),
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
        self, given: Mapping[str, Any], read: Iterable[str], inside: str = "", place: str = ""
    ) -> None:
        """Note the fields of an object that are not read; inside: its name, where it is a part of
        the call, and place: where it is there.

        Raises:
            SettingError: for one that may have a picture, as other APIs spell it.
        """
        for name, value in given.items():
            if name in read:
                continue
            least = BRIEF if isinstance(value, str) else 0
            held = isinstance(value, str | dict | list) and len(value) > least
            if held and PICTURED.search(re.sub("([A-Z])", r"_\1", name)):
                field = ".".join(filter(None, (place or inside, name)))
                allowed = "left out: pictures are read as parts of type image_url"
                raise SettingError(field, allowed, value)
            self.add(".".join(filter(None, (inside, name))), value)


def check_fields(given: Mapping[str, Any], ignored: Ignored) -> None:
    """Refuse fields that would change the answer, and note those that do not.

    Raises:
        SettingError: for the first field with a value that it may not have, and as of
            `Ignored.rest`.
    """
    for name, (allowed, words) in RULES.items():
        if name in given and given[name] not in allowed:
            raise SettingError(name, words, given[name])
    ignored.rest(given, [*RULES, *READ])


def header_of(names: Iterable[str]) -> str:
    """Names for a header: printable ASCII, so many and so long at most."""
    clean = ("".join(c if "!" <= c <= "~" and c != "," else "?" for c in n) for n in names)
    return ", ".join([name[:LONGEST_NAME] or "?" for name in clean][:MOST_NAMES])


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
    top = given.get("top_logprobs", 0)
    if not given.get("logprobs"):
        if top != 0:
            raise SettingError("top_logprobs", "left out, or beside logprobs: true", top)
        top = None  # no log probabilities are wanted
    return Sampling(**own, top_logprobs=top, grammar=_grammar_of(given.get(FIELD))).seeded()


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
