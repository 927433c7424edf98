"""The door on a port of this machine, with a tiny random model that can be made slow."""

import base64
import io
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest
import uvicorn
from PIL import Image

from rotatek.engine.engine import Engine
from rotatek.models import VisionLanguageModel
from rotatek.server.chat_app import ChatApp
from rotatek.service.model_list import Model
from rotatek.service.service import Service
from tests.served import Slow
from tests.tiny import tiny_qwen


def uri(image: Image.Image, format: str = "PNG", **options: Any) -> str:
    """A picture as the API takes it."""
    buffer = io.BytesIO()
    image.save(buffer, format=format, **options)
    return f"data:image/{format.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def text(words: str, **more: Any) -> dict[str, Any]:
    """A part of a message."""
    return {"type": "text", "text": words} | more


def image(shown: Image.Image | str, **more: Any) -> dict[str, Any]:
    """A picture among the parts of a message, or what claims to be its address."""
    address = shown if isinstance(shown, str) else uri(shown)
    return {"type": "image_url", "image_url": {"url": address} | more}


def user(*parts: dict[str, Any] | str) -> dict[str, Any]:
    """A visitor's message; of one text, as that text."""
    words = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else list(parts)
    return {"role": "user", "content": words}


def said(words: str) -> dict[str, Any]:
    """A message of the model's."""
    return {"role": "assistant", "content": words}


def asked(shown: Image.Image | str, question: str = "What is it?") -> list[dict[str, Any]]:
    """The messages of a first question."""
    return [user(text(question), image(shown))]


def formed(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A `response_format` with a schema."""
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema} | more}


def ask(client: openai.OpenAI, messages: list[dict[str, Any]], **given: Any) -> Any:
    """What the official client gets, of the tiny model unless another is named."""
    create: Any = client.chat.completions.create
    return create(**{"model": "tiny", "messages": messages, "max_tokens": 8} | given)


def refused(client: openai.OpenAI, messages: list[dict[str, Any]], **given: Any) -> openai.APIError:
    """The refusal that it gets instead."""
    with pytest.raises(openai.APIStatusError) as found:
        ask(client, messages, **given)
    return found.value


def texts(reply: Any) -> list[str]:
    """The texts of an answer's choices."""
    return [choice.message.content for choice in reply.choices]


@dataclass
class Streamed:
    """What the chunks of one choice add up to."""

    text: str = ""
    logs: list[Any] = field(default_factory=list)
    reason: str = ""


def streamed(chunks: Iterable[Any]) -> list[Streamed]:
    """The choices of a stream, by their index."""
    found: dict[int, Streamed] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            one = found.setdefault(choice.index, Streamed())
            one.text += choice.delta.content or ""
            one.logs += choice.logprobs.content if choice.logprobs is not None else []
            one.reason = choice.finish_reason or one.reason
    return [found[index] for index in sorted(found)]


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


def door_of(engine: Engine, name: str = "tiny", **options: Any) -> ChatApp:
    """A door to one engine, loaded."""
    service = Service([Model(name, name.title(), name)], lambda source: engine)
    service.engine(name)
    return ChatApp(service, **options)


def tiny_door(vlm: VisionLanguageModel, pause: float = 0.0, **options: Any) -> ChatApp:
    """A door to a tiny model."""
    engine = Slow(vlm)
    door = door_of(engine, **options)
    engine.pause = pause
    return door


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
