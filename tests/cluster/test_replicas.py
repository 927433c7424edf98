"""Two replicas on two nodes, one of which is killed in mid-answer: nothing is lost or doubled."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client, handle_file

from rotatek.engine.conversation import Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Finished, Token
from rotatek.inputs.request import make_request, open_image
from rotatek.methods.settings import Settings
from tests.cluster.conftest import Nodes
from tests.fixtures import Picture, Together, free_port
from tests.server.conftest import asked, client_of

pytestmark = [pytest.mark.nodes, pytest.mark.unversioned, pytest.mark.timeout(900)]

STEADY = (1, 4, 5, 6)  # seeds of pictures, one a visitor
LENGTH = 240
SETTINGS = {"keep_channels": 0.25, "tokens": "fastv", "keep_tokens": 0.6}


@pytest.fixture(scope="module")
def address(nodes: Nodes, folder: Path) -> Iterator[str]:
    """The page and the API in front of two replicas."""
    from ray import serve

    from rotatek.cluster.gateway import Deployment, build

    port = free_port()
    serve.start("HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    plan = Deployment(models=(str(folder),), least=2, most=2, answers=8, device="cpu")
    serve.run(build(plan), name="rotatek")
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()


class Visitor:
    """One conversation through the official client."""

    def __init__(self, address: str, image: Any) -> None:
        self.create: Any = client_of(address).chat.completions.create
        self.messages = asked(image, "What is it?")
        self.said: list[str] = []
        self.count = 0
        self.begun = self.over = 0  # turns of which text has come; that have ended
        self.gap = 0.0

    def ask(self, question: str | None = None) -> None:
        """The next turn, streamed."""
        if question is not None:
            self.messages.append({"role": "assistant", "content": self.said[-1]})
            self.messages.append({"role": "user", "content": question})
        self.said.append("")
        latest = time.monotonic()
        for chunk in self.create(
            model="tiny", messages=self.messages, max_tokens=LENGTH, stream=True,
            stream_options={"include_usage": True}, extra_body={"rotatek": SETTINGS},
        ):  # fmt: skip
            self.gap, latest = max(self.gap, time.monotonic() - latest), time.monotonic()
            if chunk.choices:
                self.said[-1] += chunk.choices[0].delta.content or ""
                self.begun = len(self.said) if self.said[-1] else self.begun
            else:
                self.count = chunk.usage.completion_tokens
        self.over = len(self.said)


def alone(engine: Engine, image: Any, questions: list[str]) -> list[str]:
    """The conversation as one engine has it."""
    talk, said = Conversation(), []
    request = make_request(open_image(image), "What is it?", LENGTH)
    events: Any = engine.compare(
        request, {"answer": Settings.of(**SETTINGS)}, trace=False, conversation=talk
    )
    for question in [*questions, ""]:
        told = list(events)
        assert isinstance(told[-1], Finished)
        said.append("".join(e.text for e in told if isinstance(e, Token)).lstrip())
        events = engine.follow(talk, question, LENGTH) if question else ()
    talk.close()
    return said


def test_the_page_answers_by_both_replicas(
    address: str, picture: Picture, tmp_path: Path, together: Together
) -> None:
    """Four programs at the page's own API at once: each gets its own answer."""
    page = Client(address, verbose=False)
    found: dict[int, list[Any]] = {}

    wanted = page.view_api(return_format="dict", print_info=False)["named_endpoints"]["/ask"]
    given = {
        one["parameter_name"]: None
        for one in wanted["parameters"]
        if not one["parameter_has_default"]
    }

    def ask(seed: int) -> list[Any]:
        path = tmp_path / f"{seed}.png"
        picture(224, 168, seed=seed).save(path)
        own = {"image": handle_file(path), "question": "What?", "max_new_tokens": 20}
        return list(page.submit(**(given | own), api_name="/ask"))

    together([partial(lambda n: found.update({n: ask(n)}), seed) for seed in range(4)])
    alone = [ask(seed)[-1] for seed in range(4)]
    for seed, said in found.items():
        assert said[-1]["answer"] == alone[seed]["answer"] and said[-1]["new_tokens"] <= 20
        assert said[-1]["kv_bytes"] == alone[seed]["kv_bytes"]


def test_all_ports_are_on_loopback(nodes: Nodes, address: str) -> None:
    """Those of Ray, of Serve and of the replicas: other machines cannot reach them."""
    import psutil

    family = psutil.Process().children(recursive=True)
    found = [
        (process.name(), place.laddr.ip)
        for process in family
        for place in process.net_connections("tcp")
        if place.status == psutil.CONN_LISTEN
    ]
    assert len(found) > 10, "they listen somewhere"
    loopback = ("127.", "::1", "::ffff:127.")
    assert not [one for one in found if not one[1].startswith(loopback)]


def test_a_node_killed_in_mid_stream(
    nodes: Nodes,
    address: str,
    folder: Path,
    picture: Picture,
    together: Together,
    record_property: Callable[[str, object], None],
) -> None:
    # Their answers stay the same when the pictures' features change by what rounding may do.
    pictures = [picture(224, 168, seed=seed) for seed in STEADY]
    engine, questions = Engine(str(folder), "cpu"), ["And then?", "And last?"]
    expected = [alone(engine, image, questions) for image in pictures]
    visitors = [Visitor(address, image) for image in pictures]
    idle = [Visitor(address, picture(224, 168, seed=90 + n)) for n in range(2)]
    together([visitor.ask for visitor in [*visitors, *idle]])
    assert [visitor.said for visitor in visitors] == [said[:1] for said in expected]

    def kill() -> None:
        while not all(visitor.begun == 2 for visitor in visitors):
            time.sleep(0.01)
        nodes.kill()
        # Caches of answers that were over on that node are made again from text, not exactly.
        cut.extend(number for number, visitor in enumerate(visitors) if visitor.over < 2)
        nodes.bury()

    cut: list[int] = []
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    together([partial(visitor.ask, questions[0]) for visitor in visitors])
    killer.join()
    assert [visitor.said for visitor in visitors] == [said[:2] for said in expected]
    assert all(visitor.count == LENGTH for visitor in visitors)
    gap = max(visitor.gap for visitor in visitors)
    record_property("longest silence of a stream, s", round(gap, 2))

    together([partial(visitor.ask, questions[1]) for visitor in visitors])
    assert cut and all(visitors[n].said == expected[n] for n in cut), "follow-ups go on"
    assert all(len(visitor.said) == 3 and visitor.count == LENGTH for visitor in visitors)
    together([partial(visitor.ask, questions[0]) for visitor in idle])
    assert all(len(visitor.said) == 2 and visitor.count == LENGTH for visitor in idle)

    nodes.add()
    started = time.monotonic()
    while replicas() < 2:
        assert time.monotonic() - started < 120
        time.sleep(0.2)
    back = time.monotonic() - started
    record_property("until a new node's replica answers, s", round(back, 2))
    print(f"\nlongest silence {gap:.1f} s, a new node answers after {back:.1f} s")


def replicas() -> int:
    """Replicas that answer."""
    from ray import serve

    found = serve.status().applications["rotatek"].deployments["model-0"].replica_states
    return found.get("RUNNING", 0)
