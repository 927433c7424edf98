"""What waits for a visitor. A conversation is taken out while it answers, so that no other request
can use or close it, and put back afterwards."""

import threading
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

MOST: Final = 16  # items of all visitors together
MOST_BYTES: Final = 2_000_000_000  # of their caches
IDLE_S: Final = 600.0


class Held(Protocol):
    """Whatever has to be freed."""

    @property
    def cache_bytes(self) -> int: ...
    def close(self) -> None:
        """Free it."""


Item = TypeVar("Item", bound=Held)


class SessionStore(Generic[Item]):
    """One item a session, safe for several threads, bounded in number and bytes of all, and in idle
    seconds of each; those used least recently make room, and are closed."""

    def __init__(
        self, most: int = MOST, most_bytes: int = MOST_BYTES, idle_s: float = IDLE_S
    ) -> None:
        self.most, self.most_bytes, self.idle_s = most, most_bytes, idle_s
        self._held: dict[str, tuple[Item, threading.Timer]] = {}  # the oldest first
        self._lock = threading.RLock()

    def hold(self, session: str, item: Item) -> None:
        """Hold an item in place of the session's other one; it counts as used now."""
        timer = threading.Timer(self.idle_s, lambda: self._expire(session, timer))
        timer.daemon = True
        timer.start()
        with self._lock:
            gone = [self._pop(session)]
            self._held[session] = item, timer
            while len(self._held) > self.most or self.bytes > self.most_bytes:
                gone.append(self._pop(next(iter(self._held))))
            kept = self._held.get(session, (None,))[0]
        for one in gone:
            if one is not None and one is not kept:
                one.close()

    def of(self, session: str, make: Callable[[], Item]) -> Item:
        """A session's item, a new one at first; it counts as used now."""
        with self._lock:
            found = self._held[session][0] if session in self._held else make()
            self.hold(session, found)
        return found

    def take(self, session: str, only: Item | None = None) -> Item | None:
        """Hand out what a session has, or None where it has nothing, or not `only` that one."""
        with self._lock:
            held = self._held.get(session, (None,))[0]
            return self._pop(session) if only is None or held is only else None

    def drop(self, session: str) -> None:
        """Close what a session has."""
        item = self.take(session)
        if item is not None:
            item.close()

    def clear(self) -> None:
        """Close everything: the memory is needed, or the process ends."""
        for session in tuple(self._held):
            self.drop(session)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def bytes(self) -> int:
        """Live bytes of all that waits."""
        return sum(item.cache_bytes for item, _ in tuple(self._held.values()))

    def _pop(self, session: str) -> Item | None:
        """Take a session's item out, if any. The lock is held."""
        item, timer = self._held.pop(session, (None, None))
        if timer is not None:
            timer.cancel()
        return item

    def _expire(self, session: str, timer: threading.Timer) -> None:
        """Drop an item, unless it has been used since."""
        with self._lock:
            is_idle = session in self._held and self._held[session][1] is timer
            item = self._pop(session) if is_idle else None
        if item is not None:
            item.close()
