"""Scores of one answer, as lmms-eval defines them, and intervals over many.

Each score maps (answer, accepted answers) to a number in [0, 1]. Sources: VQA accuracy of the VQA
challenge (arXiv 1505.00468) with its answer normalisation, ANLS (arXiv 1907.00490), relaxed
accuracy (arXiv 2203.10244); edit distances are Levenshtein's.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ANLS_THRESHOLD: Final = 0.5
RELAXED_TOLERANCE: Final = 0.05
RESAMPLES: Final = 2_000
Z: Final = 1.959964  # of 95 %
MORE_WORDS: Final = 12

_PUNCTUATION: Final = ';/[]"{}()=+\\_-><@`,?!'
_NUMBER_WORDS: Final = {
    "none": "0", "zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5",
    "six": "6", "seven": "7", "eight": "8", "nine": "9", "ten": "10",
}  # fmt: skip
_ARTICLES: Final = ("a", "an", "the")
_CONTRACTIONS: Final = {
    word.replace("'", ""): word
    for word in (
        "ain't aren't can't could've couldn't didn't doesn't don't hadn't hasn't haven't he'd he's "
        "how'd how'll how's i'd i'm i've isn't it'd it'll let's ma'am might've mightn't must've "
        "mustn't needn't not've o'clock oughtn't shan't she'd she's should've shouldn't somebody'd "
        "somebody's someone'd someone'll someone's something'd something'll that's there'd "
        "there're there's they'd they'll they're they've 'twas wasn't we'd we've "
        "weren't what'll what're what's what've when's where'd where's where've who'd who'll "
        "who's who've why'll why're why's won't would've wouldn't y'all you'd you'll you're you've"
    ).split()
}


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    """1 if the answer equals an accepted one but for case and white space."""
    return float(_plain(answer) in {_plain(text) for text in accepted})


def anls(answer: str, accepted: Sequence[str]) -> float:
    """Average normalised Levenshtein similarity of one answer: the best over the accepted ones.

    Similarity is 1 - distance / longer length; below 0.5 it counts as 0.
    """
    given, best = _plain(answer), 0.0
    for text in map(_plain, accepted):
        best = max(best, 1.0 - edit_distance(given, text) / max(len(given), len(text), 1))
    return best if best >= ANLS_THRESHOLD else 0.0


def relaxed_accuracy(answer: str, accepted: Sequence[str]) -> float:
    """1 if a number is within 5 % of an accepted one, or a text equals it but for case."""
    given = _number(answer)
    for text in accepted:
        wanted = _number(text)
        if given is None or not wanted:  # a target of zero leaves only the literal comparison
            good = answer.strip().lower() == text.strip().lower()
        else:
            good = abs(given - wanted) / abs(wanted) <= RELAXED_TOLERANCE
        if good:
            return 1.0
    return 0.0


def vqa_accuracy(answer: str, accepted: Sequence[str]) -> float:
    """min(1, matches / 3) over the other annotators, averaged over leaving each one out.

    An answer is listed once for each annotator who gave it. A single accepted answer counts as ten
    equal ones.
    """
    given = vqa_normalise(answer)
    votes = [vqa_normalise(text) for text in (accepted if len(accepted) > 1 else [*accepted] * 10)]
    if not votes:
        return 0.0
    matches = sum(vote == given for vote in votes)
    return float(np.mean([min(1.0, (matches - (vote == given)) / 3) for vote in votes]))


def says(answer: str, accepted: Sequence[str]) -> float:
    """1 if an accepted text stands in the answer as whole words, among at most `MORE_WORDS` others.

    Of what is reckoned the result counts, not the working before it (`3 + 4 = 7`).
    """
    have = _words(answer.rpartition("=")[2])
    return float(any(
        f" {text} " in f" {have} " and have.count(" ") - text.count(" ") <= MORE_WORDS
        for text in map(_words, accepted)
    ))  # fmt: skip


def transcription_accuracy(answer: str, accepted: Sequence[str]) -> float:
    """1 - character error rate against the nearest accepted text, at least 0: edits over its
    length, white space runs counting as one space."""
    given, rates = " ".join(answer.split()), [1.0]
    for text in accepted:
        reference = " ".join(text.split())
        rates.append(edit_distance(given, reference) / max(1, len(reference)))
    return 1.0 - min(rates)


SCORES: Final[dict[str, Callable[[str, Sequence[str]], float]]] = {
    "exact_match": exact_match,
    "anls": anls,
    "relaxed_accuracy": relaxed_accuracy,
    "vqa_accuracy": vqa_accuracy,
    "says": says,
    "transcription": transcription_accuracy,
}


def edit_distance(a: str, b: str) -> int:
    """Levenshtein distance, a row of the table at a time."""
    places, letters = np.arange(len(b) + 1), np.array([ord(letter) for letter in b])
    row = places
    for number, letter in enumerate(a, 1):
        kept = np.minimum(row[1:] + 1, row[:-1] + (letters != ord(letter)))
        row = np.minimum.accumulate(np.append(number, kept) - places) + places
    return int(row[-1])


def vqa_normalise(text: str) -> str:
    """The VQA challenge's normal form: lower case, punctuation, number words, articles."""
    text = text.lower().replace(",", "").replace("?", "").replace("'s", " 's").strip()
    text = text.replace("\n", " ").replace("\t", " ").strip()
    grouped, out = re.search(r"\d,\d", text) is not None, text
    for mark in _PUNCTUATION:  # beside a space it vanishes, else it becomes one
        beside_space = f"{mark} " in text or f" {mark}" in text
        out = out.replace(mark, "" if beside_space or grouped else " ")
    text = re.sub(r"\.(?!\d)", "", out)
    words = (_NUMBER_WORDS.get(word, word) for word in text.split())
    return " ".join(_CONTRACTIONS.get(word, word) for word in words if word not in _ARTICLES)


class Resampled:
    """A bootstrap over documents: the same draws for every mean over the same questions; groups:
    [n], the document of each question."""

    def __init__(self, groups: Sequence[str] | NDArray) -> None:
        _, self._place = np.unique(groups, return_inverse=True)
        counts = np.bincount(self._place)
        drawn = np.random.default_rng(0).integers(0, len(counts), (RESAMPLES, len(counts)))
        times = [np.bincount(row, minlength=len(counts)) for row in drawn]
        self._weights = np.array(times, dtype=np.float64)  # [RESAMPLES, documents]
        self._sizes = self._weights @ counts

    def interval(self, values: Floats) -> tuple[float, float]:
        """95 % percentile interval of the mean of values [n]."""
        totals = np.bincount(self._place, weights=values)
        low, high = np.percentile(self._weights @ totals / self._sizes, (2.5, 97.5))
        return float(low), float(high)

    def score_interval(self, values: Floats) -> tuple[float, float]:
        """The same of scores in [0, 1]; where all are 0 or all 1, resampling says nothing and it is
        Wilson's over the documents."""
        if np.ptp(values) or values[0] not in (0.0, 1.0):
            return self.interval(values)
        reach = Z * Z / (self._weights.shape[1] + Z * Z)
        return (1.0 - reach, 1.0) if values[0] else (0.0, reach)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _words(text: str) -> str:
    """Small letters and figures, single spaces."""
    return re.sub(r"[^\w.%]+", " ", text.lower()).strip(" .%")


def _number(text: str) -> float | None:
    """A plain number, or a percentage as a share; None for anything else."""
    text = text.strip()
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None
