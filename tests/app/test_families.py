"""Every family through every door, from a folder as the hub has it: a small random model, the real
processor class's parts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rotatek.cli.main import main
from rotatek.engine.engine import Engine
from rotatek.methods.settings import Settings
from rotatek.models import load
from rotatek.page.ask.events import AskEvents
from rotatek.page.form import values_of
from rotatek.page.inspect import events as inspect
from rotatek.page.page_context import PageContext
from rotatek.service.model_list import Model
from rotatek.service.service import Service
from tests.families import EVERY, save_known, save_unknown
from tests.fixtures import Picture
from tests.hand_made import MADE, save_made

# transformers 5.17's processor of InternVL counts tiles in a way that NumPy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")
UNKNOWN = "other"
QUESTION = "What is the total?"


@pytest.fixture(scope="module", params=[*EVERY, UNKNOWN, *sorted(MADE.keys() - EVERY)])
def folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A checkpoint: weights, tokenizer, processor, which may be one made by hand."""
    made = tmp_path_factory.mktemp("checkpoint")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == UNKNOWN:
            save_unknown(made)
        elif request.param in EVERY:
            save_known(request.param, made)
        else:
            save_made(request.param, made, patch)
        yield made


@pytest.fixture
def shown(picture: Picture, tmp_path: Path) -> str:
    picture(100, 60).save(tmp_path / "shown.png")
    return str(tmp_path / "shown.png")


def said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    out, err = capsys.readouterr()
    assert "Something went wrong" not in err
    return [json.loads(line) for line in out.splitlines()]


def test_the_commands(
    folder: Path, shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["--model", str(folder), "--max-new-tokens", "4"]
    fastv = ["--tokens", "fastv", "--keep-tokens", "0.5"]
    assert main(["ask", *model, "--keep-channels", "0.25", "--json", shown, QUESTION]) == 0
    (asked,) = said(capsys)
    assert asked["visual_tokens"] > 0 and asked["kv_bytes"] > 0
    assert main(["compare", *model, *fastv, "--json", shown, QUESTION]) == 0
    compared = said(capsys)
    assert len(compared) > 2 and not [row for row in compared if row.get("error")]
    line = {"image": "shown.png", "question": QUESTION, "answers": ["1"]}
    (tmp_path / "suite.jsonl").write_text(json.dumps(line))
    (tmp_path / "rows.json").write_text(json.dumps({"half": {"keep_channels": 0.5}}))
    rows = ["--settings", str(tmp_path / "rows.json"), "--short-tokens", "4"]
    suite = ["--suite", str(tmp_path / "suite.jsonl"), *rows]
    assert main(["evaluate", *model[:2], *suite, "--out", str(tmp_path / "out")]) == 0


def test_the_page(folder: Path, shown: str) -> None:
    vlm = load(folder, "cpu")
    service = Service([Model("own", "Own", str(folder))], lambda source: Engine(vlm))
    events, picture = AskEvents(PageContext(service)), Image.open(shown)
    form = values_of(Settings.of(keep_channels=0.25))
    *_, last = events.ask(
        image=picture, question=QUESTION, model="own", max_new_tokens=4, others=[], **form
    )
    run = last["run"]
    assert events.count(picture, "own")["count"] == run.chosen.prefilled.visual_tokens
    assert not [column.failure for column in run.columns.values() if column.failure]
    assert all(column.finished for column in run.columns.values()) and run.trace is not None
    assert bool(run.trace.grids) == (vlm.family != UNKNOWN)
    drawn = json.loads(inspect.redraw(run, "energy", 1, 0, 0, **form)["drawn"])["figures"]
    assert {"raw", "rotated", "attention", "map"} <= set(drawn)
    assert json.loads(inspect.overview(run)["overview"])["figures"]["kept"]
