"""Conversations that wait for a follow-up question: bounded in number, bytes and time.

A kept conversation belongs to one visitor. It is taken out while it answers, so that nobody else
can use or close it, and put back afterwards; whatever leaves this store is closed.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from rotatek.conversation import Conversation

MOST: Final = 16  # conversations of all visitors together
MOST_BYTES: Final = 2_000_000_000  # of their caches
IDLE_S: Final = 600.0


@dataclass
class Kept:
    """One waiting conversation, and the run it follows (`Run.key`)."""

    conversation: Conversation
    key: str
    timer: threading.Timer | None = None

    def close(self) -> None:
        """Free its caches."""
        if self.timer is not None:
            self.timer.cancel()
        self.conversation.close()


class Chats:
    """The store. The least recently used conversations make room for new ones."""

    def __init__(
        self, most: int = MOST, most_bytes: int = MOST_BYTES, idle_s: float = IDLE_S
    ) -> None:
        self.most, self.most_bytes, self.idle_s = most, most_bytes, idle_s
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, session: str, kept: Kept) -> None:
        """Hold a conversation until its visitor asks on, leaves, or is idle for too long."""
        kept.timer = threading.Timer(self.idle_s, self._expire, (session, kept))
        kept.timer.daemon = True
        kept.timer.start()
        with self._lock:
            gone = [self._kept.pop(session)] if session in self._kept else []
            self._kept[session] = kept
            while self._kept and (len(self._kept) > self.most or self.bytes > self.most_bytes):
                gone.append(self._kept.popitem(last=False)[1])
        for each in gone:
            each.close()

    def take(self, session: str, key: str) -> Kept | None:
        """Hand out what the visitor's run `key` left, or None where it is gone."""
        with self._lock:
            if session not in self._kept or self._kept[session].key != key:
                return None
            kept = self._kept.pop(session)
        if kept.timer is not None:
            kept.timer.cancel()
        return kept

    def drop(self, session: str) -> None:
        """Close what a visitor left."""
        with self._lock:
            kept = self._kept.pop(session, None)
        if kept is not None:
            kept.close()

    def clear(self) -> None:
        """Close everything: the memory is needed, or the process ends."""
        with self._lock:
            gone = list(self._kept.values())
            self._kept.clear()
        for kept in gone:
            kept.close()

    @property
    def bytes(self) -> int:
        """Live bytes of all that waits."""
        return sum(kept.conversation.cache_bytes for kept in self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def _expire(self, session: str, kept: Kept) -> None:
        with self._lock:
            if self._kept.get(session) is not kept:
                return
            del self._kept[session]
        kept.close()
