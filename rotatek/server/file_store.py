"""Uploaded files: in memory, under bounds, each for the API key that uploaded it."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rotatek.errors import FilesFull, FileUnknown
from rotatek.server.files import PREFIX
from rotatek.server.owned_items import OwnedItems

MOST_BYTES: Final = 1_000_000_000  # of all files
OWN_BYTES: Final = 200_000_000  # of one key's
OWN_FILES: Final = 500  # of one key
AGE_S: Final = 24 * 3600
LONGEST_NAME: Final = 200  # characters


@dataclass(frozen=True)
class StoredFile:
    """One upload.

    Args:
        id: a random one.
        owner: a digest of the API key that uploaded it.
        name: as the client gave it, printable.
        purpose: as the client gave it.
        content: its bytes.
        created: seconds since 1970.
        expires: seconds since 1970.
    """

    id: str
    owner: str
    name: str
    purpose: str
    content: bytes
    created: float
    expires: float

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.content)

    @property
    def until(self) -> float:
        """When it expires."""
        return self.expires

    def card(self) -> dict[str, Any]:
        """As the API describes it."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": len(self.content),
            "created_at": int(self.created),
            "expires_at": int(self.expires),
            "filename": self.name,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


class FileStore(OwnedItems[StoredFile]):
    """The uploads of all keys. Safe for several threads.

    A file that does not fit is refused; files stay until they expire or are deleted.

    Args:
        most_bytes: of all files.
        own_bytes: of one owner's.
        own_files: of one owner.
        age_s: seconds until a file expires, at most.
        now: the time, in seconds since 1970.
    """

    def __init__(
        self,
        most_bytes: int = MOST_BYTES,
        own_bytes: int = OWN_BYTES,
        own_files: int = OWN_FILES,
        age_s: float = AGE_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.most_bytes, self.own_bytes, self.own_files = most_bytes, own_bytes, own_files
        super().__init__(FileUnknown, now)
        self.age_s = age_s

    def add(
        self, owner: str, name: str, purpose: str, content: bytes, seconds: float | None = None
    ) -> StoredFile:
        """Hold a file; seconds: until it expires, where that is sooner than usual.

        Raises:
            FilesFull: where there is no room for it.
        """
        clean = "".join(c for c in name if c.isprintable())[:LONGEST_NAME] or "file"
        now = self._now()
        age = self.age_s if seconds is None else min(seconds, self.age_s)
        ident = f"{PREFIX}{secrets.token_hex(16)}"
        file = StoredFile(ident, owner, clean, purpose, content, now, now + age)
        with self._guard:
            self._expire()
            own = sum(one.owner == owner for one in self._held.values())
            if (
                own >= self.own_files
                or self._bytes(owner) + file.size > self.own_bytes
                or self._bytes() + file.size > self.most_bytes
            ):
                raise FilesFull
            self._held[ident] = file
        return file

    def files(self, owner: str) -> list[StoredFile]:
        """An owner's files, the latest first."""
        with self._guard:
            self._expire()
            return [file for file in reversed(self._held.values()) if file.owner == owner]

    @property
    def bytes(self) -> int:
        """Of all files."""
        with self._guard:
            self._expire()
            return self._bytes()
