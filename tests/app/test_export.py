"""Exports: files with the measurements, code that gives the same answer again, links."""

import io
import json
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from PIL import Image

from rotatek.cli.main import main
from rotatek.compare.columns import titled
from rotatek.errors import SettingError
from rotatek.inputs.request import open_image
from rotatek.inputs.sampling import Sampling
from rotatek.methods.settings import Settings
from rotatek.page import export
from rotatek.page.ask.answers import cards
from rotatek.page.ask.export_events import ExportEvents
from rotatek.page.form import settings_of, values_of
from rotatek.page.links import read_query
from rotatek.page.page_context import PageContext
from rotatek.service.model_list import Model, load_examples
from rotatek.service.run import Run
from rotatek.service.service import Service
from tests.fixtures import present

CHOSEN = Settings.of(tokens="fastv", keep_tokens=0.6, keep_channels=0.5)
BEYOND = Settings.of(smaller=4)


@pytest.fixture(scope="module")
def pocket(root: Path) -> Iterator[PageContext]:
    """The embedded model and the gallery, as visitors meet them."""
    service = Service([Model("pocket", "Pocket", "pocket")])
    yield PageContext(service, load_examples(root / "assets" / "examples"))
    service.close()


@pytest.fixture(scope="module")
def talk(pocket: PageContext) -> Run:
    """Two turns about the first example, three columns."""
    image = open_image(pocket.examples[0].image)
    columns = titled(CHOSEN, [BEYOND])
    service = pocket.service
    *_, run = service.ask("pocket", image, "What is the total?", columns, 24, "v", talk=True)
    *_, later = service.follow(run, 'And "the" shop\'s name?', 20, "v")
    return later


@pytest.fixture(scope="module")
def drawn(pocket: PageContext) -> Run:
    """Two turns whose tokens are drawn, by a seed that was drawn too."""
    image = open_image(pocket.examples[0].image)
    service, warm = pocket.service, Sampling(temperature=0.9)
    columns = titled(CHOSEN, [])
    *_, run = service.ask(
        "pocket", image, "What is the total?", columns, 12, "w", talk=True, sampling=warm
    )
    *_, later = service.follow(run, "And?", 8, "w", Sampling(temperature=1.1, seed=0))
    return later


def test_what_was_drawn_is_drawn_again(
    pocket: PageContext, drawn: Run, root: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Temperature and seed are in the file, the program and the command."""
    monkeypatch.chdir(root)
    image = ExportEvents(pocket).picture_of(drawn)
    first, later = drawn.turns
    assert first.sampling.seed is not None and later.sampling.seed == 0
    told = json.loads(export.as_json(drawn))["turns"]
    own = [[column["sampling"] for column in turn["columns"].values()] for turn in told]
    assert own == [
        [{"temperature": 0.9, "seed": first.sampling.seed}] * 2,
        [{"temperature": 1.1, "seed": 0}] * 2,
    ]
    printed = run_program(export.python(drawn, image))
    for turn in drawn.turns:
        for title, column in turn.columns.items():
            assert f"{title}: {present(column.finished).answer} (" in printed
    assert main(shlex.split(export.command(drawn, image))[3:]) == 0
    got = json.loads(capsys.readouterr().out)
    assert got["answer"] == present(first.chosen.finished).answer
    assert f"the seed {first.sampling.seed}" in cards(first, on_cpu=True)


def run_program(text: str) -> str:
    """The output of a Python program."""
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(text, "snippet", "exec"), {"__name__": "snippet"})
    return out.getvalue()


def test_json_holds_the_conversation(talk: Run) -> None:
    got = json.loads(export.as_json(talk))
    assert got["model"] == "pocket" and len(got["image"]["sha256"]) == 64
    assert [turn["question"] for turn in got["turns"]] == [t.question for t in talk.turns]
    for turn, shown in zip(talk.turns, got["turns"], strict=True):
        assert list(shown["columns"]) == list(turn.columns)
        for title, column in turn.columns.items():
            told = shown["columns"][title]
            done = present(column.finished)
            assert told["answer"] == done.answer
            assert told["kv_bytes"] == done.metrics["kv_bytes"]
            assert sum(told["kv_bytes_by_part"].values()) == told["kv_bytes"]
            assert Settings.from_dict(told["settings"]) == column.settings
            assert len(told["kl_by_token"]) == told["new_tokens"]


def test_the_program_gives_the_same_answers(
    pocket: PageContext, talk: Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    image = ExportEvents(pocket).picture_of(talk)
    assert image == "assets/examples/receipt.png"
    printed = run_program(export.python(talk, image))
    for turn in talk.turns:
        for title, column in turn.columns.items():
            done = present(column.finished)
            assert f"{title}: {done.answer} ({done.metrics['kv_bytes']} bytes)" in printed


def test_the_command_line_gives_the_same_answer(
    pocket: PageContext,
    talk: Run,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(root)
    words = shlex.split(export.command(talk, ExportEvents(pocket).picture_of(talk)))
    assert words[:3] == ["python", "-m", "rotatek"]
    assert main(words[3:]) == 0
    got = json.loads(capsys.readouterr().out)
    done = present(talk.turns[0].chosen.finished)
    assert got["answer"] == done.answer and got["kv_bytes"] == done.metrics["kv_bytes"]
    assert got["settings"] == talk.chosen.settings.as_dict()


def shared(links: ExportEvents, image: Image.Image | None, settings: Settings, *codes: str) -> dict:
    """What is sent to the browser for a link."""
    request = {"image": image, "question": "What & why?", "model": "pocket", "max_new_tokens": 64}
    return json.loads(links.share(**request, others=list(codes), **values_of(settings))["sent"])


@pytest.mark.parametrize("settings", [CHOSEN, BEYOND])
def test_a_link_restores_the_page(pocket: PageContext, settings: Settings) -> None:
    links = ExportEvents(pocket)
    sent = shared(links, open_image(pocket.examples[2].image), settings, "keep_channels:0.1")
    assert "Your own image" not in sent["said"] and len(sent["query"]) < 400
    shown = links.restore("?" + sent["query"] + "&__theme=dark")
    assert shown["image"] == str(pocket.examples[2].image) and shown["question"] == "What & why?"
    assert shown["model"] == "pocket" and shown["max_new_tokens"] == 64
    assert shown["others"]["value"] == ["keep_channels:0.1"] and shown["presets"] is None
    assert settings_of(shown) == settings
    assert "Press Ask for their answers" in shown["status"]


@pytest.mark.parametrize(
    "query",
    ["", "?", "?__theme=dark", "?image=../../etc/passwd&model=/etc/passwd", "?length=1e9", "?q",
     "?length=99999", "?x=tokens:evil"],
)  # fmt: skip
def test_a_link_that_says_nothing_changes_nothing(pocket: PageContext, query: str) -> None:
    assert ExportEvents(pocket).restore(query) == {}


def test_a_link_with_bad_settings_is_refused(pocket: PageContext) -> None:
    with pytest.raises(SettingError):
        read_query("?s=tokens:evil", pocket.examples, ["pocket"])
    with pytest.raises(Exception, match="tokens must be one of none, fastv, visionzip"):
        ExportEvents(pocket).restore("?s=tokens:evil")
    with pytest.raises(Exception, match="link must be one that this page has made"):
        ExportEvents(pocket).restore("?" + "a=b&" * 5000)
