"""How an engine is: whether it can answer, what it is doing, and what it has done."""

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
    """What an engine is doing now, and what it has done.

    running, waiting: requests that are being answered, and that wait for memory; rows: of the
    running batch; live_bytes: of all caches, conversations that rest included, and room_bytes:
    what they may take; the rest counts from the engine's start: pictures found warm or not, rows
    prefilled, steps, tokens, requests shed where memory ran out, rows that failed.
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
