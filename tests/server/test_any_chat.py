"""Whatever a client sends, the door answers or refuses: never a failure of its own."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, event, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from PIL import Image

from rotatek.models import VisionLanguageModel
from tests.server.conftest import served, tiny_door, uri

pytestmark = pytest.mark.slow
TYPED = {"content-type": "application/json"}
ADDRESS = uri(Image.new("RGB", (32, 28), "white"))
WORDS = st.text(max_size=12) | st.sampled_from(["What?", "<|im_end|>", "\ud800", "\ue0000\ue001"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(width=32) | WORDS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
ADDRESSES = st.sampled_from([ADDRESS, ADDRESS.replace(";base64", ""), "data:,x", "http://x/"])
PARTS = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": WORDS}, optional={"more": VALUES}),
    st.fixed_dictionaries({
        "type": st.just("image_url"),
        "image_url": st.fixed_dictionaries(
            {"url": ADDRESSES}, optional={"detail": st.sampled_from(["low", "high", "x", None])}
        ),
    }),
    st.fixed_dictionaries({
        "type": st.sampled_from(["file", "refusal", "input_text"]),
    }, optional={
        "file": st.dictionaries(st.sampled_from(["file_data", "filename"]), ADDRESSES | VALUES),
        "image_url": ADDRESSES | VALUES, "refusal": WORDS,
        "text": WORDS, "detail": WORDS,
    }),
    VALUES,
)  # fmt: skip
CALLS = st.lists(
    st.fixed_dictionaries({
        "id": WORDS, "function": st.fixed_dictionaries({"name": WORDS, "arguments": VALUES}),
    }) | VALUES, max_size=2,
)  # fmt: skip
ROLES = st.sampled_from(
    ["system", "developer", "user", "user", "assistant", "tool", "function", "critic"]
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": ROLES, "content": WORDS | st.lists(PARTS, max_size=4) | st.none()},
        optional={"name": VALUES, "tool_calls": CALLS, "tool_call_id": VALUES, "x": VALUES},
    ),
    max_size=5,
)
LAST = st.fixed_dictionaries({
    "role": st.just("user"),
    "content": st.lists(PARTS, max_size=2).map(
        lambda parts: [
            {"type": "image_url", "image_url": {"url": ADDRESS}}, *parts,
            {"type": "text", "text": "?"},
        ]
    ),
})  # fmt: skip
NAMES = st.sampled_from([
    "temperature", "n", "tools", "tool_choice", "functions", "stream_options", "response_format",
    "rotatek", "user", "stop", "max_tokens", "detail", "\ud800", "top_k", "metadata", "seed",
    "logit_bias", "logprobs", "top_p",
])  # fmt: skip


@pytest.fixture(scope="module")
def chat(vlm: VisionLanguageModel) -> Iterator[str]:
    with served(tiny_door(vlm)) as address:
        yield f"{address}/v1/chat/completions"


@examples(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    messages=MESSAGES,
    last=LAST | st.none(),
    more=st.dictionaries(NAMES, VALUES, max_size=2),
    settings=st.none() | st.dictionaries(WORDS, VALUES, max_size=3),
)
def test_any_call(
    chat: str, messages: list[Any], last: dict[str, Any] | None, more: dict[str, Any],
    settings: dict[str, Any] | None,
) -> None:  # fmt: skip
    whole = messages if last is None else [*messages, last]
    body = {"max_tokens": 1, "rotatek": settings} | more | {"model": "tiny", "messages": whole}
    reply = httpx.post(chat, content=json.dumps(body), headers=TYPED, timeout=60)
    told = reply.json()
    event(str(reply.status_code))
    if reply.status_code == 200:
        assert told["choices"][0]["finish_reason"] in ("stop", "length")
    else:
        assert reply.status_code in (400, 404, 413), told
        assert told["error"]["message"].endswith((".", ":")) and told["error"]["code"] != "refused"
