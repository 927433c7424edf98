"""An engine whose answers are computed by replicas.

Where a replica is lost, another one answers what has streamed nothing yet; an answer that has ends
with an error that says to ask again, and nothing is delivered twice.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Final

import torch
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from rotatek.bridge.attention import StopFlag
from rotatek.cache.measures import ByteCount
from rotatek.cluster.replica import Job, KeptConversation, Started
from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Event, Failed, Finished, Health, Prefilled, Restarted, Token
from rotatek.errors import ELSEWHERE, AnswerBroken, ConversationGone, ConversationOver, Restarting
from rotatek.inputs.messages import Message
from rotatek.inputs.request import Limits, Request, clean_question, whole_tokens
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.inputs.token_grid import scaled
from rotatek.methods.settings import Settings

log = logging.getLogger("rotatek")

TRIES: Final = 6  # replicas that may be lost over one answer
PAUSE_S: Final = 0.5  # between them: Serve has to notice
LOST: Final = (RayError, RayServeException)


class RemoteSwitch(threading.Event):
    """A stop flag that tells the replica."""

    def __init__(self) -> None:
        super().__init__()
        self.tell: Callable[[], None] | None = None

    def set(self) -> None:
        """Ask to stop, in the process that computes the answer."""
        first = not self.is_set()
        super().set()
        if first and self.tell is not None:
            self.tell()


@dataclass
class RemoteConversation:
    """A conversation whose caches are on a replica; takes a column's place in a `Conversation`."""

    handle: DeploymentHandle
    columns: Mapping[str, Settings]
    request: Request  # the first question: lost caches are made again from its text and pictures
    past: tuple[Request, ...] = ()  # the questions after it
    home: str = ""  # the replica's id
    kv_bytes: int = 0
    key: str = field(default_factory=lambda: secrets.token_hex(8))

    grown = 0  # the replica counts a conversation's tokens

    def bytes(self) -> ByteCount:
        """Live bytes of the caches, as the replica counted them, and of this process's pictures."""
        held = self.request.images
        pixels = sum(3 * image.width * image.height for image in held)
        return ByteCount(total=self.kv_bytes + pixels)

    def close(self) -> None:
        """Let the replica free them."""
        self.handle.options(session_id=self.home).drop.remote(self.key)


class RemoteEngine(Engine):
    """`Engine`, by replicas.

    Args:
        handle: of a deployment of `rotatek.cluster.replica.Replica`.
    """

    lookahead: ClassVar[int] = 0  # a replica holds the cache

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle
        self._health: Health = handle.health.remote().result()
        self.limits = Limits()
        self.vlm: Any = SimpleNamespace(  # what page and API need of one, without its weights
            device=torch.device(self._health.device),
            takes_tools=False,  # it has no template here
            low_pixels=256 * 28**2,  # 256 visual tokens of Qwen2.5-VL, whatever the model
            within=scaled,
            context=lambda limit: limit,  # as far as a front knows
            look=lambda request: handle.look.remote(request).result(),
        )

    def compare(
        self,
        request: Request,
        columns: Mapping[str, Settings],
        stop: StopFlag | None = None,
        *,
        trace: bool = True,
        conversation: Conversation | None = None,
    ) -> Iterator[Event]:
        """As `Engine.compare`."""
        request = replace(request, sampling=request.sampling.seeded())  # equal on every replica
        talk = RemoteConversation(self._handle, dict(columns), request)
        key = "" if conversation is None else talk.key
        job = Job(talk.columns, request, trace=trace, talk=key)
        with closing(self._answered(job, talk, stop or self.flag(), conversation)) as events:
            yield from filter(None, events)

    def follow(
        self,
        conversation: Conversation,
        question: str,
        max_new_tokens: int = 64,
        stop: StopFlag | None = None,
        sampling: Sampling = GREEDY,
    ) -> Iterator[Event]:
        """As `Engine.follow`; caches that are gone are made again from text and pictures."""
        question, length = clean_question(question), whole_tokens(max_new_tokens)
        parts = question if isinstance(question, tuple) else (question,)
        asked = Request((), (Message("user", parts),), length, sampling=sampling.seeded())
        if not conversation.is_open:
            raise ConversationGone
        if conversation.turns >= self.limits.turns:
            raise ConversationOver
        talk: RemoteConversation = conversation.columns[0]  # type: ignore[assignment]
        job = Job(talk.columns, None, asked, talk=talk.key)
        events = self._answered(job, talk, stop or self.flag(), conversation)
        first = next(events, None)
        if first is not None:
            raise first.error
        return events

    def _answered(
        self,
        job: Job,
        talk: RemoteConversation,
        stop: StopFlag,
        conversation: Conversation | None,
    ) -> Generator[Any, None, None]:
        """None once a replica has begun, or the `Failed` with which it refused; then what
        `Engine.compare` yields. `talk` is what `conversation` holds where the caches are kept."""
        begun, kept, shown, said = False, False, False, False
        try:
            for attempt in range(TRIES):
                try:
                    with closing(self._stream(job, talk, stop)) as events:
                        for event in events:
                            refusal = event.error if isinstance(event, Failed) else None
                            if isinstance(refusal, ConversationGone) and job.request is None:
                                break
                            if isinstance(event, KeptConversation):
                                assert conversation is not None
                                talk.past += () if job.asked is None else (job.asked,)
                                talk.kv_bytes, kept = event.kv_bytes, True
                                conversation.columns = [talk]  # type: ignore[list-item]
                                conversation.turns += 1
                            elif not isinstance(event, Started):
                                said = said or isinstance(event, Token | Finished)
                                shown = shown or isinstance(event, Prefilled)
                                yield event
                            elif not begun:
                                begun = True
                                yield None
                        else:
                            return
                except LOST as error:
                    if stop.is_set():
                        return
                    log.warning("a replica is lost (%s)", type(error).__name__)
                    if said:
                        yield Failed(AnswerBroken())
                        return
                    if shown:
                        shown = False
                        yield Restarted(ELSEWHERE)
                    time.sleep(PAUSE_S * attempt)
                if job.asked is not None:
                    job = replace(job, request=talk.request, past=talk.past)
            yield Failed(Restarting())
        finally:
            if begun and not kept and conversation is not None:
                conversation.close()

    def _stream(
        self, job: Job, talk: RemoteConversation, stop: StopFlag
    ) -> Generator[Any, None, None]:
        """A replica's events of a job; of the conversation's own replica, while it lives.

        Raises:
            RayError, RayServeException: where the replica is lost.
        """
        response = self._handle.options(stream=True, session_id=talk.home).run.remote(job)
        remote, is_over = stop if isinstance(stop, RemoteSwitch) else RemoteSwitch(), False
        remote.tell = response.cancel
        try:
            for event in response:
                if isinstance(event, Started):
                    talk.home = event.home
                    replica = self._handle.options(session_id=talk.home)
                    remote.tell = partial(replica.stop.remote, job.key)
                    if remote.is_set():
                        remote.tell()
                yield event
            is_over = True
        finally:
            remote.tell = None
            if not is_over:
                response.cancel()

    def flag(self) -> RemoteSwitch:
        """A stop flag for one of this engine's answers."""
        return RemoteSwitch()

    def health(self) -> Health:
        """As a replica reported at its start; Ray Serve replaces those that fail later."""
        return self._health

    def warm_up(self) -> None:
        """Nothing: a replica does so before it is given work."""
