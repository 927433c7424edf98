"""What a visitor may set, checked once. Fractions are *kept* shares in (0, 1], never ratios."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, get_args

from rotatek.errors import SettingError

Weighting = Literal["paper", "none", "consistent"]
Solver = Literal["subspace", "eigh"]
Recovery = Literal["sign", "mean"]
Widths = Literal["uniform", "adaptive"]
Values = Literal["full", "rotate"]
CacheDtype = Literal["model", "fp8", "int8"]

CHOICES: Final = {
    "weighting": get_args(Weighting),
    "solver": get_args(Solver),
    "recovery": get_args(Recovery),
    "widths": get_args(Widths),
    "values": get_args(Values),
    "cache_dtype": get_args(CacheDtype),
}
TEXT_STEP: Final = 16  # text slots a buffer grows by: the slack is counted, so it stays small
WINDOW: Final = 32  # W: the most recent prefill queries that weigh the channels (as ThinK)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_fraction(name: str, value: object) -> None:
    # `not 0 < value` also refuses NaN.
    if not _is_number(value) or not 0 < value <= 1:  # type: ignore[operator]
        raise SettingError(name, "a number above 0 and at most 1", value)


@dataclass(frozen=True)
class Settings:
    """One column of a comparison: which tokens stay, and which channels of their Keys.

    tokens, channels: names in the registries `rotatek.tokens` and `rotatek.channels`.
    keep_tokens, keep_channels, keep_values: kept fractions in (0, 1].
    weighting, solver, widths, values: RotateK's options; recovery: SparK's.
    fastv_layer: FastV's K, the number of layers that keep every token.
    contextual: VisionZip's share of merged contextual tokens, inside keep_tokens.
    calibration: a file of precomputed bases; None computes them online, at each prefill.
    cache_dtype: how RotateK stores its visual Keys and Values: as the model does, or in 8 bits.
    """

    tokens: str = "none"
    keep_tokens: float = 1.0
    channels: str = "rotatek"
    keep_channels: float = 0.25
    weighting: Weighting = "paper"
    solver: Solver = "subspace"
    widths: Widths = "uniform"
    values: Values = "full"
    keep_values: float = 1.0
    recovery: Recovery = "sign"
    fastv_layer: int = 2
    contextual: float = 0.05
    calibration: str | None = None
    cache_dtype: CacheDtype = "model"

    def __post_init__(self) -> None:
        for name in ("keep_tokens", "keep_channels", "keep_values"):
            _check_fraction(name, getattr(self, name))
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise SettingError(name, "one of " + ", ".join(allowed), getattr(self, name))
        if not _is_int(self.fastv_layer) or self.fastv_layer < 1:
            raise SettingError("fastv_layer", "a whole number of 1 or more", self.fastv_layer)
        if not _is_number(self.contextual) or not 0 <= self.contextual <= 1:
            raise SettingError("contextual", "a number in [0, 1]", self.contextual)
        if self.cache_dtype != "model" and self.channels != "rotatek":
            raise SettingError("cache_dtype", "model unless channels is rotatek", self.cache_dtype)
        if self.widths == "adaptive" and self.weighting == "paper":
            # Eigenvalues of different heads are comparable only in the consistent metric.
            object.__setattr__(self, "weighting", "consistent")

    @property
    def prunes_tokens(self) -> bool:
        """Whether any visual token may be dropped."""
        return self.tokens != "none" and self.keep_tokens < 1

    @property
    def pruning(self) -> tuple[Any, ...]:
        """Equal for settings that drop the same tokens; a token method's name and its options."""
        if not self.prunes_tokens:
            return ("none",)
        return (self.tokens, self.keep_tokens, self.fastv_layer, self.contextual)

    @property
    def is_baseline(self) -> bool:
        """Whether nothing at all is compressed: the plain transformers cache serves it."""
        return self.channels == "full" and not self.prunes_tokens

    def as_dict(self) -> dict[str, Any]:
        """Every field by name, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Settings":
        """The inverse of `as_dict`; unknown names are refused.

        Raises:
            SettingError: for a name this version does not have, or a value out of range.
        """
        known = {field.name for field in fields(cls)}
        for name in values:
            if name not in known:
                raise SettingError("the setting", "one of " + ", ".join(sorted(known)), name)
        return cls(**values)


BASELINE: Final = Settings(tokens="none", channels="full", keep_channels=1.0)


@dataclass(frozen=True)
class Limits:
    """What one request may ask of the machine."""

    max_new_tokens: int = 1024
    max_prompt_tokens: int = 16384
    trace_tokens: int = 512  # tokens a trace keeps per head
    kept_answer_tokens: int = 256  # default length of an answer: a form or a short page
    turns: int = 8  # questions that one conversation answers


def channels_kept(width: int, keep: float) -> int:
    """Channels that stay of `width`: at least one, the nearest whole number."""
    return max(1, min(width, round(width * keep)))


def tokens_kept(tokens: int, keep: float) -> int:
    """Visual tokens that stay of `tokens`: at least one unless there are none."""
    return min(tokens, max(1, round(tokens * keep))) if tokens else 0
