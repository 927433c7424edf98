"""Who still looks at the page. A browser's connection may be lost while its page stays open, on a
telephone asleep or behind a platform that bounds every request: nothing is freed for that alone."""

import threading
import time
from collections.abc import Callable


class Presence:
    """Frees what a visitor has once the page has been silent for a while.

    Args:
        free: called with the session of a visitor who has gone.
        grace_s: seconds of silence; an open page is heard of every half minute.
    """

    def __init__(self, free: Callable[[str], None], grace_s: float) -> None:
        self._free, self.grace_s = free, grace_s
        self._heard: dict[str, float] = {}

    def here(self, session: str | None = None) -> None:
        """The page is open."""
        self._heard[session or ""] = time.monotonic()

    def lost(self, session: str | None = None) -> None:
        """The page's own connection has ended: whether it was closed is seen later."""
        self._heard.setdefault(session or "", time.monotonic())
        self._look_later(session or "", self.grace_s)

    def _look_later(self, session: str, after_s: float) -> None:
        timer = threading.Timer(after_s, self._look, (session,))
        timer.daemon = True
        timer.start()

    def _look(self, session: str) -> None:
        silent = time.monotonic() - self._heard.get(session, 0.0)
        if silent < self.grace_s:
            self._look_later(session, self.grace_s - silent)
        elif self._heard.pop(session, None) is not None:
            self._free(session)
