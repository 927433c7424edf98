"""A method that another package adds has its controls, its API fields, and its columns."""

from types import MappingProxyType

import gradio as gr
import pytest

from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings
from rotatek.page import settings
from rotatek.page.ask.widgets import add_ask
from rotatek.page.binding import Widgets
from rotatek.page.export import decode, encode
from rotatek.page.inspect.drawings import mask_frames
from rotatek.page.page_context import PageContext
from rotatek.page.settings import settings_of, values_of
from rotatek.service.service import Service
from tests.plugins.own_methods import Loudest


@pytest.fixture(autouse=True)
def loudest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered as by an entry point, for one test."""
    more = dict(CHANNELS.all) | {Loudest.name: Loudest}
    monkeypatch.setitem(vars(CHANNELS), "all", MappingProxyType(more))


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


def test_what_it_is_set_to_survives_form_and_link() -> None:
    chosen = Settings(channels=Loudest(keep=0.25, norm="one"))
    form = values_of(chosen)
    assert (form["keep_channels"], form["loudness_norm"]) == (0.75, "one")
    assert settings_of(form) == chosen == decode(encode(chosen))
