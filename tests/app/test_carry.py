"""What visitors take away: files that say what was measured, code that gives it again, links."""

import csv
import io
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from rotatek.__main__ import main
from rotatek.errors import SettingError
from rotatek.inputs import open_image
from rotatek.page import away, carry
from rotatek.page.away import Links
from rotatek.page.choices import Model, load_examples, settings_of, widgets_of
from rotatek.page.handlers import Handlers
from rotatek.page.run import BASELINE, Run, columns_for
from rotatek.page.service import Service
from rotatek.settings import Settings

CHOSEN = Settings.of(tokens="fastv", keep_tokens=0.6, keep_channels=0.5)
BEYOND = Settings.of(values="rotate", keep_values=0.5, widths="adaptive")


@pytest.fixture(scope="module")
def pocket(root: Path) -> Iterator[Handlers]:
    """The embedded model and the gallery, as visitors meet them."""
    service = Service([Model("pocket", "Pocket", "pocket")])
    yield Handlers(service, load_examples(root / "assets" / "examples"))
    service.close()


@pytest.fixture(scope="module")
def talk(pocket: Handlers) -> Run:
    """Two turns about the first example, three columns."""
    image = open_image(pocket.examples[0].image)
    columns = columns_for(CHOSEN, [BEYOND])
    service = pocket.service
    *_, run = service.ask("pocket", image, "What is the total?", columns, 24, "v", talk=True)
    *_, later = service.follow(run, 'And "the" shop\'s name?', 20, "v")
    return later


