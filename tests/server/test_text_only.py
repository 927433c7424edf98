"""Chats without a picture: the language model alone, and nothing to compress."""

from typing import Any

import openai
import pytest
import torch
from PIL import Image

from rotatek import errors
from rotatek.engine.engine import Engine
from rotatek.engine.events import Token
from rotatek.inputs.messages import PICTURE, Message
from rotatek.inputs.request import make_chat
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from tests.families import EVERY, tiny_other
from tests.server.conftest import asked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning"),
]
CHAT = (
    Message("system", ("Be brief.",)),
    Message("user", ("What is a cache?",)),
    Message("assistant", ("A store.",)),
    Message("user", ("Of what?",)),
)


def ask(client: openai.OpenAI, messages: list[dict[str, Any]], **given: Any) -> Any:
    create: Any = client.chat.completions.create
    return create(**{"model": "tiny", "messages": messages, "max_tokens": 8} | given)


def user(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


@pytest.mark.parametrize("family", ["llava_next", "qwen3_5", "gemma4", "other"])
def test_an_answer_is_the_models_own(family: str) -> None:
    """Greedy tokens of every family are those of transformers' `generate` on the same ids."""
    vlm = tiny_other() if family == "other" else EVERY[family]()
    request = make_chat([], CHAT, 6)
    *events, done = Engine(vlm).answer(
        request, Settings.of(smaller=4, tokens="fastv", keep_tokens=0.5)
    )
    ids = vlm.prompt(request).ids
    with torch.inference_mode():
        plain = vlm.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False,
            suppress_tokens=list(vlm.banned_ids),
        )  # fmt: skip
    said = [token for token in plain[0, ids.shape[1] :].tolist() if token not in vlm.stop_ids]
    assert [event.token_id for event in events if isinstance(event, Token)] == said
    assert done.metrics["kv_bytes"] == done.metrics["kv_bytes_full"]  # type: ignore[union-attr]


def test_usage_has_no_image_tokens(client: openai.OpenAI) -> None:
    for content in ("Hello?", [{"type": "text", "text": "Hello?"}]):
        said = ask(client, [user(content)])  # type: ignore[arg-type]
        assert said.choices[0].message.content
        usage = said.usage
        assert usage.prompt_tokens_details.image_tokens == usage.visual_tokens == 0
        assert usage.kv_bytes == usage.kv_bytes_full > 0 and usage.completion_tokens == 8
    chunks = list(ask(client, [user("Hello?")], stream=True))
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert streamed == said.choices[0].message.content


def test_a_follow_up_is_warm_and_pictures_may_come_later(
    client: openai.OpenAI, door: Any, picture: Any
) -> None:
    misses = door.service.engine("tiny").pictures.misses
    first = [user("Hello, you.")]
    answer = {"role": "assistant", "content": ask(client, first).choices[0].message.content}
    warm = ask(client, [*first, answer, user("And?")])
    assert warm.rotatek["warm"] and warm.usage.prompt_tokens_details.cached_tokens > 0
    assert door.service.engine("tiny").pictures.misses == misses, "no picture was looked for"
    answer = {"role": "assistant", "content": ask(client, first).choices[0].message.content}
    shown = ask(client, [*first, answer, *asked(picture(448, 336))])
    assert not shown.rotatek["warm"] and shown.usage.visual_tokens == 192
    assert shown.usage.kv_bytes < 0.8 * shown.usage.kv_bytes_full, "it is compressed"


def test_a_template_that_wants_a_picture_is_a_sentence(vlm: VisionLanguageModel) -> None:
    own = vlm.tokenizer.chat_template
    vlm.tokenizer.chat_template = "{{ messages[0]['content'][1]['text'] }}"
    try:
        with pytest.raises(errors.PictureNeeded):
            vlm.prompt(make_chat([], [Message("user", ("Hi?",))], 4))
        with pytest.raises(errors.ControlTokens):
            vlm.prompt(
                make_chat([Image.new("RGB", (56, 56))], [Message("user", ("Hi?", PICTURE))], 4)
            )
    finally:
        vlm.tokenizer.chat_template = own
