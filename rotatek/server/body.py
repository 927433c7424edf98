"""Reading what a client sends: at most so many bytes a request, and so many of all together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.requests import Request

from rotatek.errors import BodyTooLarge, BodyTooSlow, BodyUnreadable, QueueFull

MOST_BYTES: Final = 40_000_000  # three pictures of the largest size, as base64
MOST_TOGETHER: Final = 10 * MOST_BYTES
PATIENCE_S: Final = 60.0


class Bodies:
    """Bodies that are being read or checked, bounded together.

    Args:
        most: bytes of one.
        together: bytes of all.
        patience_s: seconds that one may take to arrive.
    """

    def __init__(
        self,
        most: int = MOST_BYTES,
        together: int = MOST_TOGETHER,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.most, self.together, self.patience_s = most, together, patience_s
        self.held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """One body; its bytes count until the context is left.

        Raises:
            UserError: where it is too large, too slow, no JSON, or where too many are read.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # nor what a page of another site may send unasked
            raise BodyUnreadable
        said = request.headers.get("content-length", "0")
        if said.isdecimal() and int(said) > self.most:
            raise BodyTooLarge
        mine = bytearray()
        try:
            try:
                async with asyncio.timeout(self.patience_s):
                    async for chunk in request.stream():
                        mine += chunk
                        self._count(mine, len(chunk))
            except TimeoutError as error:
                raise BodyTooSlow from error
            yield bytes(mine)
        finally:
            self.held -= len(mine)

    def _count(self, mine: bytearray, more: int) -> None:
        self.held += more
        if len(mine) > self.most:
            raise BodyTooLarge
        if self.held > self.together:
            raise QueueFull
