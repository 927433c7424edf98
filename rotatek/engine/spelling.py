"""One token as text and as bytes, which may be a part of a character."""

import re
from functools import lru_cache
from typing import Any, Final

from transformers.convert_slow_tokenizer import bytes_to_unicode

from rotatek.inputs.text_files import whole_characters

BYTE: Final = re.compile(r"<0x([0-9A-F]{2})>")


def spelling(tokenizer: Any, token: int) -> tuple[str, bytes]:
    """What a token says.

    Args:
        tokenizer: of the model.
        token: its number.

    Returns:
        text, with a replacement character for what is only a part of one; and bytes, which are
        those of the text where the vocabulary has no spelling of its own for them.
    """
    text = whole_characters(tokenizer.decode([token]))
    if "\ufffd" not in text:
        return text, text.encode()
    piece = str(tokenizer.convert_ids_to_tokens(token))
    if (found := BYTE.fullmatch(piece)) is not None:
        return text, bytes([int(found[1], 16)])
    letters = _letters()
    if all(letter in letters for letter in piece):
        return text, bytes(letters[letter] for letter in piece)
    return text, text.encode()


@lru_cache(1)
def _letters() -> dict[str, int]:
    """The byte of each letter of byte-level vocabularies."""
    return {letter: byte for byte, letter in bytes_to_unicode().items()}
