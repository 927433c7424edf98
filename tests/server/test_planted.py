"""Programs at once, each with a code word in its picture: none reads another's."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from rotatek.engine.engine import Engine
from rotatek.server.chat_app import ChatApp
from rotatek.service.model_list import Model
from rotatek.service.service import Service
from tests.cards import QUESTION, WORDS, card
from tests.fixtures import Together
from tests.server.conftest import asked, client_of, served

SETTINGS: tuple[dict[str, Any], ...] = (
    {"keep_channels": 0.25},
    {"tokens": "fastv", "keep_tokens": 0.6, "keep_channels": 0.5},
    {"channels": "think", "keep_channels": 0.5},
    {"tokens": "visionzip", "keep_tokens": 0.6, "channels": "spark"},
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    engine = Engine("pocket", "cpu")
    with served(
        ChatApp(Service([Model("pocket", "Pocket", "pocket")], lambda source: engine))
    ) as url:
        yield url


@pytest.mark.slow
def test_programs_read_their_own_code_word(address: str, together: Together) -> None:
    """A question alone; then all of them at once, with a follow-up each."""

    def talk(number: int, turns: int = 2) -> list[str]:
        create: Any = client_of(address).chat.completions.create
        given = {"model": "pocket", "max_tokens": 12, "stream": True}
        given["extra_body"] = {"rotatek": SETTINGS[number % len(SETTINGS)]}
        messages, said = asked(card(WORDS[number]), QUESTION), []
        for _ in range(turns):
            chunks = create(messages=messages, **given)
            said.append("".join(c.choices[0].delta.content or "" for c in chunks))
            messages.append({"role": "assistant", "content": said[-1]})
            messages.append({"role": "user", "content": "And which room?"})
        return said

    alone = [talk(number, turns=1) for number in range(8)]
    crowd: list[tuple[int, list[str]]] = []
    together([partial(lambda n: crowd.append((n, talk(n))), number) for number in range(8)])
    assert len(crowd) == 8
    for number, said in crowd:
        assert said[0] == alone[number][0]
        foreign = [word for word in WORDS if word != WORDS[number]]
        assert not [word for word in foreign if any(word in one for one in said)]
    assert sum(WORDS[n] in said[0] for n, said in enumerate(alone)) >= 4, "some words are read"
