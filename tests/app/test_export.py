"""Exports: files with the measurements, code that gives the same answer again, links."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from PIL import Image

from rotatek.errors import SettingError
from rotatek.inputs.request import open_image
from rotatek.inputs.sampling import Sampling
from rotatek.methods.columns import titled
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
IMAGE = "assets/examples/receipt.png"


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
    drawn: Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temperature and seed are in the file and the program."""
    monkeypatch.chdir(root)
    first, later = drawn.turns
    assert first.sampling.seed is not None and later.sampling.seed == 0
    told = json.loads(export.as_json(drawn))["turns"]
    own = [[column["sampling"] for column in turn["columns"].values()] for turn in told]
    assert own == [
        [{"temperature": 0.9, "seed": first.sampling.seed}] * 2,
        [{"temperature": 1.1, "seed": 0}] * 2,
    ]
    printed = run_program(export.python(drawn, IMAGE))
    for turn in drawn.turns:
        for title, column in turn.columns.items():
            assert f"{title}: {present(column.finished).answer} (" in printed
    assert f"the seed {first.sampling.seed}" in cards(first, on_cpu=True)["further"]


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
    assert f"Path(&#x27;{IMAGE}&#x27;)" in ExportEvents(pocket).code(talk)["code"]
    printed = run_program(export.python(talk, IMAGE))
    for turn in talk.turns:
        for title, column in turn.columns.items():
            done = present(column.finished)
            assert f"{title}: {done.answer} ({done.metrics['kv_bytes']} bytes)" in printed


def test_a_link_restores_the_page(pocket: PageContext) -> None:
    links, image = ExportEvents(pocket), open_image(pocket.examples[2].image)
    asked = {"question": "What & why?", "model": "pocket", "max_new_tokens": 64, "times": 12}
    form = values_of(CHOSEN)
    sent = json.loads(
        links.share(image, **asked, others=["think", "full"], what_if=["only:1.0"], **form)["sent"]
    )
    assert "Your own image" not in sent["said"] and len(sent["query"]) < 400
    shown = links.restore("?" + sent["query"] + "&__theme=dark")
    assert shown["image"] == str(pocket.examples[2].image) and shown["preset"] is None
    assert {name: shown[name] for name in asked} == asked
    assert shown["others"] == ["think", "full"] and settings_of(shown) == CHOSEN
    assert shown["what_if"]["value"] == ["only:1.0"]
    assert "Press Ask for their answers" in shown["status"]
    own = links.share(Image.new("RGB", (40, 50)), **asked, **form)["sent"]
    assert "Your own image is not part of it" in own and "image=" not in own


@pytest.mark.parametrize(
    "query",
    ["", "?", "?__theme=dark", "?image=../../etc/passwd&model=/etc/passwd", "?length=1e9", "?q",
     "?length=99999", "?x=think", "?t=1", "?t=1e9", "?t=99999999"],
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
