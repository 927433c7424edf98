"""Attention targets: the visual token that shows each byte of an answer.

The second pocket reads an answer once it has found it: with its first weights 96 % of an answer's
bytes were right once the first was given, but only 47 % of first bytes. It has to learn where to
attend, since tiles in a row of tokens do not show their layout. The drawing code has the positions.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from pocket.document import Document
from pocket.glyphs import GLYPHS

THOUGHT: Final = frozenset({"yes_no", "count", "absent", "kind"})  # answers that nothing shows
LEAST: Final = 2  # glyphs of a searched text: single ones occur anywhere
WORD: Final = 3  # ... and of a word of an answer that is not printed in one piece


def told_places(labels: np.ndarray, document: Document, tokens: np.ndarray) -> np.ndarray:
    """The visual token for each label, or -1: not printed, or in more than one place.

    Args:
        labels: int64 [T], as `packing.pack` gives them.
        document: What the answers are about.
        tokens: int64 [n], the visual token of each of the document's glyphs, or -1.

    Returns:
        int64 [T].
    """
    out = np.full(len(labels), -1, np.int64)
    written = "".join(GLYPHS[int(g)] for g in document.glyphs[:, 0])
    thought = {q.answer for q in document.questions if q.kind in THOUGHT}
    for begin, answer in answers(labels):
        if answer in thought:
            continue
        for start, glyph in _printed(answer, written):
            size = len(answer[start].encode())
            at = begin + len(answer[:start].encode())
            out[at : at + size] = tokens[glyph]
    return out


def answers(labels: np.ndarray) -> Iterator[tuple[int, str]]:
    """The start of each answer in `labels`, and the answer."""
    counted = np.concatenate(([False], labels >= 0, [False])).astype(np.int8)
    edges = np.diff(counted)
    for begin, end in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
        said = labels[begin : end - 1]  # without the token that ends it
        yield int(begin), bytes(said.astype(np.uint8)).decode("utf-8")


def _printed(answer: str, written: str) -> Iterator[tuple[int, int]]:
    """Characters of `answer` and the glyphs that show them: as a whole, or else word by word."""
    whole = [i for i, c in enumerate(answer) if not c.isspace()]
    parts, least = [whole], LEAST
    if written.count("".join(answer[i] for i in whole)) == 0:
        parts, least = _words(answer), WORD
    for part in parts:
        text = "".join(answer[i] for i in part)
        if len(part) >= least and written.count(text) == 1:
            first = written.index(text)
            yield from ((i, first + k) for k, i in enumerate(part))


def _words(answer: str) -> list[list[int]]:
    """Indices of each word's characters, without the commas that lists have between them."""
    words: list[list[int]] = [[]]
    for i, c in enumerate(answer):
        if c.isspace() or (c == "," and answer[i + 1 : i + 2] == " "):
            words.append([])
        else:
            words[-1].append(i)
    return words
