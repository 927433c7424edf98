"""Answers that follow a JSON schema: which tokens may come next. The only user of llguidance.

White space is bounded: one space at most between two pieces of JSON, so that no answer is filled
with it to its end.
"""

from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from rotatek.errors import SchemaBroken, SchemasNotInstalled, SchemaUnusable
from rotatek.models import VisionLanguageModel

SPACE: Final = {"whitespace_pattern": " ?"}
LONGEST: Final = 100_000  # characters of a schema
SHOWN: Final = 160  # of what is wrong with it


def _library() -> Any:
    """llguidance, imported when it is needed."""
    try:
        import llguidance  # noqa: PLC0415  # of an extra
        import llguidance.hf  # noqa: PLC0415
    except ImportError as error:
        raise SchemasNotInstalled from error
    return llguidance


def compiled(schema: str, *, lenient: bool = False) -> str:
    """A JSON schema as a checked grammar, for `Sampling.grammar`, in JSON; lenient: leave out what
    the library cannot enforce, in place of refusing it.

    Raises:
        SchemaUnusable: for a schema that is none, or that cannot be enforced.
        SchemasNotInstalled: where the library is not there.
    """
    if len(schema) > LONGEST:
        raise SchemaUnusable(f"The JSON schema is longer than {LONGEST:,} characters. Shorten it.")
    matcher = _library().LLMatcher
    try:
        grammar = matcher.grammar_from_json_schema(schema, overrides=SPACE | {"lenient": lenient})
        fault = matcher.validate_grammar(grammar)
    except (ValueError, RecursionError) as error:
        fault = str(error)
    if fault:
        said = " ".join(fault.split())[:SHOWN].rstrip(".")
        raise SchemaUnusable(f"The JSON schema cannot be enforced ({said}). Change it.")
    return str(grammar)


def spelt(vlm: VisionLanguageModel) -> Any:
    """What a model's tokens spell, for `Matcher`."""
    return _library().hf.from_tokenizer(vlm.tokenizer, eos_token=sorted(vlm.stop_ids))


class Matcher:
    """One answer on its way through a grammar of `compiled`, with tokens of `spelt`.

    Raises:
        SchemaBroken: where it cannot be followed, or is too large for the library.
    """

    def __init__(self, tokens: Any, grammar: str) -> None:
        self._matcher = _library().LLMatcher(tokens, grammar, log_level=0)
        self._check()

    def allowed(self, vocabulary: int, device: torch.device) -> Tensor:
        """[vocabulary] bool: which tokens may come next."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        mask = np.unpackbits(bits, bitorder="little")[:vocabulary]
        mask = np.pad(mask, (0, vocabulary - len(mask)))
        return torch.from_numpy(mask.astype(bool)).to(device)

    def take(self, token: int) -> None:
        """The token that was chosen; none is after the end."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise SchemaBroken
