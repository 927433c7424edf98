"""API keys: from the environment or a file, compared in constant time, known by their digests."""

import hashlib
import hmac
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rotatek.errors import KeyUnknown, SettingError, UserError
from rotatek.inputs.text_files import lines_of

VARIABLE: Final = "ROTATEK_API_KEYS"
SHORTEST: Final = 16  # characters


class Keys:
    """The keys that this server accepts; without any key every client is accepted.

    Args:
        keys: as clients send them.

    Raises:
        SettingError: for a key that can be guessed.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        given = [key.strip() for key in keys if key.strip()]
        if any(len(key) < SHORTEST for key in given):
            allowed = f"keys of {SHORTEST} characters or more"
            raise SettingError("api_keys", allowed, "a shorter one")
        self._digests = [_digest(key) for key in given]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def owner(self, authorization: str | None) -> str:
        """The caller as a digest of the key; the same for all where there are no keys.

        Args:
            authorization: the header, "Bearer KEY".

        Raises:
            KeyUnknown: where keys are needed, and this is none.
        """
        if not self:
            return ""
        kind, _, key = (authorization or "").partition(" ")
        given = _digest(key.strip())
        known = [hmac.compare_digest(given, one) for one in self._digests]  # all of them, always
        if kind.lower() != "bearer" or not any(known):
            raise KeyUnknown
        return given.hex()


def keys_here(file: Path | None) -> Keys:
    """Those of the environment, separated by commas, and those of a file, one a line.

    Raises:
        UserError: where there is no such file, where either is given and has no key, and for a key
            that can be guessed.
    """
    given = os.environ.get(VARIABLE)
    found = {} if given is None else {VARIABLE: given.split(",")}
    found |= {} if file is None else {"The file of API keys": keys_of(file)}
    for place, keys in found.items():
        if not any(key.strip() for key in keys):  # whoever gives it wants keys to be asked for
            raise UserError(f"{place} has no key. Put one in, or leave it out to ask for none.")
    return Keys(key for keys in found.values() for key in keys)


def keys_of(file: Path) -> list[str]:
    """The keys of a file, one a line; lines that begin with # are comments.

    Raises:
        UserError: where it cannot be read.
    """
    lines = (line.strip() for _, line in lines_of(file, "The file of API keys"))
    return [line for line in lines if not line.startswith("#")]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
