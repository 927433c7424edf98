"""Conversations that wait for a follow-up question: bounded in number, bytes and time.

A kept conversation belongs to one visitor. It is taken out while it answers, so that no other
request can use or close it, and put back afterwards.
"""

from dataclasses import dataclass
from typing import Final

from rotatek.engine.conversation import Conversation
from rotatek.service.session_store import SessionStore

MOST: Final = 16  # conversations of all visitors together
MOST_BYTES: Final = 2_000_000_000  # of their caches
IDLE_S: Final = 600.0


@dataclass
class WaitingConversation:
    """One waiting conversation, and the run it follows (`Run.key`)."""

    conversation: Conversation
    key: str

    def close(self) -> None:
        """Free its caches."""
        self.conversation.close()


class ConversationStore(SessionStore[WaitingConversation]):
    """The store. The least recently used conversations are dropped for new ones."""

    def __init__(
        self, most: int = MOST, most_bytes: int = MOST_BYTES, idle_s: float = IDLE_S
    ) -> None:
        super().__init__(most, idle_s)
        self.most_bytes = most_bytes

    def take(self, session: str, key: str) -> WaitingConversation | None:
        """Hand out what the visitor's run `key` left, or None where it is gone."""
        with self._lock:
            if session in self._held and self._held[session][0].key == key:
                return self._pop(session)
        return None

    @property
    def bytes(self) -> int:
        """Live bytes of all that waits."""
        return sum(waiting.conversation.cache_bytes for waiting, _ in tuple(self._held.values()))

    def _is_full(self) -> bool:
        return super()._is_full() or self.bytes > self.most_bytes
