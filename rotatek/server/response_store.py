"""Responses that later calls may continue: in memory, within bounds, each for its own key."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rotatek.errors import ResponseUnknown
from rotatek.server.owned_items import OwnedItems

MOST: Final = 1_000  # responses of all keys
MOST_BYTES: Final = 500_000_000  # of all keys
OWN_BYTES: Final = 100_000_000  # of one key
AGE_S: Final = 3600.0


def new_id() -> str:
    """A random one."""
    return f"resp_{secrets.token_hex(24)}"


@dataclass(frozen=True)
class StoredResponse:
    """A response that was given.

    Args:
        owner: a digest of the API key that asked.
        body: as it was sent.
        messages: the chat that it ends, as a chat call has it.
        size: bytes of them, about; what several responses share is counted for each.
        until: seconds of `time.monotonic`.
    """

    owner: str
    body: dict[str, Any]
    messages: list[dict[str, Any]]
    size: int
    until: float


class ResponseStore(OwnedItems[StoredResponse]):
    """The store. The oldest responses are removed for new ones, a key's own before others'.

    Args:
        most: responses of all keys.
        most_bytes: of all keys.
        own_bytes: of one key.
        age_s: seconds until a response is let go.
        now: the time in seconds.
    """

    def __init__(
        self,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
        own_bytes: int = OWN_BYTES,
        age_s: float = AGE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most, self.most_bytes, self.own_bytes = most, most_bytes, own_bytes
        super().__init__(ResponseUnknown, now)
        self.age_s = age_s

    def keep(
        self, owner: str, body: dict[str, Any], messages: list[dict[str, Any]], size: int
    ) -> None:
        """Hold a response by its `id`, as of `StoredResponse`; one too large is not held."""
        if size > self.own_bytes:
            return
        with self._guard:
            until = self._now() + self.age_s
            self._held[body["id"]] = StoredResponse(owner, body, messages, size, until)
            self._expire()
            while self._bytes(owner) > self.own_bytes:
                self._drop(lambda one: one.owner == owner, 1)
            while len(self._held) > self.most or self._bytes() > self.most_bytes:
                self._held.popitem(last=False)

    @property
    def bytes(self) -> int:
        """Of all that is held, about."""
        with self._guard:
            return self._bytes()
