"""Options that describe themselves: declared once in a method, read by everything that offers them.

A method is a frozen dataclass. Each of its fields is made by `option`, which adds to the default a
label, a sentence of help, and what may be set. Command-line flags, the page's controls, the API's
fields, links, and the columns of tables are all made from `options_of(method)`.
"""

import math
from abc import ABC
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, ClassVar, Final, Literal, Self

from rotatek.errors import SettingError

Kind = Literal["fraction", "number", "integer", "choice", "path"]
Place = Literal["main", "more", "hidden"]
_SPEC: Final = "rotatek"  # the key of a field's metadata
LONGEST_NUMBER: Final = 40  # characters of a number that comes as text


@dataclass(frozen=True)
class Option:
    """One field of a method, with the data for forms and flags.

    Args:
        name: of the field.
        key: the flat name in flags, links and programs, e.g. `keep_channels`.
        default: the value of a method that does not give it.
        label: a few words for the page.
        help: one sentence for the command line, the page and the API.
        kind: "fraction" is a kept share in (0, 1]; "number" is in [low, high]; "integer" is at
            least low; "choice" is one of `choices`; "path" is a file. Where the default is None,
            None says that the option is off.
        low: the least number.
        high: the largest number.
        choices: (value, words) pairs.
        place: its position on the page: beside the slider of its kind, with rarely changed
            options, or nowhere. A path is never shared in a link.
    """

    name: str
    key: str
    default: Any
    label: str
    help: str
    kind: Kind
    low: float | None = None
    high: float | None = None
    choices: tuple[tuple[str, str], ...] = ()
    place: Place = "more"

    @property
    def values(self) -> tuple[str, ...]:
        """The values of a choice."""
        return tuple(value for value, _ in self.choices)

    @property
    def is_optional(self) -> bool:
        """Whether it is a number that may be off: None, or 0 where a number is required."""
        return self.kind == "number" and self.default is None

    @property
    def expected(self) -> str:
        """The valid values, for a refusal."""
        if self.kind == "fraction":
            return "a number above 0 and at most 1"
        if self.kind == "number":
            off = ", or 0 to leave it out" if self.is_optional else ""
            return f"a number in [{self.low:g}, {self.high:g}]{off}"
        if self.kind == "integer":
            return f"a whole number of {self.low:g} or more"
        if self.kind == "choice":
            return "one of " + ", ".join(self.values)
        return "the name of a file"

    def read(self, value: Any) -> Any:
        """`value` as the option holds it: 2 for "2" and "2" for 2, as files and forms mix them.

        Raises:
            SettingError: for what the option cannot be set to.
        """
        found: Any = None
        if self.kind == "choice":
            found = next((one for one in self.values if _same(one, value)), None)
        elif self.default is None and (value is None or (self.is_optional and _number(value) == 0)):
            return None
        elif self.kind == "path":
            found = value if isinstance(value, str) else None
        elif (number := _number(value)) is not None and self._is_in_range(number):
            found = int(number) if self.kind == "integer" else float(number)
        if found is None:
            raise SettingError(self.key, self.expected, value)
        return found

    def _is_in_range(self, value: float) -> bool:
        if self.kind == "fraction":
            return 0 < value <= 1  # also refuses NaN
        if self.kind == "integer":
            return value == value // 1 and (self.low or 0) <= value < math.inf
        return (self.low or 0) <= value <= (self.high or 0)

    def changes_nothing(self, value: Any) -> bool:
        """Whether `value` is the behaviour of a method without the option: its default, or 1."""
        return value == self.default or (self.kind == "fraction" and value == 1)


def _number(value: Any) -> int | float | None:
    """A number of Python's for any number and for text that is one; None for anything else."""
    if isinstance(value, str) and len(value) < LONGEST_NUMBER:
        text = value.strip()
        with suppress(ValueError):
            return int(text) if text.isascii() and text.isdecimal() else float(text)
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, int) and abs(value) >= 2**64:
        return None  # no float holds it
    return value if isinstance(value, int | float) else float(value)  # NumPy's and others


def _same(choice: str, value: Any) -> bool:
    """Whether `value` is `choice`, or the number that `choice` spells."""
    if isinstance(value, str):
        return value.strip() == choice
    given = _number(value)
    return given is not None and given == _number(choice)


def option(default: Any, label: str, help: str, *, kind: Kind, **spec: Any) -> Any:
    """A dataclass field that describes itself; `spec` takes the other arguments of `Option`."""
    return field(
        default=default, metadata={_SPEC: {"label": label, "help": help} | spec | {"kind": kind}}
    )


def choice(
    default: str, label: str, help: str, choices: Sequence[tuple[str, str]], **spec: Any
) -> Any:
    """A field that takes one of `choices`, (value, words) pairs."""
    return option(default, label, help, kind="choice", choices=tuple(choices), **spec)


def options_of(method: Any) -> tuple[Option, ...]:
    """The options of a method, or of its class, in the order in which they are declared."""
    found = []
    for one in fields(method):
        if _SPEC in one.metadata:
            spec = {"key": one.name} | one.metadata[_SPEC]
            found.append(Option(name=one.name, default=one.default, **spec))
    return tuple(found)


def flat(method: Any) -> dict[str, Any]:
    """A method's options by their flat names, ready for JSON."""
    return {one.key: getattr(method, one.name) for one in options_of(method)}


@dataclass(frozen=True)
class Method(ABC):
    """Shared by channel methods and token pruners: a name, words, a colour, options.

    Class attributes:
        name: the registry's key.
        label: as the literature writes it.
        summary: a sentence.
        colour, marker, dash: how figures draw it; a plotly marker symbol and line style.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    summary: ClassVar[str]
    colour: ClassVar[str] = "#667080"
    marker: ClassVar[str] = "x"
    dash: ClassVar[str] = "dash"

    def __post_init__(self) -> None:
        for one in options_of(self):
            object.__setattr__(self, one.name, one.read(getattr(self, one.name)))

    @property
    def kept_share(self) -> float:
        """The share `keep`, as the paper counts it; 1 for a method that has no such option."""
        return float(getattr(self, "keep", 1.0))

    def with_keep(self, keep: float) -> Self:
        """The same method keeping another share, where it has one."""
        has_keep = any(one.name == "keep" for one in fields(self))
        changes: Mapping[str, Any] = {"keep": keep} if has_keep else {}
        return replace(self, **changes)

    def yielding_to(self, chosen: Collection[str]) -> Self:
        """The same method without what rules out options that are chosen, by their flat names."""
        return self
