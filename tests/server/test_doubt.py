"""Every door doubts an answer as the page does: photographs and documents."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from rotatek.service.run import start
from tests.server.conftest import ask, asked, client_of, door_of, served, texts, user
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


PICTURES = [(kind, seed) for seed in range(3) for kind in (photo, document)]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine("pocket", "cpu")


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[openai.OpenAI]:
    with served(door_of(engine, "pocket")) as address, client_of(address) as client:
        yield client


def page_says(picture: Image.Image, answer: str, sure: float) -> str:
    """The page's caution below an answer of this confidence."""
    run = start(titled(Settings(), []), np.asarray(picture), QUESTION, "pocket")
    for title in run.columns:
        run.take(Finished(title, answer, 4, 1.0, {"confidence": sure, "kv_bytes": 1}))
    return confidence.note(run)


def about(client: openai.OpenAI, messages: Any, **given: Any) -> Any:
    return ask(client, messages, model="pocket", max_tokens=TOKENS, **given)


def test_the_api_doubts_as_the_page_does(client: openai.OpenAI) -> None:
    """Photographs are never answered in good faith, and most documents are."""
    found: dict[Any, list[str]] = {photo: [], document: []}
    for kind, seed in PICTURES:
        reply = about(client, asked(picture := kind(seed), QUESTION))
        told = reply.rotatek
        assert (told["doubt"] or "") == page_says(picture, texts(reply)[0], told["confidence"])
        found[kind].append(told["doubt"] or "")
    assert found[photo].count(PHOTO_NOTE) >= 2 and PHOTO_NOTE not in found[document]
    assert "" in found[document]
    *_, last = about(client, asked(photo(2), QUESTION), stream=True)
    assert last.rotatek == {"doubt": PHOTO_NOTE}
    assert about(client, [user("Who are you?")]).rotatek["doubt"] == TEXT_NOTE


def test_a_model_that_nobody_has_measured_is_not_doubted(address: str) -> None:
    with client_of(address) as client:
        assert ask(client, asked(photo(0)), max_tokens=2).rotatek["doubt"] is None


def test_the_command_line_doubts_as_the_page_does(
    engine: Engine, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "load", lambda *_, **__: engine.vlm)
    pictures = {f"{kind.__name__}-{seed}": kind(seed) for kind, seed in PICTURES[:2]}
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
    assert sum(bool(row["doubt"]) for row in rows.values()) >= 1
    _, err = run("ask", "--store", store, QUESTION)
    assert " of 2 answers " in err
