"""What waits for a visitor: one item a session, bounded in number and idle time."""

import threading
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """Whatever has to be freed."""

    def close(self) -> None:
        """Free it."""


Item = TypeVar("Item", bound=Closable)


class SessionStore(Generic[Item]):
    """Items by session. Safe for several threads; the store closes what it drops.

    Args:
        most: items of all sessions; those used least recently make room.
        idle_s: seconds after which an unused item is dropped.
    """

    def __init__(self, most: int, idle_s: float) -> None:
        self.most, self.idle_s = most, idle_s
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
            while self._held and self._is_full():
                gone.append(self._pop(next(iter(self._held))))
            kept = self._held.get(session, (None,))[0]
        for one in gone:
            if one is not None and one is not kept:
                one.close()

    def drop(self, session: str) -> None:
        """Close what a session has."""
        with self._lock:
            item = self._pop(session)
        if item is not None:
            item.close()

    def clear(self) -> None:
        """Close everything: the memory is needed, or the process ends."""
        for session in tuple(self._held):
            self.drop(session)

    def __len__(self) -> int:
        return len(self._held)

    def _is_full(self) -> bool:
        """Whether the oldest item has to go. The lock is held."""
        return len(self._held) > self.most

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
