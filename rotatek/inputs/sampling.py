"""How the tokens of an answer are chosen: greedily, or drawn from the model's distribution."""

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from rotatek.errors import SettingError

COLDEST: Final = 1e-5  # below it sampling is greedy
HOTTEST: Final = 2.0
MOST_TOP: Final = 20  # likeliest tokens that are reported beside the chosen one
SEED_BITS: Final = 31  # of a seed that is drawn here: numbers of every client hold it exactly
_RANGES: Final[dict[str, tuple[float, float, str]]] = {
    "temperature": (0, HOTTEST, f"a number from 0 to {HOTTEST:g}"),
    "top_p": (1e-9, 1, "a number above 0 and at most 1"),
    "min_p": (0, 1, "a number from 0 to 1"),
    "presence_penalty": (-2, 2, "a number from -2 to 2"),
    "frequency_penalty": (-2, 2, "a number from -2 to 2"),
    "repetition_penalty": (1e-3, 10, "a number above 0 and at most 10"),
}


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. The defaults are greedy: the likeliest token, always.

    Args:
        temperature: 0 is greedy, 1 the model's own distribution.
        top_p: draw from the smallest set of likeliest tokens whose probabilities sum to this.
        top_k: draw from this number of likeliest tokens; from all where it is 0.
        min_p: draw from tokens with at least this share of the likeliest one's probability.
        seed: gives the same answer every time, alone or beside others; None, or -1, draws one.
        presence_penalty: subtracted from the logits of tokens that the answer contains.
        frequency_penalty: subtracted from them once for each occurrence.
        repetition_penalty: divides the logits of tokens in prompt and answer.
        logit_bias: pairs of a token and what is added to its logit, or a mapping of them.
        top_logprobs: how many of the likeliest tokens are reported with each token; None for no
            log probabilities at all.
        grammar: of `rotatek.engine.grammar.compiled`, which the answer follows; or empty.

    Raises:
        SettingError: for a value out of range.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_logprobs: int | None = None
    grammar: str = ""

    def __post_init__(self) -> None:
        for name, (low, high, allowed) in _RANGES.items():
            value = getattr(self, name)
            if not (_is_number(value) and low <= value <= high):
                raise SettingError(name, allowed, value)
            object.__setattr__(self, name, float(value))
        if not _is_whole(self.top_k) or not -1 <= self.top_k < 2**31:
            raise SettingError("top_k", "a whole number from 1, or 0 for all tokens", self.top_k)
        object.__setattr__(self, "top_k", max(0, int(self.top_k)))
        if self.seed == -1:
            object.__setattr__(self, "seed", None)
        if self.seed is not None and not (_is_whole(self.seed) and abs(self.seed) < 2**64):
            raise SettingError("seed", "a whole number of up to 64 bits", self.seed)
        top = self.top_logprobs
        if top is not None and not (_is_whole(top) and 0 <= top <= MOST_TOP):
            raise SettingError("top_logprobs", f"a whole number from 0 to {MOST_TOP}", top)
        object.__setattr__(self, "logit_bias", tuple(_biases(self.logit_bias)))

    @property
    def draws(self) -> bool:
        """Whether tokens are sampled."""
        return self.temperature >= COLDEST

    @property
    def is_plain(self) -> bool:
        """Whether the likeliest token of the unchanged logits is always chosen."""
        changed = self.presence_penalty or self.frequency_penalty or self.logit_bias or self.grammar
        return not (self.draws or changed or self.repetition_penalty != 1)

    def seeded(self) -> Self:
        """The same with a seed, drawn where one is needed and none is given."""
        if not self.draws or self.seed is not None:
            return self
        return replace(self, seed=secrets.randbits(SEED_BITS))

    def as_dict(self) -> dict[str, Any]:
        """What differs from the defaults, ready for JSON, but not a seed that nothing is drawn
        with, a grammar, or the number of tokens that are reported."""
        left_out = ("grammar", "top_logprobs", "" if self.draws else "seed")
        own = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in left_out and getattr(self, one.name) != one.default
        }
        if self.logit_bias:
            own["logit_bias"] = {str(token): added for token, added in self.logit_bias}
        return own


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 2**64 and math.isfinite(value)  # larger integers are no float


def _biases(given: Any) -> Iterable[tuple[int, float]]:
    allowed = "an object of token numbers and what is added to their logits, from -100 to 100"
    pairs = given.items() if isinstance(given, Mapping) else given
    try:
        for token, added in pairs or ():
            number = int(token)
            if not 0 <= number < 2**31 or not _is_number(added) or not -100 <= added <= 100:
                raise SettingError("logit_bias", allowed, f"{token}: {added}")
            yield number, float(added)
    except (TypeError, ValueError) as error:
        raise SettingError("logit_bias", allowed, given) from error


GREEDY: Final = Sampling()
