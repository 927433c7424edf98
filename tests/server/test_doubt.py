"""Every door doubts an answer as the page does: twelve photographs, twelve documents."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from PIL import Image

from rotatek import models
from rotatek.cli import main as command
from rotatek.compare.columns import titled
from rotatek.engine.engine import Engine
from rotatek.engine.events import Finished
from rotatek.inspect.doubt import PHOTO_NOTE, TEXT_NOTE
from rotatek.methods.settings import Settings
from rotatek.page import confidence
from rotatek.server.chat_app import ChatApp
from rotatek.service.model_list import Model
from rotatek.service.run import start
from rotatek.service.service import Service
from tests.server.conftest import asked, client_of, served
from tests.unit.test_doubt import landscape

pytestmark = pytest.mark.slow
QUESTION = "What is the title?"
SIZE = 336, 252
TOKENS = 6
SUITE = Path(__file__).parents[2] / "assets" / "suite"
DOCUMENTS = sorted(SUITE.glob("drawn-*-[fs]*.webp"))


def photo(seed: int) -> Image.Image:
    return Image.fromarray(landscape(seed)).resize(SIZE)


def document(seed: int) -> Image.Image:
    return Image.open(DOCUMENTS[seed]).convert("RGB")


PICTURES = [(kind, seed) for seed in range(12) for kind in (photo, document)]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine("pocket", "cpu")


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[openai.OpenAI]:
    service = Service([Model("pocket", "Pocket", "pocket")], lambda source: engine)
    with served(ChatApp(service)) as address, client_of(address) as client:
        yield client


def page_says(picture: Image.Image, answer: str, sure: float) -> str:
    """The page's caution below an answer of this confidence."""
    run = start(titled(Settings(), []), np.asarray(picture), QUESTION, "pocket")
    for title in run.columns:
        run.take(Finished(title, answer, 4, 1.0, {"confidence": sure, "kv_bytes": 1}))
    return confidence.note(run)


def ask(client: openai.OpenAI, picture: Image.Image, **given: Any) -> Any:
    create: Any = client.chat.completions.create
    return create(model="pocket", messages=asked(picture, QUESTION), max_tokens=TOKENS, **given)


def test_the_api_doubts_as_the_page_does(client: openai.OpenAI) -> None:
    """Photographs are never answered in good faith, and most documents are."""
    said: dict[Any, list[str]] = {photo: [], document: []}
    for kind, seed in PICTURES:
        said_now = ask(client, picture := kind(seed))
        told, answer = said_now.rotatek, said_now.choices[0].message.content
        assert (told["doubt"] or "") == page_says(picture, answer, told["confidence"])
        said[kind].append(told["doubt"] or "")
    assert said[photo].count(PHOTO_NOTE) >= 11 and PHOTO_NOTE not in said[document]
    assert said[document].count("") >= 6


def test_an_answer_without_a_picture_is_doubted(client: openai.OpenAI) -> None:
    create: Any = client.chat.completions.create
    messages = [{"role": "user", "content": "Who are you?"}]
    told = create(model="pocket", messages=messages, max_tokens=TOKENS)
    assert told.choices[0].message.content and told.rotatek["doubt"] == TEXT_NOTE


@pytest.mark.parametrize("kind", [photo, document])
def test_a_stream_says_it_at_its_end(client: openai.OpenAI, kind: Any) -> None:
    whole = ask(client, kind(2)).rotatek["doubt"]
    options = {"include_usage": True}
    for more in ({}, {"stream_options": options}):
        chunks = list(ask(client, kind(2), stream=True, **more))
        assert chunks[-1].rotatek == {"doubt": whole}
        assert not hasattr(chunks[0], "rotatek")


def test_the_command_line_doubts_as_the_page_does(
    engine: Engine, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "load", lambda *_, **__: engine.vlm)
    pictures = {f"{kind.__name__}-{seed}": kind(seed) for kind, seed in PICTURES[:4]}
    for name, picture in pictures.items():
        picture.save(tmp_path / f"{name}.png")

    def run(*words: Any) -> tuple[str, str]:
        assert command.main([*map(str, words), "--max-new-tokens", str(TOKENS)]) == 0
        said = capsys.readouterr()
        return said.out, said.err

    for name, picture in pictures.items():
        out, _ = run("ask", tmp_path / f"{name}.png", QUESTION, "--json")
        told = json.loads(out)
        assert (told["doubt"] or "") == page_says(picture, told["answer"], told["confidence"])
        _, err = run("ask", tmp_path / f"{name}.png", QUESTION)
        assert err.strip() == (told["doubt"] or "")
    store, table = tmp_path / "store", tmp_path / "answers.csv"
    assert command.main(["index", str(tmp_path), "--store", str(store)]) == 0
    capsys.readouterr()
    out, err = run("ask", "--store", store, QUESTION, "--json", "--csv", table)
    rows = {row["page"]: row for row in csv.DictReader(table.read_text("utf-8").splitlines())}
    for told in map(json.loads, out.splitlines()):
        picture = pictures[Path(told["page"]).stem]
        assert told.get("doubt", "") == rows[told["page"]]["doubt"]
        assert told.get("doubt", "") == page_says(picture, told["answer"], told["confidence"])
    assert sum(bool(row["doubt"]) for row in rows.values()) >= 2
    _, err = run("ask", "--store", store, QUESTION)
    assert "of 4 answers are doubtful" in err


def test_a_model_that_nobody_has_measured_is_not_doubted(address: str) -> None:
    body = {"model": "tiny", "messages": asked(photo(0)), "max_tokens": 2}
    told = httpx.post(f"{address}/v1/chat/completions", json=body).json()
    assert told["rotatek"]["doubt"] is None
