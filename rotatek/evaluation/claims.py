"""What the RotateK paper claims, and what we expect beyond it, beside what the answers say.

A claim is a topic, under which the tables file pairs of rows. It is judged twice: *nominal*, the
two rows as they stand (one nominal share, as the paper counts), and *live*, the first row against
the second row's method at the first one's live bytes.

Equal live bytes: a method's line is every row of the evaluation with the same pruner and method,
whatever its shares, that answered the same questions; rows that another of the line beats in fewer
bytes are left out. At b bytes the line's score of a question lies straight between its scores under
the two neighbouring rows; above the heaviest row it is that row's, which b bytes would hold, too.
Below the lightest there is nothing to compare with.

A topic's difference is the mean over its pairs, question by question, so that its interval is
paired, and resampled by picture. `rotatek.evaluation.speed_claims` judges claims of latency and
memory.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rotatek.evaluation.metrics import paired_interval
from rotatek.evaluation.tables import Claim
from rotatek.methods.channels.base import Relation
from rotatek.methods.settings import Settings

Floats = NDArray[np.float64]
ABOUT: Final = 0.02  # "about as good": within two points
MARGINAL: Final = 0.006  # what the paper calls a marginal difference
FOUND, NOT_FOUND, OPEN = "found", "not found", "open"


class Stated(NamedTuple):
    """A claim in words, and where it stands; "" for what we expect beyond the paper."""

    text: str
    where: str


CLAIMS: Final = {
    "cost": Stated("Dropping tokens alone costs answers", "introduction, tables 1 and 5"),
    "joint": Stated("Dropping tokens and channels beats dropping tokens alone", "tables 1 and 5"),
    "think": Stated("RotateK is above ThinK after the same pruner", "tables 1 and 5, figure 5"),
    "kinds": Stated("So it is for each kind of question", "section 4.1"),
    "gap": Stated("The gap widens as the budget shrinks", "appendix, tables 1 and 5"),
    "frontier": Stated("At any budget, joint pruning to .25 of the channels is above", "figure 4"),
    "less": Stated("At fixed tokens, leaving channels out costs little down to .25", "figure 4"),
    "half": Stated("At half of the channels all methods are alike", "figure 5"),
    "steep": Stated("ThinK falls steeply as more channels go", "figure 5"),
    "flat": Stated("RotateK falls less steeply than ThinK", "figure 5"),
    "eighty": Stated("At a fifth of the channels SparK (mean) is above RotateK", "figure 5"),
    "spark": Stated("RotateK is level with SparK (mean) after the same pruner", "figure 5"),
    "joint-long": Stated("Long answers: joint pruning beats tokens alone", "table 2"),
    "think-long": Stated("Long answers: RotateK is above ThinK", "table 2"),
    "level-long": Stated("Long answers: ThinK is level with tokens alone", "table 2"),
    "solver": Stated("Five steps of subspace iteration match all eigenvectors", "table 4"),
    "printed": Stated("So does the loop as it is printed", "table 4, algorithm 1"),
    "weighting": Stated("Weighting by the queries is the safer default", "table 4"),
    "think-alone": Stated("RotateK is above ThinK alone", "figure 5, extended"),
    "spark-alone": Stated("RotateK is level with SparK (mean) alone", "figure 5, extended"),
    "spark-other": Stated("RotateK is level with SparK (signs) after the same pruner", ""),
    "spark-long": Stated("Long answers: RotateK is level with SparK (mean)", ""),
    "spark-long-other": Stated("Long answers: RotateK is level with SparK (signs)", ""),
    "widths": Stated("Adaptive widths beat uniform ones", ""),
    "values": Stated("Rotated Values beat dropping tokens alone", ""),
    "lossless": Stated("Narrow Keys and Values cost less than two points", ""),
    "bits": Stated("Channels of .5 to 2 bits cost less than two points", ""),
    "rivals": Stated("Ours beyond the paper beats every rival of equal live bytes", ""),
    "lot": Stated("A pruner beats tokens by lot", ""),
}  # fmt: skip

# What the paper says and no table of ours asks, with the reason.
UNASKED: Final = {
    "InfoVQA gains more than ten points with Qwen2.5-VL-7B":
        ("section 4.1", "it needs that model's weights and lmms-eval"),
    "The five benchmarks' and two open-ended ones' own figures":
        ("tables 1, 2 and 5", "they need both models' weights, lmms-eval and a judge"),
    "Informative channels differ from token to token":
        ("figure 2", "the page draws the masks of any run under Look inside; no table counts them"),
    "Rotation gathers Keys in few channels":
        ("figure 3", "the page draws a run's energy and spectrum under Look inside"),
    "Bases calibrated offline serve as well":
        ("appendix, settings", "the paper gives no figure"),
}  # fmt: skip


@dataclass(frozen=True)
class Scored:
    """A setting's scores.

    Args:
        settings: which.
        scores: by question.
        bytes: mean share of live bytes over those questions.
    """

    settings: Settings
    scores: Mapping[str, float]
    bytes: float


class Pair(NamedTuple):
    """A claim's difference, question by question."""

    relation: Relation
    names: tuple[str, ...]
    difference: Floats


Line = Sequence[tuple[float, Floats]]  # (bytes, scores of the same questions), bytes rising


def kind_of(settings: Settings) -> tuple[str, Any]:
    """Equal for settings that differ in the shares that they keep, and in nothing else."""
    method = settings.channels
    if method.bits_a_number is not None:
        return settings.pruning.name, method.within(0.0)
    return settings.pruning.name, method.at(0.25) if method.drops_channels else method


