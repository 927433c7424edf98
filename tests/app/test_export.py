"""Exports: files, programs that give the same answer again, links; and the Results tab."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import gradio as gr
import plotly.graph_objects as go
import pytest

from rotatek import RotateK, Sampling, Settings, open_image
from rotatek.errors import SettingError
from rotatek.evaluation.answers import Answer, append, begin
from rotatek.evaluation.tables import UNCOMPRESSED
from rotatek.methods.columns import titled
from rotatek.page import export, results
from rotatek.page.ask.answers import cards
from rotatek.page.export import ExportEvents
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
    """Two turns about the first example, three columns, the second one drawn with a seed."""
    image = open_image(pocket.examples[0].image)
    columns = titled(CHOSEN, [BEYOND])
    service = pocket.service
    *_, run = service.ask("pocket", image, "What is the total?", columns, 24, "v", talk=True)
    drawn = Sampling(temperature=0.9)
    *_, later = service.follow(run, 'And "the" shop\'s name?', 20, "v", drawn)
    return later


def run_program(text: str) -> str:
    """The output of a Python program."""
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(text, "snippet", "exec"), {"__name__": "snippet"})
    return out.getvalue()


def test_file_and_program_give_the_same_answers(
    pocket: PageContext, talk: Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With temperature and seed."""
    monkeypatch.chdir(root)
    assert f"Path(&#x27;{IMAGE}&#x27;)" in ExportEvents(pocket).code(talk)["code"]
    printed, told = run_program(export.python(talk, IMAGE)), json.loads(export.as_json(talk))
    seed = talk.turns[1].sampling.seed
    assert seed is not None and f"the seed {seed}" in cards(talk, on_cpu=True)["further"]
    sampled = [{}, {"temperature": 0.9, "seed": seed}]
    for turn, own, sampling in zip(talk.turns, told["turns"], sampled, strict=True):
        for title, column in turn.columns.items():
            done = present(column.finished)
            size = done.metrics["kv_bytes"]
            assert f"{title}: {done.answer} ({size} bytes)" in printed
            said = own["columns"][title]
            assert (said["answer"], said["kv_bytes"]) == (done.answer, size)
            assert sum(said["kv_bytes_by_part"].values()) == size
            assert said["sampling"] == sampling
            assert Settings.from_dict(said["settings"]) == column.settings


@pytest.mark.parametrize(
    "query",
    ["", "?__theme=dark", "?image=../../etc/passwd&model=/etc/passwd", "?length=1e9", "?x=think",
     "?t=1e9"],
)  # fmt: skip
def test_a_link_that_says_nothing_changes_nothing(pocket: PageContext, query: str) -> None:
    assert ExportEvents(pocket).restore(query) == {}
    for bad in ("s=tokens:evil", "a=b&" * 5000):
        with pytest.raises(SettingError, match=r"tokens must be one of|that this page has made"):
            ExportEvents(pocket).restore("?" + bad)


# -- the Results tab: one figure and one table of a file of answers ----------------------------

SETTINGS = {  # score of the follow-ups, bytes of 1,000
    UNCOMPRESSED: (1.0, 1000), "RotateK, smaller 5": (0.75, 200),
    "RotateK, channels .25": (0.5, 400), "SnapKV, tokens .4": (0.25, 450), "<b>": (0.0, 300),
}  # fmt: skip


def answers_file(path: Path, models: tuple[str, ...] = ("tiny",)) -> Path:
    """Four follow-ups a setting and split, and first questions, which do not count."""
    rows = []
    for model in models:
        for setting, (score, size) in SETTINGS.items():
            for number in range(8):
                turn, split = 1 + number % 2, ("easy", "hard")[number // 4]
                right = turn == 2 and number // 2 < 4 * score
                rows.append(Answer(model, split, f"p{number}#{turn}", setting, turn, "x",
                                   float(right), right, size, 1000, 9, None))  # fmt: skip
    begin(path)
    append(path, rows)
    return path


def test_follow_ups_are_drawn_and_listed(tmp_path: Path) -> None:
    found = results.read(answers_file(tmp_path / "answers.csv.gz", ("tiny", "other")))
    assert list(found) == ["tiny", "other"] and len(found["tiny"]) == len(SETTINGS)
    assert {one.setting: one.score for one in found["tiny"]} == {
        setting: score for setting, (score, _) in SETTINGS.items()
    }
    drawing = results.figure(found["tiny"])
    go.Figure(data=drawing.figure.data, layout=drawing.figure.layout)
    lines = {one["name"]: one["y"].tolist() for one in drawing.figure.data if one.get("name")}
    # a quarter of the channels scores less in more bytes than `smaller`
    assert lines == {RotateK.label: [75.0], "SnapKV": [25.0], "<b>": [0.0]}
    assert drawing.figure.layout["shapes"][0]["y0"] == 100.0
    listed = results.table(found["tiny"])
    assert listed.count("<tr>") == 1 + len(SETTINGS)
    assert "<b>" not in listed and "&lt;b&gt;" in listed
    assert "<td>20 %</td>" in listed and "75.0 % (" in listed


def test_without_a_file_the_tab_says_how_to_make_one(tmp_path: Path) -> None:
    with gr.Blocks() as page, gr.Tabs(), gr.Tab("Results") as tab:
        results.results_part(tmp_path / "none.csv.gz", tab)
    words = [str(block.value) for block in page.blocks.values() if isinstance(block, gr.HTML)]
    assert any(results.MISSING in one for one in words)
