"""The fields of a call for sampling and for the form of the answer."""

import json
from collections.abc import Mapping
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
