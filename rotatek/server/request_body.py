"""Bounds of request bodies and decoded pictures: of each request, and of all together."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

from PIL.Image import Image
from starlette.requests import ClientDisconnect, Request

from rotatek.errors import BodyTooLarge, BodyTooSlow, BodyUnreadable, QueueFull

JSON: Final = "application/json"
MOST_BYTES: Final = 40_000_000  # three pictures of the largest size, as base64
MOST_TOGETHER: Final = 10 * MOST_BYTES
MOST_PIXEL_BYTES: Final = 2_000_000_000  # of decoded pictures that are asked about or wait for it
PATIENCE_S: Final = 60.0
SPILL_S: Final = 5.0


class RequestBodies:
    """Bodies that are being read or checked, bounded together.

    Args:
        most: bytes of one.
        together: bytes of all.
        patience_s: seconds that one may take to arrive.

    Attributes:
        pixel_bytes: of all decoded pictures, at most.
    """

    def __init__(
        self,
        most: int = MOST_BYTES,
        together: int = MOST_TOGETHER,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.most, self.together, self.patience_s = most, together, patience_s
        self.pixel_bytes = MOST_PIXEL_BYTES
        self.held = self.pixels_held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """One body; its bytes count until the context is left.

        Raises:
            UserError: where it is too large, too slow, no JSON, or where too many are read.
        """
        said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if said != JSON:  # nor what a page of another site may send unasked
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

    async def spill(self, request: Request) -> None:
        """Read and discard what a refused client is still sending: closing the connection would
        break it before the client reads the refusal."""
        spilt = 0
        with suppress(TimeoutError, RuntimeError, ClientDisconnect):
            async with asyncio.timeout(SPILL_S):
                async for chunk in request.stream():
                    spilt += len(chunk)
                    if spilt > 2 * self.most:
                        return

    @contextmanager
    def decoded(self, pictures: Sequence[Image]) -> Iterator[None]:
        """Count decoded pictures while they are needed.

        Raises:
            QueueFull: where all together are too many.
        """
        size = sum(3 * picture.width * picture.height for picture in pictures)
        if self.pixels_held + size > self.pixel_bytes:
            raise QueueFull
        self.pixels_held += size
        try:
            yield
        finally:
            self.pixels_held -= size

    def _count(self, mine: bytearray, more: int) -> None:
        self.held += more
        if len(mine) > self.most:
            raise BodyTooLarge
        if self.held > self.together:
            raise QueueFull
