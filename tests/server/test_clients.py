"""Programs that people have: each asks a question about a picture, at once and as a stream."""

import base64
import gc
import io
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from langchain_core import messages
from langchain_openai import ChatOpenAI
from PIL import Image

from tests.fixtures import Picture
from tests.server.conftest import ask, image, text, texts, user

# Warnings of other people's packages are theirs.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
QUESTION = "What is it?"


@pytest.fixture(autouse=True)
def left_behind() -> Iterator[None]:
    """Connections that a package leaves open are closed here, without a warning."""
    yield
    gc.collect()


@pytest.fixture
def shown(picture: Picture) -> Image.Image:
    return picture(80, 60, seed=9)


def content(shown: Image.Image, **more: Any) -> list[Any]:
    return [text(QUESTION), image(shown, **more)]


@pytest.fixture
def expected(client: Any, shown: Image.Image) -> str:
    """What the official client gets."""
    (told,) = texts(ask(client, [user(*content(shown))], max_tokens=9, temperature=0))
    assert told
    return told


def test_langchain(address: str, shown: Image.Image, expected: str) -> None:
    model = ChatOpenAI(
        model="tiny", base_url=f"{address}/v1", api_key="none", temperature=0, max_tokens=9,
        max_retries=0,
    )  # fmt: skip
    asked = [
        messages.SystemMessage("Be brief."), messages.HumanMessage(content(shown, detail="low"))
    ]  # fmt: skip
    reply = model.invoke(asked[1:])
    assert reply.content == expected
    assert reply.usage_metadata["output_tokens"] == 9
    assert reply.usage_metadata["input_token_details"]["cache_read"] > 0, "asked before"
    streamed = "".join(chunk.content for chunk in model.stream(asked[1:]))
    assert streamed == expected
    told = model.invoke(asked)
    later = [*asked, told, messages.HumanMessage("And?"), messages.HumanMessage("Well?")]
    assert model.invoke(later).response_metadata["finish_reason"] in ("stop", "length")
    tool = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
    assert model.bind_tools([tool]).invoke(asked).content
    call = messages.AIMessage("", tool_calls=[{"name": "find", "args": {"a": 1}, "id": "c1"}])
    result = messages.ToolMessage("It is 7.", tool_call_id="c1")
    assert model.invoke([*asked, call, result]).content


def test_what_a_browsers_page_sends(address: str, shown: Image.Image, expected: str) -> None:
    """Fields and spellings of web clients, without a package: every one at its usual value."""
    file = io.BytesIO()
    shown.save(file, format="PNG")
    data = base64.encodebytes(file.getvalue()).decode()
    body = {
        "model": "tiny", "max_tokens": 9, "temperature": 0, "top_p": 1, "n": 1, "stop": [],
        "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "stream": False,
        "user": "me", "session_id": "x", "chat_id": "y", "background_tasks": {"title": True},
        "messages": [{"role": "user", "name": "me", "content": [
            {"type": "text", "text": QUESTION, "cache_control": {"type": "ephemeral"}},
            {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{data}"}},
        ]}],
    }  # fmt: skip
    reply = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["message"]["content"] == expected
