"""Programs that people have: each asks a question about a picture, at once and as a stream.

What is large, or wants other versions of common packages, is tested where it is installed.
"""

import asyncio
import base64
import gc
import io
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx
import openai
import pytest
from PIL import Image
from pydantic import BaseModel

from tests.fixtures import Picture
from tests.server.conftest import uri

# Warnings of other people's packages are theirs.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
QUESTION = "What is it?"

Result = TypeVar("Result")


@pytest.fixture(autouse=True)
def left_behind() -> Iterator[None]:
    """Connections that a package leaves open are closed here, without a warning."""
    yield
    gc.collect()


@pytest.fixture
def shown(picture: Picture) -> Image.Image:
    return picture(80, 60, seed=9)


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


def content(image: Image.Image, **more: Any) -> list[dict[str, Any]]:
    address = {"url": uri(image)} | more
    return [{"type": "text", "text": QUESTION}, {"type": "image_url", "image_url": address}]


def in_a_thread(work: Coroutine[Any, Any, Result]) -> Result:
    """Playwright's loop may be running in the test's own thread: run in another one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@pytest.fixture
def expected(client: Any, shown: Image.Image) -> str:
    """Messages that the official client gets."""
    reply = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": content(shown)}], max_tokens=9,
        temperature=0,
    )  # fmt: skip
    told = reply.choices[0].message.content
    assert told and reply.usage.prompt_tokens_details.image_tokens > 0
    return told


def test_the_official_client_asynchronous(address: str, shown: Image.Image, expected: str) -> None:
    async def ask() -> str:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none") as client:
            messages: Any = [{"role": "user", "content": content(shown, detail="auto")}]
            stream = await client.chat.completions.create(
                model="tiny", messages=messages, max_tokens=9, temperature=0, stream=True,
                stream_options={"include_usage": True},
            )  # fmt: skip
            chunks = [chunk async for chunk in stream]
            assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 9
            return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)

    assert in_a_thread(ask()) == expected


def test_the_official_clients_stream_helper(client: Any, shown: Image.Image, expected: str) -> None:
    """It takes an answer that was cut for a fault, and has it all the same."""
    messages = [{"role": "user", "content": content(shown)}]
    with client.chat.completions.stream(model="tiny", messages=messages, max_tokens=9) as stream:
        for _ in stream:
            pass
        with pytest.raises(openai.LengthFinishReasonError) as cut:
            stream.get_final_completion()
    assert cut.value.completion.choices[0].message.content == expected


def test_langchain(address: str, shown: Image.Image, expected: str) -> None:
    langchain = pytest.importorskip("langchain_openai")
    messages = pytest.importorskip("langchain_core.messages")
    model = langchain.ChatOpenAI(
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


def test_litellm(
    address: str, shown: Image.Image, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or it asks the network for prices
    litellm = pytest.importorskip("litellm")
    given: dict[str, Any] = {
        "model": "openai/tiny", "api_base": f"{address}/v1", "api_key": "none", "temperature": 0,
        "max_tokens": 9, "messages": [{"role": "user", "content": content(shown)}],
    }  # fmt: skip
    reply = litellm.completion(**given)
    assert reply.choices[0].message.content == expected
    assert reply.usage.prompt_tokens_details.image_tokens > 0
    chunks = list(litellm.completion(**given, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == expected


def test_llm(
    address: str, shown: Image.Image, expected: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    llm = pytest.importorskip("llm")
    plugin = pytest.importorskip("llm.default_plugins.openai_models")
    model = plugin.Chat("tiny", model_name="tiny", api_base=f"{address}/v1", vision=True)
    model.key = "none"
    for stream in (False, True):
        reply = model.prompt(
            QUESTION, attachments=[llm.Attachment(content=png(shown))], stream=stream,
            temperature=0, max_tokens=9,
        )  # fmt: skip
        assert reply.text() == expected
    talk = model.conversation()
    first = talk.prompt(
        QUESTION, attachments=[llm.Attachment(content=png(shown))], system="Be brief.",
        max_tokens=9,
    )  # fmt: skip
    assert first.text() and talk.prompt("And?", max_tokens=9).text()


def test_pydantic_ai(address: str, shown: Image.Image, expected: str) -> None:
    ai = pytest.importorskip("pydantic_ai")
    models = pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    asked = [QUESTION, ai.BinaryContent(png(shown), media_type="image/png")]

    async def run() -> None:
        async with httpx.AsyncClient(timeout=60) as http:
            await talk(http)

    async def talk(http: httpx.AsyncClient) -> None:
        provider = providers.OpenAIProvider(
            base_url=f"{address}/v1", api_key="none", http_client=http
        )
        model = models.OpenAIChatModel("tiny", provider=provider)
        agent = ai.Agent(model, model_settings={"temperature": 0, "max_tokens": 9})
        reply = await agent.run(asked)
        assert reply.output.strip() == expected.strip()
        assert reply.usage.output_tokens == 9
        later = await agent.run("And?", message_history=reply.all_messages())
        assert later.output
        async with agent.run_stream(asked) as stream:
            assert (await stream.get_output()).strip() == expected.strip()

    in_a_thread(run())


class Page(BaseModel):
    """What structured answers are to hold."""

    kind: Literal["receipt", "letter"]
    paid: bool


def test_langchain_structured_output(address: str, shown: Image.Image) -> None:
    langchain = pytest.importorskip("langchain_openai")
    messages = pytest.importorskip("langchain_core.messages")
    model = langchain.ChatOpenAI(
        model="tiny", base_url=f"{address}/v1", api_key="none", temperature=0.7, seed=1,
        max_retries=0,
    )  # fmt: skip
    for strict in (True, False):
        asking = model.with_structured_output(Page, method="json_schema", strict=strict)
        assert isinstance(asking.invoke([messages.HumanMessage(content(shown))]), Page)


def test_pydantic_ai_structured_output(address: str, shown: Image.Image) -> None:
    ai = pytest.importorskip("pydantic_ai")
    models = pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")

    async def ask() -> Any:
        async with httpx.AsyncClient(timeout=60) as http:
            provider = providers.OpenAIProvider(
                base_url=f"{address}/v1", api_key="none", http_client=http
            )
            model = models.OpenAIChatModel("tiny", provider=provider)
            agent = ai.Agent(model, output_type=ai.NativeOutput(Page))
            asked = [QUESTION, ai.BinaryContent(png(shown), media_type="image/png")]
            return (await agent.run(asked, model_settings={"temperature": 0.8})).output

    assert isinstance(in_a_thread(ask()), Page)


def test_instructor(address: str, shown: Image.Image) -> None:
    instructor = pytest.importorskip("instructor")
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as plain:
        client = instructor.from_openai(plain, mode=instructor.Mode.JSON_SCHEMA)
        found = client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": content(shown)}],
            response_model=Page, max_tokens=200, temperature=0.5, max_retries=0,
        )  # fmt: skip
    assert isinstance(found, Page)


def test_what_a_browsers_page_sends(address: str, shown: Image.Image, expected: str) -> None:
    """Fields and spellings of web clients, without a package: every one at its usual value."""
    data = base64.encodebytes(png(shown)).decode()
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
