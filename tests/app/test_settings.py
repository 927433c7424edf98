"""Settings as a form, as short text and as columns; what goes beyond the paper; agreement."""

import math
from types import MappingProxyType

import gradio as gr
import numpy as np
import pytest
from PIL import Image

from rotatek.engine.events import Likely, Token
from rotatek.methods.channels import CHANNELS
from rotatek.methods.columns import UNCOMPRESSED, title_of, titled
from rotatek.methods.settings import BASELINE, Settings
from rotatek.page import settings
from rotatek.page.ask import answers, card
from rotatek.page.ask.widgets import add_ask
from rotatek.page.binding import Widgets
from rotatek.page.export import decode, encode
from rotatek.page.inspect.drawings import mask_frames
from rotatek.page.page_context import PageContext
from rotatek.page.settings import settings_of, values_of
from rotatek.service.run import start
from rotatek.service.service import Service
from tests.plugins.own_methods import Loudest

SETTINGS = [
    Settings(),
    Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=0.25),
    Settings.of(tokens="visionzip", keep_tokens=0.45, channels="think", keep_channels=0.5),
    Settings.of(tokens="fastv", keep_tokens=0.25, channels="full", keep_channels=1.0),
    Settings.of(weighting="none", keep_channels=0.1),
]


@pytest.mark.parametrize("chosen", SETTINGS, ids=encode)
def test_settings_survive_widgets_and_text(chosen: Settings) -> None:
    assert settings_of(values_of(chosen)) == chosen
    assert decode(encode(chosen)) == chosen


def test_columns_have_titles_of_their_own() -> None:
    chosen = Settings.of(tokens="fastv", keep_tokens=0.4)
    narrower = Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=0.1)
    narrowest = Settings.of(tokens="fastv", keep_tokens=0.4, keep_channels=0.1, weighting="none")
    columns = titled(chosen, [chosen, narrower, narrowest, BASELINE])
    assert list(columns) == [
        UNCOMPRESSED, "FastV + RotateK", "FastV + RotateK, 22 %", "FastV + RotateK, 2"
    ]  # fmt: skip
    assert list(titled(BASELINE, [])) == [UNCOMPRESSED]
    assert title_of(Settings.of(smaller=8)).startswith("RotateK (8 times smaller")


def test_every_column_has_its_place(service: Service, image: Image.Image) -> None:
    """Also where the second one drops nothing, and with further ones."""
    for chosen, others in ((SETTINGS[1], ["think"]), (BASELINE, [])):
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
    assert card.place(own, first) == (1, True)  # it ends early
    own.tokens = []
    say(own.title, [("a", 0.55, "x", 0.45), ("<b>", 0.9, "c", 0.1)])
    assert card.place(own, first) == (0, False)
    assert "closest at token 1: .55 against .45" in card.parting(own, first)
    own.tokens = []
    say(own.title, [("a", 0.9, "x", 0.1), ("c", 0.44, "<b>", 0.3)])
    html = card.parting(own, first)
    assert "Parts at token 2: <b>&lt;b&gt;</b> (.61) there, <b>c</b> (.44) here" in html
    assert html.count("data-token") == 2 and "<b>x</b> (.10)" in html
    assert "in 50 % of places; logit KL 0.5 nats a token" in card.reading(own)


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
