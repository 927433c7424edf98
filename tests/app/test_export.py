"""What is taken away: files, programs, links, results; settings as a form, text and columns."""

import io
import json
import math
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import MappingProxyType

import gradio as gr
import numpy as np
import pytest
from PIL import Image

from rotatek import BASELINE, Sampling, Settings, open_image
from rotatek.engine.events import Likely, Token
from rotatek.errors import SettingError
from rotatek.evaluation.answers import Answer, append, begin
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import titled
from rotatek.page import export, results, settings
from rotatek.page.ask import answers
from rotatek.page.ask.answers import cards
from rotatek.page.ask.widgets import add_ask
from rotatek.page.binding import Widgets
from rotatek.page.export import ExportEvents, decode, encode
from rotatek.page.inspect.drawings import mask_frames
from rotatek.page.page_context import PageContext
from rotatek.page.settings import settings_of, values_of
from rotatek.paths import assets
from rotatek.service.model_list import Model, load_examples
from rotatek.service.service import Run, Service, start
from tests.fixtures import present
from tests.plugins.own_methods import Loudest

CHOSEN = Settings.of(tokens="fastv", keep_tokens=0.6, keep_channels=0.5)
BEYOND = Settings.of(smaller=4)
IMAGE = "assets/examples/receipt.png"


@pytest.fixture(scope="module")
def pocket() -> Iterator[PageContext]:
    """The embedded model and the gallery, as visitors meet them."""
    service = Service([Model("pocket", "Pocket", "pocket")])
    yield PageContext(service, load_examples(assets() / "examples"))
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
    pocket: PageContext, talk: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With temperature and seed."""
    monkeypatch.chdir(assets().parent)
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

MEASURED = {  # score of the follow-ups, bytes of 1,000
    "uncompressed": (1.0, 1000), "RotateK, smaller 5": (0.75, 200),
    "RotateK, channels .25": (0.5, 400), "SnapKV, tokens .4": (0.25, 450), "<b>": (0.0, 300),
}  # fmt: skip


def answers_file(path: Path, models: tuple[str, ...] = ("tiny",)) -> Path:
    """Four follow-ups a setting and split, and first questions, which do not count."""
    rows = []
    for model in models:
        for setting, (score, size) in MEASURED.items():
            for number in range(8):
                turn, split = 1 + number % 2, ("easy", "hard")[number // 4]
                right = turn == 2 and number // 2 < 4 * score
                rows.append(Answer(model, split, f"p{number}#{turn}", setting, turn, "x",
                                   float(right), right, size, 1000, 9, None))  # fmt: skip
    begin(path)
    append(path, rows)
    return path


def test_follow_ups_are_drawn_and_listed(tmp_path: Path) -> None:
    path = answers_file(tmp_path / "answers.csv.gz", ("tiny", "other"))
    found, drawn = results.read(path), results.drawn(path)
    assert list(found) == ["tiny", "other"] and len(found["tiny"]) == len(MEASURED)
    assert {one.setting: one.score for one in found["tiny"]} == {
        setting: score for setting, (score, _) in MEASURED.items()
    }
    assert "<b>" not in drawn and "RotateK, smaller 5: 75.0 at 0.200" in drawn
    assert drawn.count("<circle") == 2 * (len(MEASURED) - 1)  # the uncompressed one is a rule
    listed = results.table(found["tiny"])
    assert listed.count("<tr>") == 1 + len(MEASURED)
    assert "<b>" not in listed and "&lt;b&gt;" in listed
    assert "<td>20 %</td>" in listed and "75.0 % (" in listed


# -- settings as a form, as short text and as columns; where answers part ----------------------


def test_every_column_has_its_place(service: Service, image: Image.Image) -> None:
    """Also where the second one drops nothing, and with further ones."""
    for chosen, others in ((CHOSEN, ["think"]), (BASELINE, [])):
        columns = settings.columns_of(chosen, 8, others)
        *_, run = service.ask("tiny", image, "Which?", columns, 4)
        shown = answers.cards(run, on_cpu=True)
        places = [place for place, html in shown.items() if "<article" in html]
        own = [] if chosen.is_baseline else ["card_1"]
        assert places == ["card_0", *own, "card_2", *(["further"] if others else [])]
        assert "8 times smaller" in shown["card_2"]


def test_where_answers_part_and_how_close_they_stay(image: Image.Image) -> None:
    run = start(titled(Settings(), []), np.asarray(image), "?")
    first, own = run.columns.values()

    def say(title: str, words: list[tuple[str, float, str, float]]) -> None:
        for at, (word, share, other, rest) in enumerate(words):
            likely = [Likely(w, w.encode(), math.log(p)) for w, p in ((word, share), (other, rest))]
            told = first.pieces[at : at + 1] != [word] and title == own.title
            run.take(Token(title, at, at, word, 1.0, told, 0.5, share, (likely[0], *likely)))

    say(first.title, [("a", 0.9, "x", 0.1), ("<b>", 0.61, "c", 0.3)])
    say(own.title, [("a", 0.55, "x", 0.45)])
    assert answers.place(own, first) == (1, True)  # it ends early
    own.tokens = []
    say(own.title, [("a", 0.55, "x", 0.45), ("<b>", 0.9, "c", 0.1)])
    assert answers.place(own, first) == (0, False)
    assert "closest at token 1: .55 against .45" in answers.parting(own, first)
    own.tokens = []
    say(own.title, [("a", 0.9, "x", 0.1), ("c", 0.44, "<b>", 0.3)])
    html = answers.parting(own, first)
    assert "Parts at token 2: <b>&lt;b&gt;</b> (.61) there, <b>c</b> (.44) here" in html
    assert html.count("data-token") == 2 and "<b>x</b> (.10)" in html
    assert "in 50 % of places; logit KL 0.5 nats a token" in answers.reading(own)


# -- a method that another package adds has its controls, and its text -------------------------


@pytest.fixture
def loudest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered as by an entry point, for one test."""
    more = dict(CHANNELS.all) | {Loudest.name: Loudest}
    monkeypatch.setitem(vars(CHANNELS), "all", MappingProxyType(more))


@pytest.mark.usefixtures("loudest")
def test_its_options_have_controls_while_it_is_chosen(service: Service) -> None:
    made = Widgets()
    with gr.Blocks():
        add_ask(made, PageContext(service))
    assert ("Loudest channels", "loudest") in made["channels"].choices
    assert ("Loudest channels", "loudest") in made["others"].choices
    assert isinstance(made["loudness_norm"], gr.Dropdown) and not made["loudness_norm"].visible
    shown = settings.choose_methods("none", "loudest")
    assert {key for key, update in shown.items() if update["visible"]} == {"loudness_norm"}
    assert shown.keys() <= made.keys() and "mask-loudest" in mask_frames()


@pytest.mark.usefixtures("loudest")
def test_what_it_is_set_to_survives_form_and_link() -> None:
    chosen = Settings(channels=Loudest(keep=0.25, norm="one"))
    form = values_of(chosen)
    assert (form["keep_channels"], form["loudness_norm"]) == (0.75, "one")
    assert settings_of(form) == chosen == decode(encode(chosen))
