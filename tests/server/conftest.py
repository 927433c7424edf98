"""The door on a port of this machine, with a tiny random model that can be made slow."""

import base64
import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
import uvicorn
from PIL import Image

from rotatek.engine.engine import Engine
from rotatek.engine.events import Event
from rotatek.models import VisionLanguageModel
from rotatek.server.chat_app import ChatApp
from rotatek.service.model_list import Model
from rotatek.service.service import Service
from tests.tiny import tiny_qwen

TINY = Model("tiny", "Tiny", "nowhere")
Served = Callable[..., Any]


class Slow(Engine):
    """An engine whose every event takes `pause` seconds, and that remembers its own caches."""

    pause = 0.0

    def compare(self, *given: Any, **options: Any) -> Iterator[Event]:
        for event in super().compare(*given, **options):
            time.sleep(self.pause)
            yield event


def uri(image: Image.Image, format: str = "PNG", **options: Any) -> str:
    """A picture as the API takes it."""
    buffer = io.BytesIO()
    image.save(buffer, format=format, **options)
    return f"data:image/{format.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def asked(image: Image.Image | str, question: str = "What is it?") -> list[dict[str, Any]]:
    """The messages of a first question."""
    address = image if isinstance(image, str) else uri(image)
    parts = [{"type": "text", "text": question}]
    return [
        {"role": "user", "content": [*parts, {"type": "image_url", "image_url": {"url": address}}]}
    ]


@contextmanager
def served(door: ChatApp) -> Iterator[str]:
    """The address of a door that is open meanwhile."""
    config = uvicorn.Config(door.app(), port=0, log_config=None, access_log=False, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        door.close()
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def vlm() -> VisionLanguageModel:
    return tiny_qwen()


def tiny_door(vlm: VisionLanguageModel, pause: float = 0.0, **options: Any) -> ChatApp:
    """A door to a tiny model, loaded."""
    engine = Slow(vlm)
    service = Service([TINY], lambda source: engine)
    service.engine("tiny")
    engine.pause = pause
    return ChatApp(service, **options)


@pytest.fixture(scope="package")
def door(vlm: VisionLanguageModel) -> ChatApp:
    return tiny_door(vlm)


@pytest.fixture(scope="package")
def address(door: ChatApp) -> Iterator[str]:
    with served(door) as address:
        yield address


def client_of(address: str, key: str = "nobody") -> openai.OpenAI:
    """The official client, which asks once."""
    return openai.OpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0, timeout=60)


@pytest.fixture(scope="package")
def client(address: str) -> Iterator[openai.OpenAI]:
    with client_of(address) as client:
        yield client
