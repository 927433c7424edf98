"""Bounds of request bodies and decoded pictures: of each request, and of all together."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from PIL.Image import Image
from starlette.requests import ClientDisconnect, Request

from rotatek.errors import BodyTooLarge, BodyTooSlow, BodyUnreadable, QueueFull

JSON: Final = "application/json"
SPILL_S: Final = 5.0


@dataclass
class RequestBodies:
    """Bodies that are being read or checked, and decoded pictures, bounded together.

    Args:
        most: bytes of one: three pictures of the largest size, as base64.
        together: bytes of all.
        patience_s: seconds that one may take to arrive.
        pixel_bytes: of all decoded pictures that are asked about or wait for it.
    """

    most: int = 40_000_000
    together: int = 400_000_000
    patience_s: float = 60.0
    pixel_bytes: int = 2_000_000_000
    held: int = 0
    pixels_held: int = 0

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
            async with asyncio.timeout(self.patience_s):
                async for chunk in request.stream():
                    mine += chunk
                    self.held += len(chunk)
                    if len(mine) > self.most:
                        raise BodyTooLarge
                    if self.held > self.together:
                        raise QueueFull
            yield bytes(mine)
        except TimeoutError as error:
            raise BodyTooSlow from error
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
