"""An answer's tokens as words, each to be chosen; and whether two answers are the same."""

import unicodedata
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Word(NamedTuple):
    """Tokens `first` to `last` of an answer, and the white space before them."""

    space: str
    pieces: tuple[str, ...]
    first: int
    last: int


def words_of(pieces: Iterable[str]) -> list[Word]:
    """Tokens grouped into words: white space before or after a token ends one.

    Space behind the last word is a word of no tokens.
    """
    words: list[Word] = []
    held: list[str] = []
    space, first, count = "", 0, 0
    for number, piece in enumerate(pieces):
        text, count = piece.lstrip(), number + 1
        if len(text) < len(piece) and any(held):
            words.append(Word(space, tuple(held), first, number - 1))
            space, held = "", []
        if not held:
            first = number
        space, body = space + piece[: len(piece) - len(text)], text.rstrip()
        held.append(body)
        if len(body) < len(text):
            words.append(Word(space, tuple(held), first, number))
            space, held = text[len(body) :], []
    if held or space:
        words.append(Word(space, tuple(held), first if held else count, count - 1))
    return words


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