def run_program(text: str) -> str:
    """What a Python program prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(text, "snippet", "exec"), {"__name__": "snippet"})
    return out.getvalue()


def test_json_holds_the_conversation(talk: Run) -> None:
    got = json.loads(carry.as_json(talk))
    assert got["model"] == "pocket" and len(got["image"]["sha256"]) == 64
    assert [turn["question"] for turn in got["turns"]] == [t.question for t in talk.turns]
    for turn, shown in zip(talk.turns, got["turns"], strict=True):
        assert list(shown["columns"]) == list(turn.columns)
        for title, column in turn.columns.items():
            told = shown["columns"][title]
            assert told["answer"] == column.finished.answer
            assert told["kv_bytes"] == column.finished.metrics["kv_bytes"]
            assert sum(told["kv_bytes_by_part"].values()) == told["kv_bytes"]
            assert Settings.from_dict(told["settings"]) == column.settings
            assert len(told["kl_by_token"]) == told["new_tokens"]


def test_csv_holds_a_line_a_turn_and_column(talk: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(carry.as_csv(talk))))
    assert len(rows) == 6 and {row["turn"] for row in rows} == {"1", "2"}
    assert [row["column"] for row in rows[:3]] == list(talk.columns)
    for row in rows[3:]:
        column = talk.columns[row["column"]]
        assert int(row["kv_bytes"]) == column.finished.metrics["kv_bytes"]
        assert float(row["keep_channels"]) == column.settings.keep_channels
        assert row["question"] == talk.question


def test_a_spreadsheet_gets_no_formula() -> None:
    assert carry._plain("=HYPERLINK(1)") == "'=HYPERLINK(1)" and carry._plain("£20") == "£20"
    assert carry._plain(-1.5) == -1.5 and carry._plain("") == ""


def test_the_program_gives_the_same_answers(
    pocket: Handlers, talk: Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    image = Links(pocket).picture_of(talk)
    assert image == "assets/examples/receipt.png"
    printed = run_program(carry.python(talk, image))
    for turn in talk.turns:
        for title, column in turn.columns.items():
            done = column.finished
            assert f"{title}: {done.answer} ({done.metrics['kv_bytes']} bytes)" in printed


def test_the_command_line_gives_the_same_answer(
    pocket: Handlers, talk: Run, root: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(root)
    words = shlex.split(carry.command(talk, Links(pocket).picture_of(talk)))
    assert words[:3] == ["python", "-m", "rotatek"]
    assert main(words[3:]) == 0
    got = json.loads(capsys.readouterr().out)
    done = talk.turns[0].chosen.finished
    assert got["answer"] == done.answer and got["kv_bytes"] == done.metrics["kv_bytes"]
    assert got["settings"] == talk.chosen.settings.as_dict()


@pytest.mark.parametrize("settings", [BEYOND, Settings.of(tokens="visionzip", keep_tokens=0.45)])
def test_every_setting_survives_the_command_line(settings: Settings, talk: Run) -> None:
    run = Run(columns_for(settings, []), talk.pixels, "q")  # type: ignore[arg-type]
    run.columns = {name: SimpleNamespace(settings=s) for name, s in run.columns.items()}
    words = shlex.split(carry.command(run, "a b.png"))
    given = dict(zip(words[6::2], words[7::2], strict=False))
    for name, value in carry._changed(settings).items():
        assert given[f"--{name.replace('_', '-')}"] == str(value)
    assert words[4] == "a b.png"


def test_the_client_program_works(
    address: str, picture_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / carry.PICTURE).write_bytes(picture_file.read_bytes())
    text = carry.client("tiny").replace("ADDRESS", address)
    printed = run_program(text)
    assert re.search(r" \d+ \d+$", printed.strip())


def test_code_on_the_page_is_text(talk: Run) -> None:
    talk.turns[0].question, before = "</code><script>alert(1)</script>", talk.turns[0].question
    try:
        html = away.code_of(talk)
    finally:
        talk.turns[0].question = before
    assert "<script" not in html and "&lt;script" in html and html.count("data-copy") == 2
    assert "no answer to take away yet" in away.code_of(None)


def shared(links: Links, image: Image.Image | None, settings: Settings, *codes: str) -> dict:
    """What is sent to the browser for a link."""
    return json.loads(
        links.share(image, "What & why?", "pocket", 64, list(codes), *widgets_of(settings))
    )


@pytest.mark.parametrize("settings", [CHOSEN, BEYOND])
def test_a_link_restores_the_page(pocket: Handlers, settings: Settings) -> None:
    links = Links(pocket)
    sent = shared(links, open_image(pocket.examples[2].image), settings, "keep_channels:0.1")
    assert "Your own image" not in sent["said"] and len(sent["query"]) < 400
    shown = links.restore("?" + sent["query"] + "&__theme=dark")
    assert shown[0] == str(pocket.examples[2].image) and shown[1] == "What & why?"
    assert shown[3] == "pocket" and shown[4] == 64
    assert shown[5]["value"] == ["keep_channels:0.1"] and shown[6] is None
    assert settings_of(*shown[7:15]) == settings
    assert "Press Ask for their answers" in shown[15]


def test_a_link_leaves_a_visitors_image_out(pocket: Handlers) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)
    sent = shared(Links(pocket), Image.fromarray(noise), CHOSEN)
    assert "Your own image is not part of it" in sent["said"] and "image=" not in sent["query"]


@pytest.mark.parametrize(
    "query",
    ["", "?", "?__theme=dark", "?image=../../etc/passwd&model=/etc/passwd", "?length=1e9", "?q",
     "?length=99999", "?x=tokens:evil"],
)  # fmt: skip
def test_a_link_that_says_nothing_changes_nothing(pocket: Handlers, query: str) -> None:
    shown = Links(pocket).restore(query)
    assert all(isinstance(value, dict) and "value" not in value for value in shown)


def test_a_link_with_bad_settings_is_refused(pocket: Handlers) -> None:
    with pytest.raises(SettingError):
        carry.read_query("?s=tokens:evil", pocket.examples, ["pocket"])
    with pytest.raises(Exception, match="tokens must be one of none, fastv, visionzip"):
        Links(pocket).restore("?s=tokens:evil")
    with pytest.raises(Exception, match="the link must be one that this page has made"):
        Links(pocket).restore("?" + "a=b&" * 5000)


def test_nothing_to_save_is_said() -> None:
    assert "Ask first" in json.loads(away.save_json(None))["said"]
    assert "Ask first" in json.loads(away.save_csv(None))["said"]


def test_a_stopped_answer_can_be_taken_away(pocket: Handlers) -> None:
    image = open_image(pocket.examples[0].image)
    running = pocket.service.ask(
        "pocket", image, "What is the total?", columns_for(CHOSEN, []), 64, "s"
    )
    for run in running:
        if run.chosen.pieces:
            pocket.service.stop("s")
    got = json.loads(carry.as_json(run))
    assert got["turns"][0]["columns"][BASELINE]["stopped"] is True
    assert carry.as_csv(run).count("\n") == 3
