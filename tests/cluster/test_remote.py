"""The front's engine with replicas in this process, which are lost where a test says so."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayActorError

from rotatek import BASELINE, Engine, Settings, errors
from rotatek.cluster import remote_engine
from rotatek.cluster.remote_engine import RemoteEngine
from rotatek.cluster.replica import Job, Replica
from rotatek.engine.conversation import Conversation
from rotatek.engine.events import Event, Failed, Finished, Prefilled, Restarted, Token
from rotatek.inputs.messages import Message
from rotatek.inputs.request import Request, make_chat, make_request
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.models import VisionLanguageModel
from rotatek.server.worker_pool import WorkerPool
from rotatek.service.session_store import SessionStore
from tests.fixtures import Picture, present

COLUMNS = {"full": BASELINE, "RotateK": Settings.of(keep_channels=0.25)}
ONE = {"answer": Settings.of(tokens="fastv", keep_tokens=0.5)}


class Replicas:
    """A deployment of two replicas, and its handle.

    dies_after: events of the next jobs after which their replica is lost, one for each job.
    """

    def __init__(self, qwen: VisionLanguageModel) -> None:
        self.alive = [self._made(qwen, home) for home in ("a", "b")]
        self.vlm = qwen
        self.dies_after: list[int] = []
        self.sent: list[tuple[str, Job]] = []

    def _made(self, qwen: VisionLanguageModel, home: str) -> Replica:
        replica = Replica.__new__(Replica)  # its constructor asks Serve for a name
        replica.home, replica.engine = home, Engine(qwen)
        replica.workers, replica.waiting = WorkerPool(4, 4), SessionStore[Conversation]()
        replica._stops = {}
        return replica

    def find(self, home: str) -> Replica:
        return next((one for one in self.alive if one.home == home), self.alive[0])

    def options(self, session_id: str = "", stream: bool = False) -> "Handle":
        return Handle(self, session_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(Handle(self, ""), name)


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """A coroutine's result, from a thread of its own: browser tests leave a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class Handle:
    """`handle.method.remote(...)` and its response, as of a deployment."""

    def __init__(self, replicas: Replicas, home: str) -> None:
        self.replicas, self.home = replicas, home

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=partial(self._remote, name))

    def _remote(self, name: str, *given: Any) -> Any:
        replica = self.replicas.find(self.home)
        if name == "run":
            return Stream(self.replicas, replica, given[0])
        value = finished(getattr(replica, name)(*given))
        return SimpleNamespace(result=lambda: value)


class Stream:
    """A replica's events, until it is lost."""

    def __init__(self, replicas: Replicas, replica: Replica, job: Job) -> None:
        self.replicas, self.replica, self.job = replicas, replica, job
        self.stop = threading.Event()
        replicas.sent.append((replica.home, job))

    def cancel(self) -> None:
        self.stop.set()

    def __iter__(self) -> Iterator[Any]:
        left = self.replicas.dies_after.pop(0) if self.replicas.dies_after else None
        self.replica._stops[self.job.key] = self.stop
        for count, event in enumerate(self.replica._events(self.job, self.stop)):
            if count == left:
                self.replicas.alive.remove(self.replica)
                self.replicas.alive.append(self.replicas._made(self.replicas.vlm, "c"))
                raise RayActorError()
            yield event


@pytest.fixture
def replicas(qwen: VisionLanguageModel) -> Replicas:
    return Replicas(qwen)


