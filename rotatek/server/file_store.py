"""Uploaded files: in memory, under bounds, each for the API key that uploaded it."""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from rotatek.errors import FilesFull, FileUnknown
from rotatek.server.files import PREFIX

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


class FileStore:
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
        self.age_s, self._now = age_s, now
        self._held: dict[str, StoredFile] = {}  # by id, the oldest first
        self._guard = threading.Lock()

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
            own = [one for one in self._held.values() if one.owner == owner]
            if (
                len(own) >= self.own_files
                or _bytes(own) + len(content) > self.own_bytes
                or _bytes(self._held.values()) + len(content) > self.most_bytes
            ):
                raise FilesFull
            self._held[ident] = file
        return file

    def get(self, owner: str, ident: str) -> StoredFile:
        """An owner's file.

        Raises:
            FileUnknown: where there is none of that id, it has expired, or it is another's.
        """
        with self._guard:
            self._expire()
            file = self._held.get(ident)
        if file is None or file.owner != owner:
            raise FileUnknown
        return file

    def files(self, owner: str) -> list[StoredFile]:
        """An owner's files, the latest first."""
        with self._guard:
            self._expire()
            return [file for file in reversed(self._held.values()) if file.owner == owner]

    def delete(self, owner: str, ident: str) -> None:
        """Forget an owner's file.

        Raises:
            FileUnknown: as of `get`.
        """
        self.get(owner, ident)
        with self._guard:
            self._held.pop(ident, None)

    @property
    def bytes(self) -> int:
        """Of all files."""
        with self._guard:
            self._expire()
            return _bytes(self._held.values())

    def _expire(self) -> None:
        """Forget what is too old. The lock is held."""
        now = self._now()
        for ident in [one.id for one in self._held.values() if one.expires <= now]:
            del self._held[ident]


def _bytes(files: Any) -> int:
    return sum(len(file.content) for file in files)
