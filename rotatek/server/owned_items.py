"""What a server holds in memory for its API keys: each key finds and deletes its own only."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from rotatek.errors import UserError


class Owned(Protocol):
    """An item. owner: a digest of its API key; size: its bytes; until: when it expires, seconds."""

    @property
    def owner(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def until(self) -> float: ...


Item = TypeVar("Item", bound=Owned)


class OwnedItems(Generic[Item]):
    """Items of all keys by id, the oldest first. Safe for several threads.

    Args:
        unknown: makes the error for an id that an owner does not have.
        now: the time, in the seconds of `Owned.until`.
    """

    def __init__(self, unknown: Callable[[], UserError], now: Callable[[], float]) -> None:
        self._unknown, self._now = unknown, now
        self._held: OrderedDict[str, Item] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, owner: str, ident: str) -> Item:
        """An owner's item.

        Raises:
            UserError: where there is none of that id, it has expired, or it is another's.
        """
        with self._guard:
            self._expire()
            found = self._held.get(ident)
        if found is None or found.owner != owner:
            raise self._unknown()
        return found

    def delete(self, owner: str, ident: str) -> None:
        """Delete an owner's item.

        Raises:
            UserError: as of `get`.
        """
        self.get(owner, ident)
        with self._guard:
            self._held.pop(ident, None)

    def _bytes(self, owner: str | None = None) -> int:
        """Of all items, or of one owner's. The lock is held."""
        return sum(one.size for one in self._held.values() if owner in (None, one.owner))

    def _expire(self) -> None:
        """Delete what has expired. The lock is held."""
        now = self._now()
        self._drop(lambda one: one.until <= now)

    def _drop(self, is_meant: Callable[[Item], bool], most: int | None = None) -> None:
        """Delete the oldest of those selected. The lock is held."""
        for ident in [name for name, one in self._held.items() if is_meant(one)][:most]:
            del self._held[ident]
