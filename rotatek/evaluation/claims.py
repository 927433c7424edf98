"""What the RotateK paper claims of answers, and what we expect beyond it; how a claim is judged.

A claim names pairs of rows; the tables file them under its key. By its paired 95 % interval each
pair supports the claim, contradicts it, or leaves it open. A claim is *found* if the mean over its
pairs supports it and no pair contradicts it; *mixed* if some pairs support it and others contradict
it; *better* if every pair that contradicts an "about" is better than it; *not found* if no pair
supports it; else *open*. Intervals are not corrected for their number: of a hundred comparisons of
equals, two or three contradict a claim by chance.

A claim is counted *nominal*, its two rows as they stand, or *live*, the first row against the
second one's method at the first one's live bytes: a method's line has every row with the same
pruner and method that answered the same questions. A row is dropped when another row of the line
scores higher with fewer bytes. Between two rows the score is interpolated linearly. Above the
largest row it is that row's score, since its bytes fit, too. Below the smallest row nothing is
compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rotatek.evaluation.cells import Found, Pair, Score, pareto_front
from rotatek.evaluation.metrics import Resampled
from rotatek.evaluation.tables import Claim
from rotatek.methods.settings import Settings

Floats = NDArray[np.float64]
ABOUT: Final = 0.02  # "about as good": within two points
FOUND, BETTER, MIXED, NOT_FOUND, OPEN = "found", "better", "mixed", "not found", "open"
NOMINAL, LIVE = "nominal", "live"
BOTH: Final = (LIVE, NOMINAL)


class Stated(NamedTuple):
    """A claim in words, where the paper states it ("" beyond the paper), and how it is counted."""

    text: str
    where: str
    counts: tuple[str, ...] = (NOMINAL,)


SOLVED: Final = ("solved",)  # rows that have equal live bytes already

CLAIMS: Final = {
    "cost": Stated("Dropping tokens alone costs answers", "introduction, tables 1 and 4"),
    "joint": Stated("Dropping tokens and channels beats dropping tokens alone", "tables 1 and 4",
                    BOTH),
    "think": Stated("RotateK is above ThinK after the same pruner, at a quarter of the channels",
                    "tables 1 and 4", BOTH),
    "kinds": Stated("It is above ThinK for each kind of question", "section 4.1", BOTH),
    "gap": Stated("The gaps widen as the budget shrinks", "tables 1 and 4"),
    "frontier": Stated("At every budget, joint pruning is above dropping tokens alone", "figure 5",
                       BOTH),
    "less": Stated("At fixed tokens, leaving channels out down to a quarter costs little",
                   "figure 5"),
    "half": Stated("At half of the channels all methods are alike", "figure 6"),
    "think-fixed": Stated("At fewer channels RotateK is above ThinK", "figure 6", BOTH),
    "steep": Stated("ThinK falls steeply as more channels go", "figure 6"),
    "flat": Stated("RotateK falls less steeply than ThinK", "figure 6"),
    "spark-fixed": Stated("At fewer channels RotateK is level with SparK (mean)", "figure 6", BOTH),
    "eighty": Stated("At a fifth of the channels SparK (mean) is above RotateK", "figure 6"),
    "joint-long": Stated("Long answers: joint pruning beats dropping tokens alone", "table 2",
                         BOTH),
    "think-long": Stated("Long answers: RotateK is above ThinK", "table 2", BOTH),
    "level-long": Stated("Long answers: ThinK is level with dropping tokens alone", "table 2"),
    "solver": Stated("Five steps of subspace iteration match all eigenvectors", "table 3"),
    "printed": Stated("So does the loop as it is printed", "appendix E, algorithm 1"),
    "weighting": Stated("Weighting by the queries is the safer choice", "table 3"),
    "weighting-alone": Stated("It is so where no token is dropped, at 32 and 12 channels", ""),
    "think-alone": Stated("RotateK is above ThinK where no token is dropped", "", BOTH),
    "spark-alone": Stated("RotateK is level with SparK (mean) where no token is dropped", "", BOTH),
    "spark": Stated("RotateK is level with SparK (mean) after the same pruner, at a quarter of the "
                    "channels", "", BOTH),
    "spark-other": Stated("So it is with SparK (signs)", "", BOTH),
    "spark-long": Stated("Long answers: RotateK is level with SparK (mean)", "", BOTH),
    "spark-long-other": Stated("Long answers: RotateK is level with SparK (signs)", "", BOTH),
    "widths": Stated("Adaptive widths beat uniform ones", "", BOTH),
    "values": Stated("Rotated Values beat dropping tokens alone", "", BOTH),
    "lossless": Stated("Narrow Keys and Values cost less than two points", ""),
    "bits": Stated("Channels of .5 to 2 bits cost less than two points", ""),
    "rivals": Stated("Adaptive widths and bits beat every rival of the same live bytes", "",
                     SOLVED),
    "rivals-bits": Stated("Channels with bits do", "", SOLVED),
    "control": Stated("Every token pruner beats a random choice", ""),
}  # fmt: skip

# What the paper says and no table here asks, with the reason.
UNASKED: Final = {
    "InfoVQA gains more than ten points with Qwen2.5-VL-7B; of 40 cells ThinK wins five, by less "
    "than .6 points; TextVQA and VizWiz are level or better":
        ("section 4.1, tables 1, 2 and 4",
         "they need both models' weights, lmms-eval and a judge"),
    "Informative channels differ from token to token, a few are outliers; rotation gathers Keys in "
    "few channels":
        ("figures 2 and 3", "the page draws masks, energy and spectrum of any run under Look "
         "inside; no table counts them"),
    "Weighting by the queries after the basis is found costs O(d^2) a head":
        ("section 3", "here it is part of the solver's launch, and no benchmark times it apart"),
    "An iteration as it is printed takes four kernels, and a single one of them is slower":
        ("appendix E, algorithm 1", "ours is one launch for all; speed claims time both"),
    "Bases calibrated offline serve as well":
        ("appendix B", "the paper gives no figure"),
}  # fmt: skip


def says(relation: str, low: float, high: float) -> str:
    """What a 95 % interval of a difference says about an expectation.

    "at least": for above 0, against below 0. "about": for inside two points either way, against
    (or better) outside. Two equal rows support both.
    """
    if relation == "about":
        if low >= -ABOUT and high <= ABOUT:
            return "for"
        return "better" if low > ABOUT else "against" if high < -ABOUT else "open"
    if low > 0 or low == high == 0:
        return "for"
    return "against" if high < 0 else "open"


def verdict(mean: str, pairs: Sequence[str]) -> str:
    """The verdict on a claim.

    Args:
        mean: what its mean over pairs says.
        pairs: what every single pair says.
    """
    against = {one for one in pairs if one in ("against", "better")}
    if against == {"better"}:
        return BETTER
    if against:
        return MIXED if {"for", "better"} & set(pairs) else NOT_FOUND
    return {"for": FOUND, "against": NOT_FOUND, "better": BETTER}.get(mean, OPEN)


def summed_up(
    claim: tuple[str, str, str, str, str],
    pairs: Sequence[Pair],
    mean: str,
    ends: tuple[float, float, float],
    note: str = "",
) -> Found:
    """What came of a claim, of answers or of measured values.

    Args:
        claim: the first five fields of `Found`.
        pairs: that it compares.
        mean: what their mean says.
        ends: that mean and its interval, or the median ratio and the least and the most.
        note: as in `Found`.
    """
    words = [pair.says for pair in pairs]
    against = sum(one in ("against", "better") for one in words)
    difference, low, high = ends
    said = verdict(mean, words)
    return Found(*claim, said, len(pairs), against, difference, low, high, note)


@dataclass(frozen=True)
class Answered:
    """A setting's answers to every question, NaN where it was not asked.

    Args:
        score: [n] in [0, 1].
        live: [n] shares of live bytes.
    """

    score: Floats
    live: Floats

    def has(self, mask: NDArray[np.bool_]) -> bool:
        """Whether it answered all of some questions."""
        return not np.isnan(self.score[mask]).any()


Line = list[tuple[float, Floats]]  # (bytes, scores of the same questions), bytes rising


def kind_of(settings: Settings) -> tuple[str, Any]:
    """Equal for settings that differ in the shares that they keep, and in nothing else."""
    method = settings.channels
    if method.bits_a_number is not None:
        return settings.pruning.name, method.with_share(0.0)
    return settings.pruning.name, method.with_keep(0.25) if method.drops_channels else method


def line_of(answered: Iterable[Answered], mask: NDArray[np.bool_]) -> Line:
    """A method's rows that answered every one of the questions, without those that are beaten."""
    points = [(float(one.live[mask].mean()), one.score) for one in answered if one.has(mask)]
    return pareto_front(points, lambda point: point[0], lambda point: point[1][mask].mean())


