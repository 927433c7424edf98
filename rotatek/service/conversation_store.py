"""Conversations that wait for a follow-up question: bounded in number, bytes and time.

A kept conversation belongs to one visitor. It is taken out while it answers, so that no other
request can use or close it, and put back afterwards; the store closes what it drops.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from rotatek.engine.conversation import Conversation

MOST: Final = 16  # conversations of all visitors together
MOST_BYTES: Final = 2_000_000_000  # of their caches
IDLE_S: Final = 600.0


@dataclass
class WaitingConversation:
    """One waiting conversation, and the run it follows (`Run.key`)."""

    conversation: Conversation
    key: str
    timer: threading.Timer | None = None

    def close(self) -> None:
        """Free its caches."""
        if self.timer is not None:
            self.timer.cancel()
        self.conversation.close()


class ConversationStore:
    """The store. The least recently used conversations are dropped for new ones."""

    def __init__(
        self, most: int = MOST, most_bytes: int = MOST_BYTES, idle_s: float = IDLE_S
    ) -> None:
        self.most, self.most_bytes, self.idle_s = most, most_bytes, idle_s
        self._held: OrderedDict[str, WaitingConversation] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, session: str, waiting: WaitingConversation) -> None:
        """Hold a conversation until its visitor asks on, leaves, or is idle for too long."""
        waiting.timer = threading.Timer(self.idle_s, self._expire, (session, waiting))
        waiting.timer.daemon = True
        waiting.timer.start()
        with self._lock:
            gone = [self._held.pop(session)] if session in self._held else []
            self._held[session] = waiting
            while self._held and (len(self._held) > self.most or self.bytes > self.most_bytes):
                gone.append(self._held.popitem(last=False)[1])
        for each in gone:
            each.close()

    def take(self, session: str, key: str) -> WaitingConversation | None:
        """Hand out what the visitor's run `key` left, or None where it is gone."""
        with self._lock:
            if session not in self._held or self._held[session].key != key:
                return None
            waiting = self._held.pop(session)
        if waiting.timer is not None:
            waiting.timer.cancel()
        return waiting

    def drop(self, session: str) -> None:
        """Close what a visitor left."""
        with self._lock:
            waiting = self._held.pop(session, None)
        if waiting is not None:
            waiting.close()

    def clear(self) -> None:
        """Close everything: the memory is needed, or the process ends."""
        with self._lock:
            gone = list(self._held.values())
            self._held.clear()
        for waiting in gone:
            waiting.close()

    @property
    def bytes(self) -> int:
        """Live bytes of all that waits."""
        return sum(waiting.conversation.cache_bytes for waiting in self._held.values())

    def __len__(self) -> int:
        return len(self._held)

    def _expire(self, session: str, waiting: WaitingConversation) -> None:
        with self._lock:
            if self._held.get(session) is not waiting:
                return
            del self._held[session]
        waiting.close()
