"""The state of an engine: whether it can answer, its present work, and its totals."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Health:
    """able: whether requests can be answered; attention: "triton" or "reference", and why."""

    able: bool
    device: str
    attention: str
    reason: str


@dataclass(frozen=True)
class EngineState:
    """An engine's present work and its totals.

    running, waiting: requests that are being answered, and that wait for memory; rows: of the
    running batch; live_bytes: of all caches, kept conversations included, and room_bytes: their
    limit; the others count from the engine's start: pictures found in memory or not, rows
    prefilled, steps, tokens, requests that ran out of memory, rows that failed.
    """

    running: int
    waiting: int
    rows: int
    live_bytes: int
    room_bytes: int
    picture_bytes: int
    picture_hits: int
    picture_misses: int
    prefills: int
    steps: int
    tokens: int
    shed: int
    failed: int
