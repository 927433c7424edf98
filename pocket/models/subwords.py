"""SmolLM2's own tokens, as the third pocket reads and writes them."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer

from pocket.models.tokenizer import byte_symbols
from rotatek.models import smollm2

KEPT: Final = 1 << 15  # texts whose ids are kept: a question is counted, then written


class Subwords:
    """A `models.tokenizer.Codec` of a byte-level BPE tokenizer.

    Args:
        tokenizer: With SmolLM2's special tokens.
    """

    PAD, IM_END = smollm2.PAD, smollm2.IM_END
    VISION_END, IMAGE_PAD = smollm2.VISION_END, smollm2.IMAGE_PAD

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.encode_special_tokens = True  # text that spells one of them stays text
        self._tokenizer = tokenizer
        self._ids = lru_cache(maxsize=KEPT)(self._encoded)

    @classmethod
    def of(cls, path: Path) -> "Subwords":
        """The tokens of a file of SmolLM2."""
        return cls(Tokenizer.from_str(json.dumps(smollm2.tokenizer(path))))

    @classmethod
    def of_bytes(cls) -> "Subwords":
        """A stand-in without merges, for where there is no such file: 17 special tokens, bytes."""
        named = {0: "<|endoftext|>", 1: "<|im_start|>", 2: "<|im_end|>", **smollm2.RENAMED}
        special = {number: named.get(number, f"<|unused_{number}|>") for number in range(17)}
        made = smollm2.byte_level([*special.values(), *byte_symbols()], special)
        return cls(Tokenizer.from_str(json.dumps(made)))

    @property
    def size(self) -> int:
        """Of the vocabulary."""
        return int(self._tokenizer.get_vocab_size())

    def encode(self, text: str, /) -> list[int]:
        """Token ids of `text`; control tokens in it stay plain text."""
        return list(self._ids(text))

    def decode(self, ids: list[int], /) -> str:
        """Text of `ids`; special tokens are left out and broken UTF-8 is replaced."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def prefix(self) -> list[int]:
        """What comes before the visual tokens of a conversation."""
        return [smollm2.IM_START, *self.encode("user\n"), smollm2.VISION_START]

    def question_ids(self, question: str, first: bool) -> list[int]:
        """The ids between the visual tokens (or the last answer) and the answer."""
        again = [*self.encode("\n"), smollm2.IM_START, *self.encode("user\n")]
        head = [self.VISION_END] if first else again
        asks = [self.IM_END, *self.encode("\n"), smollm2.IM_START, *self.encode("assistant\n")]
        return [*head, *self.encode(question), *asks]

    def answer_ids(self, answer: str, /) -> list[int]:
        """The answer and its end: the only tokens that the training loss counts."""
        return [*self.encode(answer), self.IM_END]

    def plain_ids(self, question: str) -> list[int]:
        """What comes before the answer to a question without a picture."""
        start = [smollm2.IM_START, *self.encode("user\n")]
        return [*start, *self.question_ids(question, first=True)[1:]]

    def _encoded(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)
