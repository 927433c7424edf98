"""Hundreds of programs at the OpenAI door at once: `python -m tests.load`.

Questions and follow-ups, texts alone, tools, wrong keys, clients that
vanish, bad pictures, addresses, for minutes; `MAKERS` lists them.
Bars: no answer lost, doubled or another's; no growth of memory; the door is empty at the end. Full
queues are part of it: who is refused comes again. p50 and p99 of the first token are reported.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai

from tests.cards import QUESTION, WORDS, card
from tests.server.conftest import asked, uri
from tests.soak import MEGABYTES_A_REQUEST, resident_megabytes

KEY = "the-key-of-the-load-test"
TOOL = {"type": "function", "function": {"name": "find", "description": "Finds a card."}}
TOKENS = 12
DRAWN: dict[str, Any] = {"temperature": 0.8, "top_p": 0.95, "seed": 5}
FORM = {
    "type": "json_schema",
    "json_schema": {
        "name": "reading",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"read": {"enum": ["all", "some", "none"]}, "sure": {"type": "boolean"}},
            "required": ["read", "sure"],
            "additionalProperties": False,
        },
    },
}
SETTLED_MINUTES = 5  # until caches and the allocator have what they keep
START_S = 180.0
PATIENCE_S = 300.0


@dataclass
class Report:
    """Measurements of clients. first: seconds to the first token; megabytes: of the server, by
    requests."""

    told: Counter[str] = field(default_factory=Counter)
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    megabytes: list[tuple[float, float]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def growth(self) -> float:
        """MB a request that was let in, over the second half, a straight line."""
        half = self.megabytes[len(self.megabytes) // 2 :]
        at, held = np.array(half).T
        return float(np.polyfit(at, held, 1)[0])

    @property
    def requests(self) -> int:
        """Those that were let in."""
        return self.told.total() - self.told["refused: full"]

    def figures(self) -> dict[str, Any]:
        """The figures of `docs/results.md`; seconds, in the median and at the 99th percentile."""
        first, whole = (np.percentile(t, [50, 99]).tolist() for t in (self.first, self.whole))
        return {
            "told": dict(sorted(self.told.items())),
            "first_s": first,
            "whole_s": whole,
            "megabytes_a_request": self.growth(),
            "megabytes": self.megabytes[-1][1],
            "wrong": len(self.wrong),
        }


class Client:
    """One program, which asks until the time is over."""

    def __init__(
        self,
        address: str,
        number: int,
        report: Report,
        alone: dict[str, str],
        drawn: dict[str, str],
    ) -> None:
        self.rng, self.report, self.alone = random.Random(number), report, alone
        self.drawn = drawn
        self.address, self.api = address, _api(address, KEY)
        self.stranger = _api(address, "not-the-key-of-this-door")

    async def live(self, until: float) -> None:
        """Ask one kind of question after another."""
        while time.monotonic() < until:
            (kind,) = self.rng.choices(list(MAKERS), [times for times, _ in MAKERS.values()])
            word = self.rng.choice(WORDS)
            try:
                await MAKERS[kind][1](self, word)
                self.report.told[kind] += 1
            except openai.RateLimitError:
                self.report.told["refused: full"] += 1
                await asyncio.sleep(self.rng.uniform(0.5, 3))
            except Exception as error:
                self.report.wrong.append(f"{kind}: {type(error).__name__} {error}"[:200])

    async def ask_good(self, word: str) -> list[dict[str, Any]]:
        """One question; its answer is the same as without other visitors."""
        messages = asked(uri(card(word)), QUESTION)
        said = await self._stream(messages)
        self._check(said == self.alone[word], f"{word}: {said!r}")
        self._foreign(word, said)
        return [*messages, {"role": "assistant", "content": said}]

    async def ask_followed(self, word: str) -> None:
        """A question, and another one about the same picture."""
        messages = await self.ask_good(word)
        said = await self._stream([*messages, {"role": "user", "content": "Which room?"}])
        self._foreign(word, said)

    async def ask_stopped(self, word: str) -> None:
        """A question that a text ends."""
        stop = self.alone[word][2:4]
        said = await self._stream(asked(uri(card(word)), QUESTION), stop=[stop])
        self._check(said == self.alone[word].split(stop)[0], f"{word} until {stop}: {said!r}")

    async def ask_text(self, word: str) -> None:
        """A chat without a picture."""
        said = await self._stream(text_of(word))
        self._check(said == self.alone[f"text {word}"], f"{word} as text: {said!r}")

    async def ask_tools(self, word: str) -> None:
        """Tools to choose from, and a result of one."""
        said = await self._stream(called_for(word), tools=[TOOL], tool_choice="auto")
        self._check(said == self.alone[f"tools {word}"], f"{word} with tools: {said!r}")
        self._foreign(word, said)

    async def ask_drawn(self, word: str) -> None:
        """A question whose answer is drawn: the seed gives the one that it gave before."""
        said = await self._stream(asked(uri(card(word)), QUESTION), **DRAWN)
        self._check(said == self.drawn[word], f"{word} drawn: {said!r}")

    async def ask_formed(self, word: str) -> None:
        """A question whose answer is drawn after a schema."""
        given = DRAWN | {"seed": self.rng.randrange(1000), "response_format": FORM}
        said = await self._stream(asked(uri(card(word)), QUESTION), max_tokens=40, **given)
        self._check(json.loads(said).keys() == {"read", "sure"}, f"no JSON: {said!r}")

    async def ask_vanishes(self, word: str) -> None:
        """A client that hangs up somewhere."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.rng.uniform(0.05, 2)):
                await self._stream(asked(uri(card(word)), QUESTION), max_tokens=500)

    async def ask_wrong_key(self, word: str) -> None:
        """A stranger."""
        await self._refused(401, self.stranger, asked(uri(card(word)), QUESTION))

    async def ask_bad_picture(self, word: str) -> None:
        """Half a picture."""
        address = uri(card(word))
        await self._refused(400, self.api, asked(address[: len(address) // 8 * 4], QUESTION))

    async def ask_address(self, word: str) -> None:
        """A picture to be fetched."""
        await self._refused(400, self.api, asked("http://127.0.0.1:1/a.png", QUESTION))

    async def _stream(self, messages: list[dict[str, Any]], **given: Any) -> str:
        create: Any = self.api.chat.completions.create
        started, said, ends, ids = time.monotonic(), "", 0, set()
        options = {"max_tokens": TOKENS, "stream": True} | given
        stream = await create(model="pocket", messages=messages, **options)
        async with stream:
            async for chunk in stream:
                if not said and chunk.choices[0].delta.content:
                    self.report.first.append(time.monotonic() - started)
                said += chunk.choices[0].delta.content or ""
                ends += chunk.choices[0].finish_reason is not None
                ids.add(chunk.id)
        self._check(ends == 1 and len(ids) == 1, f"{ends} ends, {len(ids)} answers")
        self.report.whole.append(time.monotonic() - started)
        return said

    async def _refused(self, status: int, api: Any, messages: list[dict[str, Any]]) -> None:
        try:
            await api.chat.completions.create(model="pocket", messages=messages)
        except openai.RateLimitError:
            raise
        except openai.APIStatusError as error:
            self._check(error.status_code == status, f"{error.status_code} for a {status}")
            return
        self._check(False, f"an answer for a {status}")

    def _foreign(self, word: str, said: str) -> None:
        foreign = [other for other in WORDS if other != word and other in said]
        if foreign:
            self._check(False, f"{word} reads {foreign}")

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            self.report.wrong.append(what)


# What clients ask, how often, and how: a kind of request more is a line more.
MAKERS: dict[str, tuple[int, Callable[[Client, str], Awaitable[object]]]] = {
    "good": (4, Client.ask_good),
    "followed": (2, Client.ask_followed),
    "stopped": (1, Client.ask_stopped),
    "text": (1, Client.ask_text),
    "tools": (1, Client.ask_tools),
    "drawn": (1, Client.ask_drawn),
    "formed": (1, Client.ask_formed),
    "vanishes": (1, Client.ask_vanishes),
    "wrong key": (1, Client.ask_wrong_key),
    "bad picture": (1, Client.ask_bad_picture),
    "address": (1, Client.ask_address),
}


def text_of(word: str) -> list[dict[str, Any]]:
    """A chat of texts alone."""
    return [{"role": "user", "content": f"What does {word} mean?"}]


def called_for(word: str) -> list[dict[str, Any]]:
    """A question, the call of a tool that it led to, and what that said."""
    function = {"name": "find", "arguments": "{}"}
    calls = [{"id": "c", "type": "function", "function": function}]
    return [
        *asked(uri(card(word)), QUESTION),
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "See the card."},
    ]


def _api(address: str, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{address}/v1", api_key=key, max_retries=0, timeout=PATIENCE_S
    )


async def watch(pid: int, report: Report, until: float) -> None:
    """Note the door's memory twice a second."""
    while time.monotonic() < until:
        report.megabytes.append((report.requests, resident_megabytes(pid)))
        await asyncio.sleep(0.5)


async def run(address: str, pid: int, clients: int, seconds: float) -> Report:
    """All at once."""
    report = Report()
    first = Client(address, -1, report, {}, {})
    for word in WORDS:
        messages = asked(uri(card(word)), QUESTION)
        first.alone[word] = await first._stream(messages)
        first.drawn[word] = await first._stream(messages, **DRAWN)
        first.alone[f"text {word}"] = await first._stream(text_of(word))
        first.alone[f"tools {word}"] = await first._stream(called_for(word), tools=[TOOL])
    report.first.clear()
    report.whole.clear()
    until = time.monotonic() + seconds
    everybody = [Client(address, n, report, first.alone, first.drawn) for n in range(clients)]
    await asyncio.gather(watch(pid, report, until), *(one.live(until) for one in everybody))
    report.wrong += await _is_empty(address)
    return report


async def _is_empty(address: str) -> list[str]:
    """What the door's own figures say once all have left."""
    for _ in range(40):
        async with httpx.AsyncClient() as web:
            told = await web.get(f"{address}/metrics", headers={"Authorization": f"Bearer {KEY}"})
        lines = [line for line in told.text.splitlines() if not line.startswith("#")]
        figures = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
        held = {
            name: figures[name]
            for name in ("rotatek_running", "rotatek_waiting", 'rotatek_kv_bytes{of="answering"}')
        }
        if not any(held.values()):
            return []
        await asyncio.sleep(0.5)
    return [f"left behind: {held}"]


def serve(port: int, arguments: list[str]) -> subprocess.Popen:
    """The door in a process of its own, once it answers."""
    environment = os.environ | {"ROTATEK_API_KEYS": KEY}
    words = [sys.executable, "-m", "rotatek", "serve", "--port", str(port), *arguments]
    process = subprocess.Popen(words, env=environment)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(httpx.HTTPError):
            if httpx.get(f"http://127.0.0.1:{port}/health").json()["status"] == "ready":
                return process
        time.sleep(0.5)
    process.kill()
    raise SystemExit("The door did not open.")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--answers", default="32")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = serve(port, ["--answers", options.answers])
    address, seconds = f"http://127.0.0.1:{port}", 60 * options.minutes
    try:
        report = asyncio.run(run(address, process.pid, options.clients, seconds))
    finally:
        process.terminate()
        process.wait(30)
    found = report.figures()
    print(", ".join(f"{count} {kind}" for kind, count in found["told"].items()))
    print("first token {:.1f} s, p99 {:.1f} s; ".format(*found["first_s"]), end="")
    print("answer {:.1f} s, p99 {:.1f} s; ".format(*found["whole_s"]), end="")
    print(f"{found['megabytes_a_request']:+.4f} MB a request, ", end="")
    print(f"{found['megabytes']:.0f} MB held; {found['wrong']} wrong")
    for line, count in Counter(report.wrong).most_common(20):
        print(f"{count} x {line}")
    if options.json:
        found |= {"clients": options.clients, "minutes": options.minutes, "cores": os.cpu_count()}
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    settled = options.minutes < SETTLED_MINUTES or report.growth() <= MEGABYTES_A_REQUEST
    return 0 if settled and not report.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
