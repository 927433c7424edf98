"""Doors doubt an answer as the page does: a photograph, a document, and no picture."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from rotatek import Engine, Settings, open_image
from rotatek.engine.events import Finished
from rotatek.inspect.doubt import PHOTO_NOTE, TEXT_NOTE, UNSURE_NOTE, any_photo, doubt
from rotatek.methods.settings import titled
from rotatek.page.ask import answers
from rotatek.paths import assets
from rotatek.service.service import start
from tests.server.conftest import ask, asked, client_of, door_of, served, texts, user

pytestmark = pytest.mark.slow
QUESTION = "What is the title?"


def landscape(seed: int) -> np.ndarray:
    """Colours that change as those of nature do: noise with a 1/f spectrum, [240, 320, 3]."""
    rng = np.random.default_rng(seed)
    height, width = 240, 320
    distance = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)) + 1 / width
    channels = []
    for _ in range(3):
        phases = np.exp(2j * np.pi * rng.random(distance.shape))
        waves = np.fft.irfft2(phases / distance, (height, width))
        channels.append((waves - waves.mean()) / waves.std())
    mixed = np.stack(channels, -1) @ np.array([[1.0, 0.6, 0.4], [0.3, 0.8, 0.5], [0.1, 0.2, 0.6]])
    return np.clip(128 + 55 * mixed, 0, 255).astype(np.uint8)


PICTURES = {
    "sign": open_image(assets() / "examples" / "sign.png"),
    "photo": Image.fromarray(landscape(0)).resize((336, 252)),
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine("pocket", "cpu")


def page_says(name: str, answer: str, sure: float) -> str:
    """The page's caution below an answer of this confidence."""
    run = start(titled(Settings(), []), np.asarray(PICTURES[name]), QUESTION, "pocket")
    for title in run.columns:
        run.take(Finished(title, answer, 4, 1.0, {"confidence": sure, "kv_bytes": 1}))
    return answers.note(run)


def test_the_api_doubts_as_the_page_does(engine: Engine, address: str) -> None:
    """A model that nobody has measured is not doubted."""
    given: dict[str, Any] = {"model": "pocket", "max_tokens": 6}
    with served(door_of(engine, "pocket")) as own, client_of(own) as client:
        for name, picture in PICTURES.items():
            reply = ask(client, asked(picture, QUESTION), **given)
            told = reply.rotatek
            assert (told["doubt"] or "") == page_says(name, texts(reply)[0], told["confidence"])
            assert (told["doubt"] == PHOTO_NOTE) == (name == "photo")
        *_, last = ask(client, asked(picture, QUESTION), stream=True, **given)
        assert last.rotatek == {"doubt": PHOTO_NOTE}
        assert ask(client, [user("Who are you?")], **given).rotatek["doubt"] == TEXT_NOTE
    with client_of(address) as client:
        assert ask(client, asked(picture), max_tokens=2).rotatek["doubt"] is None


def test_landscapes_are_photographs_and_documents_are_not() -> None:
    assert all(any_photo([landscape(seed)]) for seed in range(6))
    documents = [*sorted((assets() / "suite").glob("[du]*.webp"))[::16]]
    documents += (assets() / "examples").glob("*.png")
    assert len(documents) > 20 and not any_photo(open_image(path) for path in documents)


@pytest.mark.parametrize(
    ("model", "answer", "confidence", "photo", "shown", "said"),
    [
        ("pocket", "x", 0.99, False, True, ""),
        ("pocket", "Not in the image.", 0.9, False, True, UNSURE_NOTE),
        ("pocket-smol", "x", 0.97, False, True, ""),
        ("pocket", "x", 0.99, True, True, PHOTO_NOTE),
        ("pocket", "Not in the image.", 0.6, True, True, ""),
        ("pocket", "x", 0.99, False, False, TEXT_NOTE),
        ("pocket", "", None, True, True, ""),
        ("qwen2.5-vl-7b", "x", 0.1, True, False, ""),
    ],
)
def test_what_is_doubted(
    model: str, answer: str, confidence: float | None, photo: bool, shown: bool, said: str
) -> None:
    assert doubt(model, answer, confidence, lambda: photo, shown=shown) == said