def at_bytes(line: Line, share: float) -> Floats | None:
    """A line's scores at a number of live bytes; None where each of its rows takes more."""
    if not line or share < line[0][0] * (1 - 1e-9):
        return None
    after = next((place for place, point in enumerate(line) if point[0] > share), len(line))
    low, below = line[after - 1] if after else line[0]
    if after == len(line):
        return below
    high, above = line[after]
    weight = max(0.0, share - low) / (high - low)
    return (1 - weight) * below + weight * above


@dataclass
class Judge:
    """Compares settings on the questions of a run.

    Args:
        model: whose answers.
        answered: by setting.
        documents: [n], the picture of each question.
        kinds: [n], the kind of each question.
    """

    model: str
    answered: Mapping[Settings, Answered]
    documents: NDArray[np.int64]
    kinds: NDArray[np.str_]
    drawn: dict[bytes, Resampled] = field(default_factory=dict)
    lines: dict[tuple[str, Any], list[Answered]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for settings, one in self.answered.items():
            self.lines.setdefault(kind_of(settings), []).append(one)

    def mean(self, values: Floats, mask: NDArray[np.bool_] | None = None) -> Score:
        """The mean of values [n] over the questions of a mask, or where they are numbers."""
        mask = ~np.isnan(values) if mask is None else mask
        key = mask.tobytes()
        if key not in self.drawn:
            self.drawn[key] = Resampled(self.documents[mask])
        return Score(float(values[mask].mean()), *self.drawn[key].interval(values[mask]))

    def difference(
        self, claim: Claim, rows: Mapping[str, Settings], mask: NDArray[np.bool_], count: str
    ) -> Floats | None:
        """A claim's, NaN beyond the mask; of a gap, what it exceeds the other by; or None."""
        margin = partial(self.live if count == LIVE else self.nominal, mask=mask)
        found = margin(rows[claim.first], rows[claim.second])
        if found is not None and claim.over is not None:
            other = margin(*(rows[label] for label in claim.over))
            found = None if other is None else found - other
        return None if found is None else np.where(mask, found, np.nan)

    def nominal(self, first: Settings, second: Settings, mask: NDArray[np.bool_]) -> Floats:
        """First less second, question by question."""
        return self.answered[first].score - self.answered[second].score

    def live(self, first: Settings, second: Settings, mask: NDArray[np.bool_]) -> Floats | None:
        """First less the second's method at the first one's live bytes; None where none is that
        small."""
        kind = kind_of(second)
        if second.is_baseline or kind_of(first) == kind:
            return None
        one = self.answered[first]
        other = at_bytes(line_of(self.lines[kind], mask), float(one.live[mask].mean()))
        return None if other is None else one.score - other

    def pair(self, claim: Claim, table: str, count: str, difference: Floats) -> Pair:
        """A comparison with its interval, and what it says."""
        mean = self.mean(difference)
        second = claim.second
        if claim.over:
            second += f", more than {' over '.join(claim.over)}"
        questions = int((~np.isnan(difference)).sum())
        told = says(claim.relation, mean.low, mean.high)
        words = claim.topic, self.model, table, count, claim.first, second, claim.relation
        return Pair(*words, questions, mean.mean, mean.low, mean.high, told)  # fmt: skip

    def by_kind(self, differences: Sequence[Floats], count: str) -> list[tuple[Pair, Floats]]:
        """The mean of some differences for each kind of question, as pairs of their own."""
        found = []
        for kind in dict.fromkeys(self.kinds.tolist()):
            mean = np.mean(differences, axis=0)
            mine = np.where(self.kinds == kind, mean, np.nan)
            if not np.isnan(mine).all():
                claim = Claim(f"RotateK, {kind}", f"ThinK, {kind}", topic="kinds")
                found.append((self.pair(claim, "all budgets", count, mine), mine))
        return found

    def found(self, key: str, count: str, made: Sequence[tuple[Pair, Floats]]) -> Found:
        """A claim over its pairs: the mean is over the questions that all of them share.

        Of kinds of questions, which share none, it is the least kind's.
        """
        mean = np.mean([difference for _, difference in made], axis=0)
        if np.isnan(mean).all():
            mean = min((difference for _, difference in made), key=np.nanmean)
        pairs, whole, (text, where, _) = [pair for pair, _ in made], self.mean(mean), CLAIMS[key]
        told = says(pairs[0].relation, whole.low, whole.high)
        return summed_up((key, text, where, self.model, count), pairs, told, whole)
