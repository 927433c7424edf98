"""Eight visitors at once, each with a code word in the picture: none reads another's."""

from functools import partial

import pytest

from rotatek.compare.columns import titled
from rotatek.engine.engine import Engine
from rotatek.methods.settings import Settings
from rotatek.service.model_list import Model
from rotatek.service.service import Service
from tests.cards import QUESTION, WORDS, card
from tests.fixtures import Together, present

SETTINGS = (
    Settings.of(keep_channels=0.25),
    Settings.of(tokens="fastv", keep_tokens=0.6, keep_channels=0.5),
    Settings.of(channels="think", keep_channels=0.5),
    Settings.of(tokens="visionzip", keep_tokens=0.6, channels="spark"),
)


@pytest.fixture(scope="module")
def service() -> Service:
    return Service([Model("pocket", "Pocket", "pocket")], lambda source: Engine(source, "cpu"))


@pytest.mark.slow
def test_eight_visitors_read_their_own_code_word(service: Service, together: Together) -> None:
    def answers(number: int) -> dict[str, str]:
        columns = titled(SETTINGS[number % len(SETTINGS)], [])
        visitor, word = f"visitor {number}", WORDS[number]
        *_, run = service.ask("pocket", card(word), QUESTION, columns, 12, visitor)
        return {title: present(column.finished).answer for title, column in run.columns.items()}

    alone = [answers(number) for number in range(8)]
    crowd: dict[int, dict[str, str]] = {}

    def note(number: int) -> None:
        crowd[number] = answers(number)

    together([partial(note, number) for number in range(8)])
    assert [crowd[number] for number in range(8)] == alone
    for number, said in crowd.items():
        foreign = [word for word in WORDS if word != WORDS[number]]
        assert not [word for word in foreign if any(word in answer for answer in said.values())]
    read = [number for number in range(8) if WORDS[number] in alone[number]["Uncompressed"]]
    assert len(read) >= 6, "the model has to read the words for this to show anything"
