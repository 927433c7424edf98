"""Failures of the hub are one sentence in each interface: the commands, the page, the API."""

import shutil
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from rotatek.cli.main import main
from rotatek.engine.engine import Engine
from rotatek.methods.settings import Settings
from rotatek.page.api import Endpoints
from rotatek.page.ask.events import AskEvents
from rotatek.page.form import values_of
from rotatek.page.page_context import PageContext
from rotatek.service.model_list import Model
from rotatek.service.service import Service
from tests.fixtures import Picture

FAULTS = {
    "gated": ("org/gated", "Accept its terms on its page of the hub"),
    "wrong": ("org/none", "Check the spelling"),
    "unreachable": ("org/small", "Check the connection and try again"),
    "full": ("org/small", "Free some space, or set HF_HOME"),
}


@pytest.fixture(params=FAULTS)
def fault(
    request: pytest.FixtureRequest, hub: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """A model's name, and what is said of it."""
    if request.param == "unreachable":
        hub.shutdown()
        hub.server_close()
    if request.param == "full":
        usage = shutil.disk_usage("/")._replace(free=50_000_000)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    return FAULTS[request.param]


@pytest.mark.parametrize("command", ["ask", "compare", "serve"])
def test_a_command_says_it_and_ends(
    fault: tuple[str, str],
    command: str,
    picture: Picture,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    picture(64, 48).save(tmp_path / "shown.png")
    asked = [str(tmp_path / "shown.png"), "What is it?"] if command != "serve" else []
    assert main([command, "--model", fault[0], "--device", "cpu", *asked]) == 2
    out, err = capsys.readouterr()
    assert not out and fault[1] in err and "Traceback" not in err
    said = [line for line in err.splitlines() if fault[1] in line]
    assert len(said) == 1


def test_the_page_and_its_api_say_it(fault: tuple[str, str], picture: Picture) -> None:
    service = Service([Model("own", "Own", fault[0])], lambda source: Engine(source, "cpu"))
    request = {
        "image": picture(64, 48), "question": "?", "model": "own", "max_new_tokens": 4,
    }  # fmt: skip
    form = values_of(Settings.of(keep_channels=0.25))
    with pytest.warns(UserWarning, match=fault[1]):
        *_, last = AskEvents(PageContext(service)).ask(**request, others=[], **form)
    assert fault[1] in last["status"] and last["ask"]["interactive"] is True
    with pytest.raises(Exception, match=fault[1]):
        list(Endpoints(service).ask(**request))
    assert not service.busy()
