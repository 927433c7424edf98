"""Responses that later calls may continue: in memory, within bounds, each for its own key."""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rotatek.errors import ResponseUnknown

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


class ResponseStore:
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
        self.age_s, self._now = age_s, now
        self._held: OrderedDict[str, StoredResponse] = OrderedDict()
        self._guard = threading.Lock()

    def keep(
        self, owner: str, body: dict[str, Any], messages: list[dict[str, Any]], size: int
    ) -> None:
        """Hold a response by its `id`, as of `StoredResponse`; one too large is not held."""
        if size > self.own_bytes:
            return
        with self._guard:
            until = self._now() + self.age_s
            self._held[body["id"]] = StoredResponse(owner, body, messages, size, until)
            self._drop(lambda one: one.until <= self._now())
            while self._bytes(owner) > self.own_bytes:
                self._drop(lambda one: one.owner == owner, 1)
            while len(self._held) > self.most or self._bytes() > self.most_bytes:
                self._held.popitem(last=False)

    def get(self, owner: str, ident: str) -> StoredResponse:
        """An owner's response.

        Raises:
            ResponseUnknown: where there is none of that id, or it is another's.
        """
        with self._guard:
            self._drop(lambda one: one.until <= self._now())
            found = self._held.get(ident)
        if found is None or found.owner != owner:
            raise ResponseUnknown
        return found

    def delete(self, owner: str, ident: str) -> None:
        """Delete an owner's response.

        Raises:
            ResponseUnknown: as of `get`.
        """
        self.get(owner, ident)
        with self._guard:
            self._held.pop(ident, None)

    @property
    def bytes(self) -> int:
        """Of all that is held, about."""
        with self._guard:
            return self._bytes()

    def _bytes(self, owner: str | None = None) -> int:
        return sum(one.size for one in self._held.values() if owner in (None, one.owner))

    def _drop(self, is_meant: Callable[[StoredResponse], bool], most: int | None = None) -> None:
        """Delete the oldest of those selected. The lock is held."""
        for ident in [name for name, one in self._held.items() if is_meant(one)][:most]:
            del self._held[ident]
