"""Whether two answers are the same, the same up to spelling, or different."""

import unicodedata
from enum import StrEnum


class Verdict(StrEnum):
    """How an answer compares with the uncompressed one."""

    SAME = "same"
    SPELLING = "spelling"  # the same letters, digits and symbols
    DIFFERENT = "different"


def compare(answer: str, reference: str) -> Verdict:
    """Same, the same up to case, spaces and punctuation, or different."""
    if answer.strip() == reference.strip():
        return Verdict.SAME
    return Verdict.SPELLING if spelled(answer) == spelled(reference) else Verdict.DIFFERENT


def spelled(text: str) -> str:
    """Letters, digits and symbols of `text` without case, spaces and punctuation.

    Marks between digits, and a sign before them, change a number and stay.
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    kept = []
    for at, char in enumerate(text):
        kind = unicodedata.category(char)[0]
        before, after = text[at - 1 : at], text[at + 1 : at + 2]
        numeric = after.isdigit() and (before.isdigit() or (char in "-\u2212" and before != char))
        if kind not in "PZC" or (kind == "P" and numeric and not before.isalpha()):
            kept.append(char)
    return "".join(kept)
