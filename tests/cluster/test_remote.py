"""The front's engine with replicas in this process, which are lost where a test says so."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.exceptions import RayActorError

from rotatek import errors
from rotatek.cluster.messages import ConversationLost, Job, Started
from rotatek.cluster.remote_engine import DeliveredEvents, RemoteEngine
from rotatek.cluster.replica import Replica
from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.engine_status import Health
from rotatek.engine.events import Event, Failed, Finished, Prefilled, Restarted, Token
from rotatek.inputs.chat import make_chat
from rotatek.inputs.messages import Message
from rotatek.inputs.request import make_request
from rotatek.inputs.sampling import Sampling
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from rotatek.server.worker_pool import WorkerPool
from rotatek.service.conversation_store import ConversationStore
from tests.fixtures import Picture, present
from tests.tiny import tiny_qwen

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {"full": BASELINE, "RotateK": Settings.of(keep_channels=0.25)}
ONE = {"answer": Settings.of(tokens="fastv", keep_tokens=0.5)}


@pytest.fixture(scope="module")
def vlm() -> VisionLanguageModel:
    return tiny_qwen()


class Replicas:
    """A deployment of two replicas, and its handle.

    dies_after: events of the next jobs after which their replica is lost, one for each job.
    """

    def __init__(self, vlm: VisionLanguageModel) -> None:
        self.alive = [self._made(vlm, home) for home in ("a", "b")]
        self.vlm = vlm
        self.dies_after: list[int] = []
        self.sent: list[tuple[str, Job]] = []

    def _made(self, vlm: VisionLanguageModel, home: str) -> Replica:
        replica = Replica.__new__(Replica)  # its constructor asks Serve for a name
        replica.home, replica.engine = home, Engine(vlm)
        replica.workers, replica.waiting = WorkerPool(4, 4), ConversationStore()
        replica._stops = {}
        return replica

    def find(self, home: str) -> Replica:
        return next((one for one in self.alive if one.home == home), self.alive[0])

    def options(self, session_id: str = "", stream: bool = False) -> "Handle":
        return Handle(self, session_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(Handle(self, ""), name)


class Handle:
    """Calls by name, as of a deployment."""

    def __init__(self, replicas: Replicas, home: str) -> None:
        self.replicas, self.home = replicas, home

    def __getattr__(self, name: str) -> "Call":
        return Call(self.replicas, self.home, name)


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """A coroutine's result, from a thread of its own: browser tests leave a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class Call:
    """`handle.method.remote(...)` and its response in one."""

    def __init__(self, replicas: Replicas, home: str, name: str) -> None:
        self.replicas, self.home, self.name = replicas, home, name

    def remote(self, *given: Any) -> Any:
        replica = self.replicas.find(self.home)
        if self.name == "run":
            return Stream(self.replicas, replica, given[0])
        value = finished(getattr(replica, self.name)(*given))
        return type("Response", (), {"result": lambda self: value})()


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
def replicas(vlm: VisionLanguageModel) -> Replicas:
    return Replicas(vlm)


@pytest.fixture
def remote(replicas: Replicas) -> RemoteEngine:
    return RemoteEngine(replicas)


def told(events: Iterator[Event]) -> dict[str, list[int]]:
    """Tokens by column, each exactly once and in order."""
    found: dict[str, list[int]] = {}
    ends = []
    for event in events:
        if isinstance(event, Token):
            column = found.setdefault(event.column, [])
            assert event.index == len(column)
            column.append(event.token_id)
        elif isinstance(event, Finished):
            ends.append(event.column)
            assert event.new_tokens == len(found[event.column])
        assert not isinstance(event, Failed | Restarted), event
    assert sorted(ends) == sorted(found)
    return found


def conversation(engine: Engine, picture: Any, columns: dict[str, Settings]) -> list[Any]:
    """Three turns."""
    talk = Conversation()
    first = told(engine.compare(make_request(picture, "What?", 8), columns, conversation=talk))
    rest = [told(engine.follow(talk, question, 8, engine.flag())) for question in ("And?", "Who?")]
    talk.close()
    return [first, *rest]


@pytest.mark.parametrize("columns", [ONE, COLUMNS], ids=["one", "two"])
@pytest.mark.parametrize("dies_after", [[], [0], [5], [9, 4], [99, 6], [99, 99, 3], [99, 7, 99, 4]])
def test_every_token_once_whoever_is_lost(
    vlm: VisionLanguageModel,
    replicas: Replicas,
    remote: RemoteEngine,
    picture: Picture,
    columns: dict[str, Settings],
    dies_after: list[int],
) -> None:
    """In the first answer, in follow-ups, and twice in one: the conversation of one engine."""
    alone = conversation(Engine(vlm), picture(224, 224), columns)
    replicas.dies_after = list(dies_after)
    assert conversation(remote, picture(224, 224), columns) == alone
    homes = {home for home, _ in replicas.sent}
    assert (homes == {"a"}) == (not dies_after)
    assert all(len(one.waiting) == 0 for one in replicas.alive), "closed with the conversation"


DRAWN = Sampling(temperature=1.0, top_p=0.95, seed=12)


