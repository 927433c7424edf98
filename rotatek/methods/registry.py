"""Named methods: ours in a fixed order, and those that other packages add by an entry point."""

import logging
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Generic, TypeVar

from rotatek.errors import SettingError
from rotatek.methods.options import Method, Option, options_of

log = logging.getLogger("rotatek")

M = TypeVar("M", bound=Method)


class Registry(Mapping[str, type[M]], Generic[M]):
    """Method classes by name, in the order of menus.

    A package adds one by an entry point in the group, whose object is the class:

        [project.entry-points."rotatek.channels"]
        mine = "my_package:MyMethod"

    Entry points are read when a name is unknown, and when all are listed. One that cannot be
    loaded, or that has the name of another method, is logged and ignored.

    Args:
        group: of the entry points: "rotatek.channels" or "rotatek.tokens".
        base: the class that every method extends.
        own: this library's methods, the default first.
    """

    def __init__(self, group: str, base: type[M], own: tuple[type[M], ...]) -> None:
        self.group, self.base = group, base
        self.own: Mapping[str, type[M]] = MappingProxyType({m.name: m for m in own})

    @property
    def default(self) -> type[M]:
        """The first of ours."""
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
                self._check_keys(method, known)
            except Exception as error:  # a broken plug-in must not take the others down
                log.warning("%s: the method %s is ignored: %s", self.group, point.name, error)
                continue
            known[method.name] = method
        return MappingProxyType(known)

    @staticmethod
    def _check_keys(method: type[M], known: Mapping[str, type[M]]) -> None:
        """Options of one flat name must take the same kind of value in every method."""
        kinds = {one.key: one.kind for other in known.values() for one in options_of(other)}
        for one in options_of(method):
            if kinds.get(one.key, one.kind) != one.kind:
                raise ValueError(f"its option {one.key} is a {kinds[one.key]} elsewhere")

    def __getitem__(self, name: str) -> type[M]:
        return self.own[name] if name in self.own else self.all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def find(self, name: object) -> type[M]:
        """The method of that name.

        Raises:
            SettingError: naming what there is.
        """
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
