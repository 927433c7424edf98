"""A replica: one model in a process of its own, which Ray Serve starts, calls and replaces; and
what it and the gateway send each other beside the engine's events. All of that is picklable."""

import asyncio
import importlib
import logging
import os
import secrets
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ray import serve

from rotatek.bridge.attention import StopFlag
from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Event, Failed, Health
from rotatek.errors import ConversationGone, UserError, public_error
from rotatek.inputs.request import Request
from rotatek.methods.settings import Settings
from rotatek.models.base import Pixels
from rotatek.server.worker_pool import WorkerPool
from rotatek.service.session_store import SessionStore

log = logging.getLogger("rotatek")

USED: Final = "RAY_SERVE_USE_GRPC_BY_DEFAULT"  # only then does anybody call a replica's own port
PATIENT: Final = 100_000  # the front bounds how many wait


@dataclass(frozen=True)
class Job:
    """One answer to compute.

    Args:
        columns: settings by name.
        request: the first question with its pictures; None for a follow-up whose cache should be
            at its replica.
        asked: the follow-up question, the last message of a request of its own; None for the first
            one.
        past: the later questions before `asked`.
        trace: as of `Engine.compare`.
        talk: the key of the caches that are kept for a follow-up; empty where none are.
        key: names this answer, to stop it.
    """

    columns: Mapping[str, Settings]
    request: Request | None
    asked: Request | None = None
    past: tuple[Request, ...] = ()
    trace: bool = False
    talk: str = ""
    key: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True)
class Started:
    """A replica has taken the job; home: its id. A job that fails before is refused, and its
    conversation is as it was; `ConversationGone`: nothing to make its cache from was sent."""

    home: str


@dataclass(frozen=True)
class KeptConversation:
    """The caches are kept. kv_bytes: their size."""

    kv_bytes: int


Told = Event | Started | KeptConversation


class Replica:
    """Answers jobs with its own engine, so many at once, and keeps conversations for follow-ups."""

    def __init__(
        self, source: str, device: str | None = None, graphs: bool = False, answers: int = 8
    ) -> None:
        stay_inside()
        self.home = serve.get_replica_context().replica_id.unique_id
        self.engine = Engine(source, device, graphs=graphs)
        self.engine.warm_up()
        self.workers, self.waiting = WorkerPool(answers, PATIENT), SessionStore[Conversation]()
        self._stops: dict[str, StopFlag] = {}

    async def run(self, job: Job) -> AsyncGenerator[Told, None]:
        """The events of one job, between `Started` and, where its caches wait,
        `KeptConversation`."""
        stop = self.engine.flag()
        self._stops[job.key] = stop
        try:
            told = self.workers.events(lambda: self._events(job, stop), stop)
            async with aclosing(told):
                async for event in told:
                    yield event
        finally:
            self._stops.pop(job.key, None)

    async def stop(self, key: str) -> None:
        """End a job within a token."""
        if key in self._stops:
            self._stops[key].set()

    async def drop(self, talk: str) -> None:
        """Free a conversation's caches."""
        self.waiting.drop(talk)

    async def health(self) -> Health:
        """Whether the model can answer, and where it runs."""
        return self.engine.health()

    async def look(self, request: Request) -> Pixels:
        """What its pictures become, without tensors."""
        pixels = await asyncio.to_thread(self.engine.vlm.look, request)
        return replace(pixels, tensors={})

    def check_health(self) -> None:
        """Ray Serve asks, and replaces a replica that raises: its accelerator is lost."""
        if not self.engine.health().able:
            raise RuntimeError("the accelerator is lost")

    def _events(self, job: Job, stop: StopFlag) -> Iterator[Told]:
        found = self.waiting.take(job.talk) if job.asked is not None else None
        if found is None and job.request is None:
            yield Failed(ConversationGone())
            return
        talk, is_kept = found or Conversation(), False
        past = () if talk.is_open else job.past
        try:
            events: Iterator[Event] = iter(())
            if job.asked is None or not talk.is_open:
                assert job.request is not None
                events = self.engine.compare(
                    job.request, job.columns, stop, trace=job.trace,
                    conversation=talk if job.talk else None,
                )  # fmt: skip
            for turn in () if job.asked is None else (*past, job.asked):
                for _ in events:  # lost caches are made as they were: by the same answers
                    pass
                asked: Any = turn.messages[-1].parts
                events = self.engine.follow(talk, asked, turn.max_new_tokens, stop, turn.sampling)
            yield Started(self.home)
            yield from events
            if job.talk and talk.is_open:
                self.waiting.hold(job.talk, talk)
                is_kept = True
                yield KeptConversation(talk.cache_bytes)
        except Exception as error:
            if isinstance(error, UserError) and found is not None and found.is_open:
                self.waiting.hold(job.talk, found)
                is_kept = True
            yield Failed(public_error(error))
        finally:
            if not is_kept:
                talk.close()


def stay_inside() -> None:
    """Bind this replica's gRPC port to loopback; called while the replica is being made.

    Serve (2.60) opens it on every interface, without TLS or token unless the cluster has TLS, and
    reads pickles from it. Nothing here uses it: calls go through Ray's own ports, which require
    the cluster's token.
    """
    if os.environ.get(USED) == "1":
        return
    module: Any = importlib.import_module("ray.serve._private.replica")
    opened = getattr(module, "add_port_to_grpc_server", None)
    if opened is None:
        log.warning("this Ray opens its replicas' ports in another way: check what listens")
        return

    def bind(server: Any, address: str, *rest: Any, **options: Any) -> Any:
        return opened(server, address.replace("[::]", "127.0.0.1"), *rest, **options)

    module.add_port_to_grpc_server = bind