def drawn_conversation(engine: Engine, picture: Any, columns: dict[str, Settings]) -> list[Any]:
    """Two turns whose tokens are drawn."""
    talk = Conversation()
    request = make_request(picture, "What?", 8, sampling=DRAWN)
    first = told(engine.compare(request, columns, conversation=talk))
    later = told(engine.follow(talk, "And?", 8, engine.flag(), sampling=DRAWN))
    talk.close()
    return [first, later]


@pytest.mark.parametrize("dies_after", [[], [5], [9, 4], [99, 6], [99, 7]])
def test_a_drawn_answer_goes_on_where_its_replica_was_lost(
    vlm: VisionLanguageModel, replicas: Replicas, remote: RemoteEngine, picture: Picture,
    dies_after: list[int],
) -> None:  # fmt: skip
    """With its seed every replica draws the same tokens: no answer begins anew."""
    alone = drawn_conversation(Engine(vlm), picture(224, 224), ONE)
    replicas.dies_after = list(dies_after)
    assert drawn_conversation(remote, picture(224, 224), ONE) == alone


def test_a_seed_is_drawn_once_for_all_replicas(
    replicas: Replicas, remote: RemoteEngine, picture: Picture
) -> None:
    """A call without a seed: half of the answer was sent when its replica was lost."""
    replicas.dies_after = [6]
    request = make_request(picture(224, 224), "What?", 10, sampling=Sampling(temperature=1.0))
    draws = {f"draw {number}": ONE["answer"] for number in range(2)}
    assert len(told(remote.compare(request, draws))) == 2
    seeds = {present(job.request).sampling.seed for _, job in replicas.sent}
    assert len(replicas.sent) == 2 and len(seeds) == 1 and None not in seeds


@pytest.mark.parametrize("dies_after", [[], [3], [99, 4]])
def test_texts_alone_are_answered_as_by_one_engine(
    vlm: VisionLanguageModel, replicas: Replicas, remote: RemoteEngine, dies_after: list[int]
) -> None:
    request = make_chat([], [Message("user", ("Hello?",))], 8)

    def turns(engine: Engine) -> list[Any]:
        talk = Conversation()
        first = told(engine.compare(request, ONE, conversation=talk))
        second = told(engine.follow(talk, "And?", 8, engine.flag()))
        talk.close()
        return [first, second]

    alone = turns(Engine(vlm))
    replicas.dies_after = list(dies_after)
    assert turns(remote) == alone


def test_an_idle_conversation_is_read_from_its_text(
    replicas: Replicas, remote: RemoteEngine, picture: Picture
) -> None:
    talk = Conversation()
    request = make_request(picture(224, 224), "What?", 6)
    told(remote.compare(request, ONE, conversation=talk))
    assert talk.is_open and talk.cache_bytes > 0
    replicas.alive[0].waiting.clear()  # as when it was replaced
    assert told(remote.follow(talk, "And?", 6))
    light, heavy = (job for _, job in replicas.sent[1:])
    assert light.request is None and heavy.request is not None and not heavy.is_exact
    assert told(remote.follow(talk, "Who?", 6)), "from the cache that was made"
    assert len(replicas.sent) == 4 and talk.turns == 3
    replicas.alive[0].waiting.clear()
    assert told(remote.follow(talk, "When?", 6))
    made = replicas.sent[-1][1]
    assert len(present(made.request).history) == 1 and len(made.past) == 2
    talk.close()


def test_a_stop_reaches_the_replica(
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
    assert not list(remote.compare(request, ONE, stop)) or stop.is_set()


def test_a_listener_that_leaves_frees_the_replica(
    replicas: Replicas, remote: RemoteEngine, picture: Picture
) -> None:
    events = remote.compare(make_request(picture(224, 224), "What?", 500), ONE, remote.flag())
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
    for _ in range(7):
        told(remote.follow(talk, "And?", 4))
    with pytest.raises(errors.ConversationOver):
        remote.follow(talk, "And?", 4)
    assert talk.is_open
    replicas.dies_after = [0] * 9
    failed = list(remote.compare(make_request(picture(), "What?", 4), ONE))
    assert [event.message for event in failed if isinstance(event, Failed)] == [
        errors.Restarting.sentence
    ]


def test_what_contradicts_begins_again() -> None:
    def token(index: int, number: int) -> Token:
        return Token("answer", index, number, str(number), 1.0, False)

    told = DeliveredEvents()
    first = [token(0, 5), token(1, 6)]
    assert [told.take(event) for event in first] == [[event] for event in first]
    told.again()
    assert told.take(token(0, 5)) == []
    again = told.take(token(1, 7))
    assert isinstance(again[0], Restarted) and again[1:] == [token(0, 5), token(1, 7)]
    assert told.take(token(2, 8)) == [token(2, 8)]


def test_the_committed_configuration_is_one() -> None:
    from ray.serve.schema import ServeDeploySchema

    from rotatek.cluster.gateway import application

    given = yaml.safe_load((ROOT / "deploy" / "serve.yaml").read_text())
    config = ServeDeploySchema(**given)
    assert config.http_options.host == "127.0.0.1" and config.proxy_location == "HeadOnly"
    app = config.applications[0]
    assert app.import_path == f"{application.__module__}:{application.__name__}"
    assert application(app.args) is not None


def test_jobs_travel(remote: RemoteEngine) -> None:
    assert (
        isinstance(remote.health(), Health)
        and Started("a") == Started("a")
        and ConversationLost() == ConversationLost()
    )
