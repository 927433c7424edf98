"""Where servers listen, and under which names: what cannot be is said before a model is loaded."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import httpx
import pytest

from rotatek import errors
from rotatek.cli import main as command
from rotatek.service import listening
from rotatek.service.model_list import models_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def taken() -> Any:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        yield held.getsockname()[1]


@pytest.mark.parametrize(
    ("words", "keys", "says"),
    [
        (["--port", "80000"], None, "The port must be a whole number from 0 to 65535; got 80000."),
        (["--port", "-1"], None, "The port must be a whole number from 0 to 65535; got -1."),
        (["--host", "nowhere.invalid"], None, "There is no address 'nowhere.invalid' here."),
        (["--port", "{taken}"], None, "cannot be listened at"),
        ([], "", "The file of API keys has no key."),
        ([], "\n \t\n", "The file of API keys has no key."),
        ([], "# of the team, one a line\n", "The file of API keys has no key."),
        ([], None, "ROTATEK_API_KEYS has no key."),
    ],
)
def test_a_server_that_cannot_start_says_why(
    words: list[str], keys: str | None, says: str, taken: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """In a sentence, with status 2, and before any model is loaded."""
    monkeypatch.setattr("rotatek.models.load", None)
    if says.startswith("ROTATEK"):
        monkeypatch.setenv("ROTATEK_API_KEYS", " ")
    if keys is not None:
        (tmp_path / "keys").write_text(keys)
        words = ["--api-keys", str(tmp_path / "keys")]
    assert command.main(["serve", *(word.format(taken=taken) for word in words)]) == 2
    err = capsys.readouterr().err
    assert says in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [("PORT", "80000", "The port must be"), ("PORT", "", "GRADIO_SERVER_PORT must be"),
     ("PORT", "http", "GRADIO_SERVER_PORT must be"), ("NAME", "nowhere.invalid", "no address")],
)  # fmt: skip
def test_a_page_that_cannot_listen_says_why(
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv(f"GRADIO_SERVER_{name}", value)
    assert command.main(["page"]) == 2
    assert says in capsys.readouterr().err


def test_models_have_names_that_tell_them_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("first/m", "second/m", "pocket"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    names = {
        ("first/m", "second/m"): ["first/m", "second/m"],
        ("Org/m-7b", "first/m"): ["m-7b", "m"],
        ("A/m-7b", "B/m-7b", "m"): ["A/m-7b", "B/m-7b", "m"],
        ("pocket", "pocket"): ["pocket"],
        ("first/m", str(tmp_path / "second/m")): ["first/m", "second/m"],
    }
    for sources, expected in names.items():
        assert [model.name for model in models_of(sources)] == expected


def test_uploads_are_kept_in_a_folder_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(listening.UPLOADS, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    listening.own_uploads()
    folder = Path(os.environ[listening.UPLOADS])
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o77 == 0
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(listening.UPLOADS, str(tmp_path / "file"))
    with pytest.raises(errors.UserError, match=listening.UPLOADS):
        listening.own_uploads()


def test_this_machine_is_reached_past_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "example.org")
    listening.past_proxies()
    assert os.environ["NO_PROXY"].startswith("example.org,")
    assert urllib.request.proxy_bypass("127.0.0.1") and urllib.request.proxy_bypass("localhost")
    monkeypatch.setenv("no_proxy", "*")
    listening.past_proxies()
    assert urllib.request.proxy_bypass("example.net")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_server_that_is_asked_to_leave_ends_with_0(checkpoint: Path) -> None:
    words = ["serve", "--model", str(checkpoint), "--device", "cpu", "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "rotatek", *words], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            line = next(line for line in process.stderr if "running on" in line)
            (address,) = re.findall(r"http://[\d.:]+", line)
            assert httpx.get(f"{address}/health").json()["status"] == "ready"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
