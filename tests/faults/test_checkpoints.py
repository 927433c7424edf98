"""Checkpoints that are damaged, incomplete or foreign: each is refused in a sentence, and none
runs code of its own."""

import contextlib
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from rotatek import errors
from rotatek.models import load, loading, memory
from rotatek.models.assembly import at_hand
from rotatek.models.download import Progress, downloading, fetch
from rotatek.models.loading import CHECKPOINTS, POCKET, card_line, fitting
from tests.tiny import tiny_qwen


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "copy"))


def shard(path: Path) -> Path:
    return sorted(path.glob("*.safetensors"))[0]


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: shard(path).write_bytes(change(shard(path).read_bytes()))


def typed(kind: str) -> Callable[[Path], object]:
    return lambda path: (path / "config.json").write_text(f'{{"model_type": "{kind}"}}')


BROKEN: dict[str, tuple[Callable[[Path], object], type[errors.UserError], str]] = {
    "no folder": (shutil.rmtree, errors.WeightsMissing, "There is no model"),
    "no weights": (lambda path: shard(path).unlink(), errors.WeightsMissing, "not all there"),
    "no configuration": (
        lambda path: (path / "config.json").unlink(), errors.WeightsMissing, "There is no model",
    ),
    "half a configuration": (
        lambda path: (path / "config.json").write_text('{"model_ty'),
        errors.WeightsMissing,
        "not all there",
    ),
    "cut weights": (rewritten(lambda data: data[:100_000]), errors.WeightsDamaged, ""),
    "scribbled weights": (rewritten(lambda d: b"\xff" * 8 + d[8:]), errors.WeightsDamaged, ""),
    "a model that sees nothing": (typed("bert"), errors.ModelUnsupported, "no image-text-to-text"),
    "a type of tomorrow": (typed("tomorrow_vl"), errors.ModelUnsupported, "a newer transformers"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_checkpoints(name: str, copy: Path) -> None:
    damage, kind, says = BROKEN[name]
    damage(copy)
    with pytest.raises(errors.UserError) as caught:
        load(copy, "cpu")
    said = caught.value.message
    assert type(caught.value) is kind and says in said
    assert "Traceback" not in said and "0x" not in said and str(copy.parent) not in said


def test_code_of_a_checkpoint_is_neither_run_nor_offered(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default transformers asks at the terminal."""
    asked: list[str] = []

    def agree(text: str = "") -> str:
        asked.append(text)
        return "y"

    monkeypatch.setattr("builtins.input", agree)
    own = {"auto_map": {"AutoConfig": "own.Own", "AutoTokenizer": ["own.Own", "own.Own"]}}
    (copy / "own.py").write_text("raise SystemExit")
    file = copy / "tokenizer_config.json"
    named = {**json.loads(file.read_text()), **own, "tokenizer_class": "OwnTokenizer"}
    file.write_text(json.dumps(named))
    with contextlib.suppress(errors.UserError):
        load(copy, "cpu")
    (copy / "config.json").write_text(json.dumps({"model_type": "own", **own}))
    for look in (load, card_line):
        with pytest.raises(errors.ModelUnsupported, match="a checkpoint's own code is not run"):
            look(str(copy))
    assert not asked


# -- models against memory: what they need, what is free, and what is said where it does not fit --


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "free_bytes", lambda device: 30_000_000)
    monkeypatch.setattr(loading, "AutoModelForImageTextToText", None)
    with pytest.raises(errors.ModelTooLarge) as caught:
        load(POCKET, "cpu")
    assert "needs about 0.7 GB and cpu has 0.0 GB free" in caught.value.message


def test_memory_that_ends_while_loading_is_not_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader:
        @staticmethod
        def from_config(config: object, **options: object) -> torch.nn.Module:
            return tiny_qwen().model

        @staticmethod
        def from_pretrained(*args: object, **options: object) -> None:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(loading, "AutoModelForImageTextToText", Reader)
    with pytest.raises(errors.OutOfMemory):
        load(POCKET, "cpu")


def test_what_is_offered_follows_the_room_and_is_pinned() -> None:
    here = [name for name, c in CHECKPOINTS.items() if at_hand(c.source)]
    small = [name for name in here if CHECKPOINTS[name].gigabytes < 1]
    assert fitting(0) == small and "pocket" in small
    assert "qwen2.5-vl-7b" in fitting(24 * memory.GB)
    assert "llava-next-8b" not in fitting(24 * memory.GB)
    assert fitting(80 * memory.GB) == here
    for checkpoint in CHECKPOINTS.values():
        if checkpoint.gigabytes >= 1:
            assert len(checkpoint.revision or "") == 40 and int(checkpoint.revision or "", 16)


# -- from the hub: fetched with progress, kept, and refused in one sentence --------------------

COMMIT = "a" * 40
FILES = {
    "config.json": b'{"model_type": "idefics3"}',
    "model.safetensors": bytes(3_000_000),
    "onnx/model.json": b"{}",
}


class Hub(BaseHTTPRequestHandler):
    """As much of a hub as its client asks for: org/small is there, org/gated is gated."""

    def log_message(self, *args: object) -> None:
        """Silence."""

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        if "/org/gated" in path:
            return self._send(403, b"", {"X-Error-Code": "GatedRepo"}, with_body)
        if "/org/broken" in path:
            return self._send(500, b"", {}, with_body)
        if "/org/small" not in path:
            return self._send(401, b"", {"X-Error-Code": "RepoNotFound"}, with_body)
        if path.startswith("/api/"):
            return self._send(200, json.dumps(self._listing(path)).encode(), {}, with_body)
        body = FILES[path.split(f"/resolve/{COMMIT}/")[1]]
        marks = {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": COMMIT}
        return self._send(200, body, marks, with_body)

    def _listing(self, path: str) -> object:
        if "/tree/" in path:
            return [
                {"type": "file", "path": name, "size": len(body), "oid": name}
                for name, body in FILES.items()
            ]
        names = [{"rfilename": name} for name in FILES]
        return {"id": "org/small", "sha": COMMIT, "siblings": names}

    def _send(self, status: int, body: bytes, marks: dict[str, str], with_body: bool) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **marks}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    """A small hub that the hub's own client talks to."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    yield server
    server.shutdown()
    server.server_close()


def test_a_checkpoint_is_fetched_once_with_progress(hub: ThreadingHTTPServer) -> None:
    progress = Progress()
    with downloading(progress):
        folder = Path(fetch("org/small"))
    assert {file.name for file in folder.iterdir()} == {"config.json", "model.safetensors"}
    assert progress.done == progress.total == 3_000_000 + len(FILES["config.json"])
    hub.shutdown()
    hub.server_close()
    assert fetch("org/small") == str(folder)  # kept, and the hub is not needed any more


@pytest.mark.parametrize(
    "name, kind, says",
    [
        ("org/gated", errors.ModelGated, "Accept its terms"),
        ("org/none", errors.WeightsMissing, "Check the spelling"),
        ("no such name at all", errors.WeightsMissing, "Check the spelling"),
        ("org/broken", errors.HubUnreachable, "Check the connection"),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    hub: ThreadingHTTPServer, name: str, kind: type[errors.UserError], says: str
) -> None:
    for attempt in (fetch, load):
        with pytest.raises(kind, match=says) as caught:
            attempt(name)
        assert name in caught.value.message and "\n" not in caught.value.message


def test_a_commit_that_is_kept_whole_needs_no_hub(
    hub: ThreadingHTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A registered model is pinned to a commit; without a network there is no wait for it."""
    folder = Path(fetch("org/small", COMMIT))
    hub.shutdown()
    hub.server_close()
    began = time.monotonic()
    assert fetch("org/small", COMMIT) == str(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(errors.HubUnreachable, match="Check the connection"):
        fetch("org/small", COMMIT)
    assert time.monotonic() - began < 5  # the client would ask six times, and log each
    assert not caplog.records


def test_a_full_disk_is_told_before_a_byte_is_fetched(
    hub: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=50_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(errors.StorageFull, match="set HF_HOME to a folder of another disk"):
        fetch("org/small")
