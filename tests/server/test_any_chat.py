"""Whatever a client sends, the door answers or refuses: never a failure of its own."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from PIL import Image

from tests.server.conftest import asked, uri

pytestmark = pytest.mark.slow
ADDRESS = uri(Image.new("RGB", (32, 28), "white"))
WORDS = st.text(max_size=12) | st.sampled_from(["What?", "<|im_end|>", "\ud800", "\ue0000\ue001"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(width=32) | WORDS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
ADDRESSES = st.sampled_from([ADDRESS, ADDRESS.replace(";base64", ""), "data:,x", "http://x/"])
FILES = ADDRESSES | st.dictionaries(st.sampled_from(["url", "file_data", "detail"]), ADDRESSES)
KINDS = st.sampled_from(["text", "image_url", "file", "refusal", "input_text"])
PARTS = VALUES | st.fixed_dictionaries(
    {"type": KINDS}, optional={"text": WORDS, "image_url": FILES, "file": FILES, "refusal": WORDS}
)
ROLES = st.sampled_from(["system", "developer", "user", "user", "assistant", "tool", "critic"])
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": ROLES, "content": WORDS | st.lists(PARTS, max_size=4) | st.none()},
        optional={"name": VALUES, "tool_calls": VALUES, "tool_call_id": VALUES, "x": VALUES},
    ),
    max_size=5,
)
LAST = st.lists(PARTS, max_size=2).map(
    lambda parts: [{"role": "user", "content": [*asked(ADDRESS)[0]["content"], *parts]}]
)
FIELDS = [
    "temperature", "n", "tools", "tool_choice", "functions", "stream_options", "response_format",
    "user", "stop", "max_tokens", "\ud800", "top_k", "metadata", "seed", "logit_bias", "logprobs",
]  # fmt: skip


@examples(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    MESSAGES, LAST | st.just([]), st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=2),
    st.none() | st.dictionaries(WORDS, VALUES, max_size=3),
)  # fmt: skip
def test_any_call(
    address: str, messages: list[Any], last: list[Any], more: dict[str, Any], settings: Any
) -> None:
    body = {"model": "tiny", "max_tokens": 1, "rotatek": settings, "messages": messages + last}
    reply = httpx.post(
        f"{address}/v1/chat/completions", content=json.dumps(body | more), timeout=60,
        headers={"content-type": "application/json"},
    )  # fmt: skip
    told = reply.json()
    if reply.status_code == 200:
        assert told["choices"][0]["finish_reason"] in ("stop", "length")
    else:
        assert reply.status_code in (400, 404, 413), told
        assert told["error"]["message"].endswith((".", ":")) and told["error"]["code"] != "refused"