def line_of(scored: Iterable[Scored], names: Sequence[str]) -> Line:
    """A method's rows that answered every one of the questions, without those that are beaten."""
    points = [
        (one.bytes, np.array([one.scores[name] for name in names]))
        for one in scored
        if all(name in one.scores for name in names)
    ]
    kept: list[tuple[float, Floats]] = []
    for share, scores in sorted(points, key=lambda point: (point[0], -point[1].mean())):
        if not kept or scores.mean() > kept[-1][1].mean():
            kept.append((share, scores))
    return kept


def at_bytes(line: Line, share: float) -> Floats | None:
    """A line's scores at so many live bytes; None where it has no row that is as light."""
    if not line or share < line[0][0] * (1 - 1e-9):
        return None
    after = next((place for place, point in enumerate(line) if point[0] > share), len(line))
    low, below = line[after - 1] if after else line[0]
    if after == len(line):
        return below
    high, above = line[after]
    weight = max(0.0, share - low) / (high - low)
    return (1 - weight) * below + weight * above


class Judge:
    """Judges claims on scores.

    Args:
        scored: every setting of a run.
        groups: the picture of each question.
    """

    def __init__(self, scored: Sequence[Scored], groups: Mapping[str, int]) -> None:
        self.groups = groups
        self.by_settings = {one.settings: one for one in scored}
        self.lines: dict[tuple[str, Any], list[Scored]] = {}
        for one in scored:
            self.lines.setdefault(kind_of(one.settings), []).append(one)

    def nominal(self, first: Settings, second: Settings, names: Sequence[str]) -> Floats:
        """First less second, question by question."""
        one, other = (self.by_settings[settings].scores for settings in (first, second))
        return np.array([one[name] - other[name] for name in names])

    def live(self, first: Settings, second: Settings, names: Sequence[str]) -> Floats | None:
        """First less the second's method at the first one's live bytes, if it can be so light."""
        if second.is_baseline or kind_of(first) == kind_of(second):
            return None
        one = self.by_settings[first]
        line = line_of(self.lines[kind_of(second)], names)
        other = at_bytes(line, one.bytes)
        return None if other is None else np.array([one.scores[name] for name in names]) - other

    def difference(
        self, claim: Claim, rows: Mapping[str, Settings], names: Sequence[str], live: bool
    ) -> Floats | None:
        """A claim's, question by question; of a gap, what it exceeds the other by."""
        margin: Callable[[Settings, Settings, Sequence[str]], Floats | None]
        margin = self.live if live else self.nominal
        found = margin(rows[claim.first], rows[claim.second], names)
        if claim.over is None or found is None:
            return found
        first, second = claim.over
        other = margin(rows[first], rows[second], names)
        return None if other is None else found - other

    def found(self, pair: Pair) -> dict[str, Any]:
        """A mean difference with its interval, and what it says."""
        groups = np.array([self.groups[name] for name in pair.names], dtype=np.int64)
        low, high = paired_interval(pair.difference, np.zeros_like(pair.difference), groups)
        return {
            "difference": round(float(pair.difference.mean()), 5),
            "interval": [round(low, 5), round(high, 5)],
            "verdict": verdict(pair.relation, low, high),
        }

    def pooled(self, pairs: Sequence[Pair]) -> dict[str, Any] | None:
        """The mean over pairs of the questions that all of them share."""
        if not pairs:
            return None
        shared = set(pairs[0].names).intersection(*(pair.names for pair in pairs))
        names = tuple(name for name in pairs[0].names if name in shared)
        if not names:
            return None
        rows = [dict(zip(pair.names, pair.difference, strict=True)) for pair in pairs]
        mean = np.array([np.mean([row[name] for row in rows]) for name in names])
        found = self.found(Pair(pairs[0].relation, names, mean))
        return found | {"pairs": len(pairs), "questions": len(names)}

    def of_kinds(self, pairs: Sequence[Pair], kinds: Mapping[str, str]) -> dict[str, Any] | None:
        """Pooled pairs in the kind of question where they differ least; found if no kind is behind.

        Args:
            pairs: of a claim.
            kinds: of every question.
        """
        found = []
        for kind in dict.fromkeys(kinds.values()):
            own = [_among(pair, {name for name in pair.names if kinds[name] == kind})
                   for pair in pairs]  # fmt: skip
            one = self.pooled(own)
            found += [one] if one else []
        if not found:
            return None
        behind = any(one["interval"][1] < -MARGINAL for one in found)
        level = all(one["interval"][0] > -MARGINAL for one in found)
        least = min(found, key=lambda one: one["difference"])
        return least | {"verdict": NOT_FOUND if behind else FOUND if level else OPEN}


def _among(pair: Pair, names: set[str]) -> Pair:
    """A pair on some of its questions."""
    mine = np.array([name in names for name in pair.names], dtype=bool)
    kept = tuple(name for name in pair.names if name in names)
    return Pair(pair.relation, kept, pair.difference[mine])


def verdict(relation: str, low: float, high: float) -> str:
    """What a 95 % interval of a difference says about an expectation.

    "at least": found above 0, not found below 0. "about": found inside two points either way, not
    found outside. Anything else is open: the data do not tell. An identical pair is found.
    """
    if relation == "about":
        if low >= -ABOUT and high <= ABOUT:
            return FOUND
        return f"{NOT_FOUND} (better)" if low > ABOUT else NOT_FOUND if high < -ABOUT else OPEN
    if low > 0 or low == high == 0:
        return FOUND
    return NOT_FOUND if high < 0 else OPEN
