"""A method that another package adds has its controls, its API fields, and its columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import gradio as gr
import pytest

from rotatek.methods.channels import CHANNELS, ChannelMethod, LayerStates, Store, full_visual
from rotatek.methods.options import choice, option
from rotatek.methods.settings import Settings
from rotatek.page.ask import settings
from rotatek.page.ask.widgets import add_ask
from rotatek.page.binding import Widgets
from rotatek.page.form import settings_of, values_of
from rotatek.page.links import decode, encode
from rotatek.page.page_context import PageContext
from rotatek.service.model_list import presets
from rotatek.service.service import Service


@dataclass(frozen=True)
class Leading(ChannelMethod):
    """Keeps the first channels of every head: a poor method."""

    name: ClassVar[str] = "leading"
    label: ClassVar[str] = "Leading"
    summary: ClassVar[str] = "The first channels of every head."
    colour: ClassVar[str] = "#123456"

    keep: float = option(
        0.5, "Channel sparsity", "share of the channels that stays, in (0, 1]", kind="fraction",
        key="keep_channels", place="main",
    )  # fmt: skip
    order: str = choice(
        "up", "Order of the channels", "from the first, or from the last",
        [("up", "from the first"), ("down", "from the last")], key="leading_order",
    )  # fmt: skip
    rounds: int = option(
        1, "Rounds", "how often it looks", kind="integer", low=1, key="leading_rounds"
    )
    table: str | None = option(None, "Table", "a file", kind="path", key="leading_table")

    def compress(self, states: LayerStates) -> Store:
        """Zeroes stand for what is not kept."""
        kept = int(self.keep * states.keys.shape[-1])
        keys = states.keys.clone()
        keys[..., kept:] = 0
        return Store(full_visual(states)._replace(keys=keys))

    @classmethod
    def presets(cls) -> MappingProxyType[str, ChannelMethod]:
        """Half of the channels."""
        return MappingProxyType({"75 %: the leading half": cls()})


@pytest.fixture
def leading() -> Iterator[type[Leading]]:
    """Registered as by an entry point, for one test."""
    before = CHANNELS.all
    vars(CHANNELS)["all"] = MappingProxyType({**before, "leading": Leading})
    yield Leading
    vars(CHANNELS)["all"] = before


def controls(service: Service) -> Widgets:
    made = Widgets()
    with gr.Blocks():
        add_ask(made, PageContext(service))
    return made


def test_its_options_have_controls_while_it_is_chosen(
    leading: type[Leading], service: Service
) -> None:
    made = controls(service)
    assert ("Leading", "leading") in made["channels"].choices
    assert ("Leading", "leading") in made["others"].choices
    assert isinstance(made["leading_order"], gr.Dropdown)
    assert isinstance(made["leading_rounds"], gr.Number)
    assert "leading_table" not in made and not made["leading_order"].visible
    shown = settings.choose_methods("none", "leading")
    visible = {key for key, update in shown.items() if update["visible"]}
    assert visible == {"leading_order", "leading_rounds"}
    assert shown.keys() <= made.keys()
    assert "75 %: the leading half" in [value for _, value in made["preset"].choices]


def test_what_it_is_set_to_survives_form_link_and_exports(leading: type[Leading]) -> None:
    chosen = Settings(channels=Leading(keep=0.25, order="down", rounds=3))
    form = values_of(chosen)
    shown = [form[name] for name in ("keep_channels", "leading_order", "leading_rounds")]
    assert shown == [0.75, "down", 3]
    assert settings_of(form) == chosen == decode(encode(chosen))
    assert "leading_table" not in encode(Settings(channels=Leading(table="/etc/passwd")))
    with pytest.raises(Exception, match="leading_table"):
        decode("channels:leading,leading_table:/etc/passwd")
    assert settings_of(values_of(presets()["75 %: the leading half"])).channels == Leading()
