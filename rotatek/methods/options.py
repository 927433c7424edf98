"""Methods and their options, which describe themselves; and the registries of methods by name.

A method is a frozen dataclass, whose fields are made by `option`. Command-line flags, the page's
controls, the API's fields, links, and the columns of tables are all made from `options_of(method)`.
"""

import logging
import math
from abc import ABC
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib.metadata import entry_points
from numbers import Real
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeVar

from rotatek.errors import SettingError

Kind = Literal["fraction", "number", "integer", "choice", "path"]
Place = Literal["main", "more", "hidden"]
_SPEC: Final = "rotatek"  # the key of a field's metadata
LONGEST_NUMBER: Final = 40  # characters of a number that comes as text
log = logging.getLogger("rotatek")


@dataclass(frozen=True)
class Option:
    """One field of a method, with the data for forms and flags.

    Of the kinds "fraction" is a kept share in (0, 1]; "number" is in [low, high]; "integer" is at
    least low; "choice" is one of `choices`; "path" is a file, never shared in a link. Where the
    default is None, None says that the option is off.
    """

    name: str
    key: str  # the flat name in flags, links and programs, e.g. `keep_channels`
    default: Any
    label: str  # a few words for the page
    help: str  # one sentence for the command line, the page and the API
    kind: Kind
    low: float | None = None
    high: float | None = None
    choices: Sequence[tuple[str, str]] = ()  # (value, words) pairs
    place: Place = "more"  # beside the slider, with rarely changed options, or nowhere

    @property
    def values(self) -> tuple[str, ...]:
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
        """`value` as the option holds it: 2 for "2" and "2" for 2, as files and forms mix them;
        `SettingError` for what the option cannot be set to."""
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
    """A Python number for any number and for text that is one; None for anything else."""
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


def option(default: Any, label: str, help: str, *, kind: Kind = "choice", **spec: Any) -> Any:
    """A dataclass field that describes itself; `spec` takes the other arguments of `Option`:
    `choices` where no kind is given."""
    return field(
        default=default, metadata={_SPEC: {"label": label, "help": help, "kind": kind} | spec}
    )


def options_of(method: Any) -> tuple[Option, ...]:
    """The options of a method, or of its class, in the order in which they are declared."""
    return tuple(
        Option(name=one.name, default=one.default, **({"key": one.name} | one.metadata[_SPEC]))
        for one in fields(method)
        if _SPEC in one.metadata
    )


def flat(method: Any) -> dict[str, Any]:
    """A method's options by their flat names, ready for JSON."""
    return {one.key: getattr(method, one.name) for one in options_of(method)}


@dataclass(frozen=True)
class Method(ABC):
    """Shared by channel methods and token pruners: a name, words, a colour, options."""

    name: ClassVar[str]  # in the registry
    label: ClassVar[str]  # as the literature writes it
    summary: ClassVar[str]  # a sentence
    colour: ClassVar[str] = "#667080"  # in which figures draw it

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


M = TypeVar("M", bound=Method)


class Registry(Mapping[str, type[M]], Generic[M]):
    """Method classes by name, in the order of menus.

    A package adds one by an entry point in the group, whose object is the class:

        [project.entry-points."rotatek.channels"]
        mine = "my_package:MyMethod"

    Entry points are read when a name is unknown, and when all are listed. One that cannot be
    loaded, or that has the name of another method, is logged and ignored. `base` is the class that
    every method extends, `own` this library's methods, the default first.
    """

    def __init__(self, group: str, base: type[M], own: tuple[type[M], ...]) -> None:
        self.group, self.base = group, base
        self.own: Mapping[str, type[M]] = MappingProxyType({m.name: m for m in own})

    @property
    def default(self) -> type[M]:
        return next(iter(self.own.values()))

    @cached_property
    def all(self) -> Mapping[str, type[M]]:
        """Ours, then what other packages have registered."""
        known = dict(self.own)
        for point in entry_points(group=self.group):
            try:
                method = point.load()
                if not (isinstance(method, type) and issubclass(method, self.base)):
                    raise TypeError(f"{point.value} does not extend {self.base.__name__}")
                if method.name in known:
                    raise ValueError(f"the name {method.name} is taken")
                kinds = {one.key: one.kind for other in known.values() for one in options_of(other)}
                for one in options_of(method):  # of one flat name, as values are read without it
                    if kinds.get(one.key, one.kind) != one.kind:
                        raise ValueError(f"its option {one.key} is a {kinds[one.key]} elsewhere")
            except Exception as error:  # a broken plug-in must not take the others down
                log.warning("%s: the method %s is ignored: %s", self.group, point.name, error)
                continue
            known[method.name] = method
        return MappingProxyType(known)

    def __getitem__(self, name: str) -> type[M]:
        return self.own[name] if name in self.own else self.all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def find(self, name: object) -> type[M]:
        """The method of that name; `SettingError` with the names that there are."""
        if isinstance(name, str) and name in self:
            return self[name]
        raise SettingError(self.group.rpartition(".")[2], "one of " + ", ".join(self), name)

    def options(self) -> dict[str, list[tuple[type[M], Option]]]:
        """Every flat name, with the methods that have it and their option of that name."""
        found: dict[str, list[tuple[type[M], Option]]] = {}
        for method in self.values():
            for one in options_of(method):
                found.setdefault(one.key, []).append((method, one))
        return found


def channels_kept(width: int, keep: float) -> int:
    """Channels that stay of `width`: at least one, the nearest integer."""
    return max(1, min(width, round(width * keep)))


def tokens_kept(tokens: int, keep: float) -> int:
    """Visual tokens that stay of `tokens`: at least one unless there are none."""
    return min(tokens, max(1, round(tokens * keep))) if tokens else 0