@pytest.fixture
def remote(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> RemoteEngine:
    monkeypatch.setattr(remote_engine, "PAUSE_S", 0.0)
    return RemoteEngine(replicas)


def told(events: Iterator[Event], broken: bool = False) -> dict[str, list[int]]:
    """Tokens by column, each exactly once and in order; broken: it ends with an error."""
    found: dict[str, list[int]] = {}
    ends, failed = [], []
    for event in events:
        if isinstance(event, Token):
            column = found.setdefault(event.column, [])
            assert event.index == len(column)
            column.append(event.token_id)
        elif isinstance(event, Finished):
            ends.append(event.column)
            assert event.new_tokens == len(found[event.column])
        elif isinstance(event, Failed):
            failed.append(type(event.error))
        assert not (isinstance(event, Restarted) and found), "what was said is not taken back"
    assert failed == [errors.AnswerBroken] if broken else sorted(ends) == sorted(found)
    return found


def first_request(picture: Picture | None, sampling: Sampling = GREEDY) -> Request:
    if picture is None:
        return make_chat([], [Message("user", ("What?",))], 8, sampling=sampling)
    return make_request(picture(224, 224), "What?", 8, sampling=sampling)


def conversation(engine: Engine, request: Request, columns: dict[str, Settings]) -> list[Any]:
    """Three turns."""
    talk = Conversation()
    said = [told(engine.compare(request, columns, conversation=talk))]
    for question in ("And?", "Who?"):
        said.append(told(engine.follow(talk, question, 8, engine.flag(), request.sampling)))
    talk.close()
    return said


DRAWN = Sampling(temperature=1.0, top_p=0.95, seed=12)
KINDS: dict[str, tuple[dict[str, Settings], Sampling, bool]] = {
    "one": (ONE, GREEDY, True),
    "two": (COLUMNS, GREEDY, True),
    "drawn": (ONE, DRAWN, True),
    "texts": (ONE, GREEDY, False),
}


@pytest.mark.parametrize(
    ("kind", "dies_after"),
    [("one", []), ("one", [0]), ("two", [1, 2]), ("drawn", [99, 1]), ("texts", [1]),
     ("one", [99, 99, 1])],
    ids=str,
)  # fmt: skip
def test_what_has_streamed_nothing_is_answered_by_another_replica(
    qwen: VisionLanguageModel, replicas: Replicas, remote: RemoteEngine, picture: Picture,
    kind: str, dies_after: list[int],
) -> None:  # fmt: skip
    """In the first answer, in follow-ups, and twice in one: the conversation of one engine."""
    columns, sampling, shown = KINDS[kind]
    request = first_request(picture if shown else None, sampling)
    alone = conversation(Engine(qwen), request, columns)
    replicas.dies_after = list(dies_after)
    assert conversation(remote, request, columns) == alone
    assert ({home for home, _ in replicas.sent} == {"a"}) == (not dies_after)
    assert all(len(one.waiting) == 0 for one in replicas.alive), "closed with the conversation"


@pytest.mark.parametrize("turn", [0, 1])
def test_what_has_streamed_ends_with_an_error_and_nothing_is_doubled(
    qwen: VisionLanguageModel, replicas: Replicas, remote: RemoteEngine, picture: Picture, turn: int
) -> None:
    request = first_request(picture)
    alone, talk = conversation(Engine(qwen), request, ONE), Conversation()
    replicas.dies_after = [99] * turn + [5]
    said = [told(remote.compare(request, ONE, conversation=talk), broken=turn == 0)]
    if turn:
        said.append(told(remote.follow(talk, "And?", 8), broken=True))
    whole, part = alone[turn]["answer"], said[turn]["answer"]
    assert part and len(part) < len(whole) and whole[: len(part)] == part
    assert not talk.is_open and len(replicas.sent) == turn + 1
    assert told(remote.compare(request, ONE)) == alone[0], "asked again"


def test_caches_that_a_replica_has_dropped_are_made_again(
    qwen: VisionLanguageModel, replicas: Replicas, remote: RemoteEngine, picture: Picture
) -> None:
    request, talk = first_request(picture), Conversation()
    alone = conversation(Engine(qwen), request, COLUMNS)
    said = [told(remote.compare(request, COLUMNS, conversation=talk))]
    assert talk.is_open and talk.cache_bytes > 0
    assert remote.vlm.look(request).runs == qwen.look(request).runs, "what the page counts"
    for question in ("And?", "Who?"):
        replicas.alive[0].waiting.clear()
        said.append(told(remote.follow(talk, question, 8)))
    assert said == alone and talk.turns == 3
    talk.close()


def test_a_seed_is_drawn_once_for_all_replicas(
    replicas: Replicas, remote: RemoteEngine, picture: Picture
) -> None:
    replicas.dies_after = [0]
    told(remote.compare(first_request(picture, Sampling(temperature=1.0)), ONE))
    seeds = {present(job.request).sampling.seed for _, job in replicas.sent}
    assert len(replicas.sent) == 2 and len(seeds) == 1 and None not in seeds


def test_a_stop_or_a_listener_that_leaves_frees_the_replica(
    replicas: Replicas, remote: RemoteEngine, picture: Picture
) -> None:
    stop, talk = remote.flag(), Conversation()
    got = []
    request = make_request(picture(224, 224), "What?", 500)
    for event in remote.compare(request, ONE, stop, conversation=talk):
        got.append(event)
        if isinstance(event, Token) and event.index == 2:
            stop.set()
    assert isinstance(got[-1], Finished) and got[-1].metrics["stopped"]
    assert got[-1].new_tokens < 10 and not talk.is_open
    events = remote.compare(request, ONE, remote.flag())
    assert isinstance(next(events), Prefilled)
    events.close()  # type: ignore[attr-defined]
    assert replicas.alive[0].engine.state().live_bytes == 0


def test_refusals_are_those_of_an_engine(
    replicas: Replicas, remote: RemoteEngine, picture: Picture
) -> None:
    with pytest.raises(errors.ConversationGone):
        remote.follow(Conversation(), "And?")
    talk = Conversation()
    told(remote.compare(make_request(picture(), "What?", 4), ONE, conversation=talk))
    with pytest.raises(errors.QuestionEmpty):
        remote.follow(talk, " ")
    assert talk.is_open
    replicas.dies_after = [0] * 9
    failed = list(remote.compare(make_request(picture(), "What?", 4), ONE))
    assert [event.message for event in failed if isinstance(event, Failed)] == [
        errors.Restarting.sentence
    ]
