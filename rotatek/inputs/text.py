"""Typed text: its cleaning and its limits."""

import unicodedata
from typing import Final

MAX_TEXT: Final = 400_000  # characters over all messages: more than any context holds
_REORDERING: Final = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"


def clean_text(text: str) -> str:
    """Line ends as "\\n", nothing unprintable but newline and tab, NFC, no outer white space."""
    return printable(text).strip()


def printable(text: str) -> str:
    """As `clean_text`, with its outer white space."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    kept = "".join(c for c in text if c in "\n\t" or not _is_control(c))
    return unicodedata.normalize("NFC", kept)


def is_visible(c: str) -> bool:
    """Whether a character shows something by itself."""
    return not c.isspace() and unicodedata.category(c) not in ("Cf", "Mn", "Me")


def _is_control(c: str) -> bool:
    """Controls, surrogates, private use (`rotatek.inputs.prompt` uses it for marks),
    separators of old terminals, and marks that reorder displayed text."""
    category = unicodedata.category(c)
    return category in ("Cc", "Cs", "Co", "Zl", "Zp") or c in _REORDERING
