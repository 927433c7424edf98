"""An answer's tokens as words, so that each can be chosen."""

from collections.abc import Iterable
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
