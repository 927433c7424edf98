"""Eight visitors at once, each with a code word in the picture: nobody reads another's."""

from functools import partial
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from rotatek.compare.columns import titled
from rotatek.engine import Engine
from rotatek.page.catalogue import Model
from rotatek.page.service import Service
from rotatek.settings import Settings
from tests.fixtures import Together, present

WORDS = ("harbour", "meadow", "lantern", "copper", "violin", "saddle", "pepper", "marble")
FONT = Path(__file__).resolve().parents[2] / "assets" / "fonts" / "arimo-regular.ttf"
SETTINGS = (
    Settings.of(keep_channels=0.25),
    Settings.of(tokens="fastv", keep_tokens=0.6, keep_channels=0.5),
    Settings.of(channels="think", keep_channels=0.5),
    Settings.of(tokens="visionzip", keep_tokens=0.6, channels="spark"),
)


def card(word: str) -> Image.Image:
    """A small card with a code word on it."""
    image = Image.new("RGB", (336, 224), "white")
    pen = ImageDraw.Draw(image)
    pen.text((20, 20), "Guest card", fill="black", font=ImageFont.truetype(FONT, 26))
    for row, line in enumerate(("Room: 214", f"Code word: {word}", "Floor: 3")):
        pen.text((20, 75 + 40 * row), line, fill="black", font=ImageFont.truetype(FONT, 20))
    return image


@pytest.fixture(scope="module")
def service() -> Service:
    return Service([Model("pocket", "Pocket", "pocket")], lambda source: Engine(source, "cpu"))


@pytest.mark.slow
def test_eight_visitors_read_their_own_code_word(service: Service, together: Together) -> None:
    def answers(number: int) -> dict[str, str]:
        columns = titled(SETTINGS[number % len(SETTINGS)], [])
        visitor, word = f"visitor {number}", WORDS[number]
        question = "What is the code word?"
        *_, run = service.ask("pocket", card(word), question, columns, 12, visitor)
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
