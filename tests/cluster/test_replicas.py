"""Two replicas on two nodes, one of which is killed in mid-answer: nothing is lost or doubled."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from rotatek import errors
from tests.cluster.conftest import Nodes
from tests.fixtures import Picture, at_once, free_port
from tests.server.conftest import asked, client_of

pytestmark = [pytest.mark.nodes, pytest.mark.unversioned, pytest.mark.timeout(900)]

STEADY = (1, 4, 5, 6)  # seeds of pictures whose answers rounding does not change
LENGTH = 160
SETTINGS = {"keep_channels": 0.25, "tokens": "fastv", "keep_tokens": 0.6}


@pytest.fixture(scope="module")
def address(nodes: Nodes, checkpoint: Path) -> Iterator[str]:
    """The page and the API in front of two replicas."""
    from ray import serve

    from rotatek.cluster.gateway import Deployment, build

    port = free_port()
    serve.start("HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    plan = Deployment(models=(str(checkpoint),), least=2, most=2, answers=8, device="cpu")
    serve.run(build(plan), name="rotatek")
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()


class Visitor:
    """One conversation through the official client."""

    def __init__(self, address: str, image: Any) -> None:
        self.create: Any = client_of(address).chat.completions.create
        self.messages = asked(image, "What is it?")
        self.text, self.count, self.error = "", 0, ""

    def ask(self) -> None:
        """The chat so far, streamed."""
        self.text, self.count, self.error = "", 0, ""
        try:
            for chunk in self.create(
                model="tiny", messages=self.messages, max_tokens=LENGTH, stream=True,
                stream_options={"include_usage": True}, extra_body={"rotatek": SETTINGS},
            ):  # fmt: skip
                for choice in chunk.choices:
                    self.text += choice.delta.content or ""
                if not chunk.choices:
                    self.count = chunk.usage.completion_tokens
        except openai.APIError as error:
            self.error = error.message


def test_all_ports_are_on_loopback(nodes: Nodes, address: str) -> None:
    """Those of Ray, of Serve and of the replicas: other machines cannot reach them."""
    import psutil

    found = [
        (process.name(), place.laddr.ip)
        for process in psutil.Process().children(recursive=True)
        for place in process.net_connections("tcp")
        if place.status == psutil.CONN_LISTEN
    ]
    assert len(found) > 10, "they listen somewhere"
    assert not [one for one in found if not one[1].startswith(("127.", "::1", "::ffff:127."))]


def test_a_node_killed_in_mid_stream(nodes: Nodes, address: str, picture: Picture) -> None:
    """Every answer is whole, or ends with the sentence that says to ask again; then all are."""
    visitors = [Visitor(address, picture(224, 168, seed=seed)) for seed in STEADY]
    at_once([visitor.ask for visitor in visitors])
    expected = [visitor.text for visitor in visitors]
    assert all(expected) and all(visitor.count == LENGTH for visitor in visitors)

    def kill() -> None:
        while not all(visitor.text for visitor in visitors):
            time.sleep(0.01)
        nodes.kill()
        nodes.bury()

    for visitor in visitors:
        visitor.text = ""
    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    at_once([visitor.ask for visitor in visitors])
    killer.join()
    for visitor, whole in zip(visitors, expected, strict=True):
        if visitor.error:
            assert visitor.error == errors.AnswerBroken.sentence
            assert whole.startswith(visitor.text)
        else:
            assert visitor.text == whole and visitor.count == LENGTH
    broken = [visitor for visitor in visitors if visitor.error]
    assert 0 < len(broken) < len(visitors), "one of two replicas was lost in mid-answer"
    at_once([visitor.ask for visitor in broken])
    assert [visitor.text for visitor in visitors] == expected
