"""Answers that are drawn, several at once, with log probabilities, or after a JSON schema."""

import json
from typing import Any

import jsonschema
import openai
import pytest

from rotatek.engine import grammar
from rotatek.errors import SchemasNotInstalled
from rotatek.server.chat_app import SEED
from tests.families import EVERY
from tests.fixtures import Picture
from tests.server.conftest import (
    ask,
    asked,
    client_of,
    formed,
    refused,
    served,
    streamed,
    texts,
    tiny_door,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning"),
]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["receipt", "letter", "chart"]},
        "paid": {"type": "boolean"},
        "pages": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["kind", "paid", "pages"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream", [False, True])
def test_a_seed_that_was_drawn_is_reported(
    client: openai.OpenAI, picture: Picture, stream: bool
) -> None:
    raw = client.chat.completions.with_raw_response
    given: dict[str, Any] = {
        "model": "tiny", "messages": asked(picture()), "max_tokens": 9, "temperature": 1.2,
    }  # fmt: skip
    first = raw.create(**given, stream=stream)
    seed = int(first.headers[SEED])
    reply: Any = first.parse()
    told = [one.text for one in streamed(reply)] if stream else texts(reply)
    again = ask(client, given["messages"], max_tokens=9, temperature=1.2, seed=seed)
    assert texts(again) == told
    assert again.rotatek["sampling"] == {"temperature": 1.2, "seed": seed}
    assert SEED not in raw.create(**given | {"temperature": 0}).headers


def test_several_answers(client: openai.OpenAI, picture: Picture) -> None:
    """Each with its own index, the first one as it is alone; usage counts all of them."""
    messages = asked(picture(seed=3))
    own = {"temperature": 2.0, "seed": 4}
    several = ask(client, messages, n=4, **own)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert len(set(texts(several))) > 2
    assert texts(several)[:1] == texts(ask(client, messages, **own))
    made = ask(client, messages, n=4, logprobs=True, **own)
    counts = [len(choice.logprobs.content) for choice in made.choices]
    assert several.usage.completion_tokens == sum(counts)
    told = streamed(ask(client, messages, n=4, stream=True, **own))
    assert [one.text for one in told] == texts(several)
    assert [one.reason for one in told] == [c.finish_reason for c in several.choices]
    equal = ask(client, messages, n=2)
    assert len(set(texts(equal))) == 1, "greedy answers are equal"


@pytest.mark.parametrize("own", [{}, {"temperature": 1.0, "seed": 2}], ids=["greedy", "drawn"])
def test_log_probabilities_stand_beside_the_text(
    client: openai.OpenAI, picture: Picture, own: dict[str, Any]
) -> None:
    messages = asked(picture(seed=6))
    plain = ask(client, messages, **own)
    assert plain.choices[0].logprobs is None
    reply = ask(client, messages, logprobs=True, top_logprobs=3, **own)
    assert texts(reply) == texts(plain)
    entries = reply.choices[0].logprobs.content
    assert len(entries) == reply.usage.completion_tokens
    spelled = b"".join(bytes(entry.bytes) for entry in entries).decode(errors="replace")
    assert spelled.strip().startswith(reply.choices[0].message.content.rstrip("\ufffd"))
    for entry in entries:
        best = [one.logprob for one in entry.top_logprobs]
        assert len(best) == 3 and best == sorted(best, reverse=True)
        assert entry.logprob <= best[0] + 1e-6
        assert own or entry.token == entry.top_logprobs[0].token
    (told,) = streamed(ask(client, messages, logprobs=True, top_logprobs=3, stream=True, **own))
    assert [one.model_dump() for one in told.logs] == [one.model_dump() for one in entries]


@pytest.mark.parametrize("family", ["qwen2_5_vl", "gemma3"])  # vocabularies
def test_a_schema_is_followed_every_time(family: str, picture: Picture) -> None:
    with served(tiny_door(EVERY[family]())) as address, client_of(address) as client:
        for own in ({}, {"temperature": 1.0, "seed": 1, "n": 10}):
            reply = ask(
                client, asked(picture(56, 56)), response_format=formed(SCHEMA, strict=True),
                max_tokens=120, **own,
            )  # fmt: skip
            for choice in reply.choices:
                assert choice.finish_reason == "stop"
                jsonschema.validate(json.loads(choice.message.content), SCHEMA)
        assert len({*texts(reply)}) > 2


def test_json_without_a_schema_and_an_honest_end(client: openai.OpenAI, picture: Picture) -> None:
    """White space is bounded, and what is cut does not claim to be complete."""
    for seed in range(4):
        reply = ask(
            client, asked(picture(seed=7)), response_format={"type": "json_object"},
            temperature=1.5, seed=seed, max_tokens=30,
        )  # fmt: skip
        (said,), (choice,) = texts(reply), reply.choices
        assert said.startswith("{") and "  " not in said.split('"')[0]
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(said), dict)
        else:
            assert choice.finish_reason == "length" and reply.usage.completion_tokens == 30
    cut = ask(client, asked(picture()), response_format=formed(SCHEMA), max_tokens=5)
    assert cut.choices[0].finish_reason == "length"
    with pytest.raises(ValueError):
        json.loads(texts(cut)[0])


def test_without_the_library_a_sentence(
    client: openai.OpenAI, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Any:
        raise SchemasNotInstalled

    monkeypatch.setattr(grammar, "_library", missing)
    error = refused(client, asked(picture()), response_format={"type": "json_object"})
    assert "rotatek[serve]" in error.message
    assert texts(ask(client, asked(picture()), response_format={"type": "text"}))
