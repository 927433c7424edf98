"""Answers that follow a JSON schema: which tokens may come next. The only user of llguidance.

White space is bounded: one space at most between two pieces of JSON, so that no answer is filled
with it to its end.
"""

import threading
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
    """llguidance, imported when it is needed.

    Raises:
        SchemasNotInstalled: where it is not there.
    """
    try:
        import llguidance  # noqa: PLC0415  # of an extra
        import llguidance.hf  # noqa: PLC0415
    except ImportError as error:
        raise SchemasNotInstalled from error
    return llguidance


def compiled(schema: str, *, lenient: bool = False) -> str:
    """A JSON schema as a grammar, checked.

    Args:
        schema: as JSON text.
        lenient: leave out what the library cannot enforce, in place of refusing it.

    Returns:
        The grammar as JSON text, which `Sampling.grammar` takes.

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


class Grammars:
    """What one model's tokens spell, for grammars; made when the first one comes.

    Args:
        vlm: whose tokenizer and ends of answers count.
        lock: held while the tokenizer is read.
    """

    def __init__(self, vlm: VisionLanguageModel, lock: threading.Lock) -> None:
        self.vlm, self._lock = vlm, lock
        self._tokenizer: Any = None

    def matcher(self, grammar: str) -> "Matcher":
        """A grammar's beginning.

        Raises:
            SchemasNotInstalled: where the library is not there.
            SchemaBroken: where the grammar is too large for it.
        """
        library = _library()
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = library.hf.from_tokenizer(
                    self.vlm.tokenizer, eos_token=sorted(self.vlm.stop_ids)
                )
        return Matcher(library.LLMatcher(self._tokenizer, grammar, log_level=0))


class Matcher:
    """One answer on its way through a grammar.

    Args:
        matcher: of llguidance.

    Raises:
        SchemaBroken: where it cannot be followed.
    """

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher
        self._check()

    def allowed(self, vocabulary: int, device: torch.device) -> Tensor:
        """[vocabulary] bool: which tokens may come next.

        Raises:
            SchemaBroken: where the grammar has become too large to follow.
        """
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
