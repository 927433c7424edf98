"""Faults injected: each one ends in a clear message, and the next good request is answered."""

import gc
import inspect
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from PIL import Image

from rotatek import BASELINE, Engine, RotateKCache, Settings, errors
from rotatek.cli import main as command
from rotatek.engine import memory
from rotatek.engine.events import Event, Failed, Finished, Prefilled, Restarted, Token
from rotatek.inputs.request import Limits, Request, make_request
from tests.served import caches_held
from tests.tiny import tiny_qwen

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {"baseline": BASELINE, "RotateK": Settings.of(keep_channels=0.25)}
SIGNAL_LIMIT_S = 30.0  # a busy machine takes seconds to unload torch


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(tiny_qwen(), limits=Limits(warm_bytes=0))  # every stage runs in every test


@pytest.fixture
def request_(picture: Callable[..., Image.Image]) -> Request:
    return make_request(picture(160, 120), "What is the total?", 6)


def answers(events: list[Event]) -> dict[str, str]:
    return {event.column: event.answer for event in events if isinstance(event, Finished)}


def raising(failure: BaseException, after: int = 0, times: int = 10**9) -> Callable[..., Any]:
    """A function that lets `after` calls to the real one pass, then fails `times` times."""
    calls = 0

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if after < calls <= after + times:
                raise failure
            return real(*args, **kwargs)

        return call

    return wrap


STAGES = {
    "image processor": ("rotatek.models.qwen.Qwen25VL.preprocess", 0),
    "vision tower": ("rotatek.models.qwen.Qwen25VL.features", 0),
    "first layer's tokens": ("rotatek.cache.prefill_layer.PrefillCompressor.take", 0),
    "compression": ("rotatek.methods.channels.rotatek.RotateK.compress_together", 0),
    "first decoding step": ("rotatek.engine.passes.forward_one", 0),
    "fifth decoding step": ("rotatek.engine.passes.forward_one", 4),
    "attention while decoding": ("kernels.dispatch.run", 5),
}
FAILURES = {
    "torch": (torch.OutOfMemoryError("Tried to allocate 3 GiB at 0x7f"), errors.OutOfMemory),
    "host": (MemoryError(), errors.OutOfMemory),
    "allocator": (RuntimeError("DefaultCPUAllocator: can't allocate memory"), errors.OutOfMemory),
    "unknown": (RuntimeError("/home/someone/secret 0x7f"), None),
}
FAULTS = [("fifth decoding step", kind) for kind in FAILURES]
FAULTS += [(stage, "torch") for stage in STAGES if stage != "fifth decoding step"]


def place(stage: str) -> tuple[Any, str, int]:
    """The owner of a stage's attribute, its name, and the good calls before the failure."""
    target, after = STAGES[stage]
    module, _, name = target.rpartition(".")
    package, _, last = module.rpartition(".")
    return sys.modules.get(module) or getattr(sys.modules[package], last), name, after


@pytest.mark.unversioned  # the failures are ours; that nothing is kept is test_chat's there
@pytest.mark.parametrize(("stage", "kind"), FAULTS)
def test_failures_in_every_stage(
    stage: str, kind: str, engine: Engine, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = answers(list(engine.compare(request_, COLUMNS)))
    owner, name, after = place(stage)
    failure, expected = FAILURES[kind]
    caches: list[weakref.ref[RotateKCache]] = []
    started = RotateKCache.__init__

    def watch(self: RotateKCache, *args: Any, **kwargs: Any) -> None:
        caches.append(weakref.ref(self))
        started(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, raising(failure, after)(getattr(owner, name)))
        patch.setattr(RotateKCache, "__init__", watch)
        events = list(engine.compare(request_, COLUMNS))
    failed = [event for event in events if isinstance(event, Failed)]
    assert len(failed) == 1 and failed[0] is events[-1]
    if expected is None:
        assert failed[0].message.startswith("Something went wrong (id ")
    else:
        assert failed[0].message == expected.sentence
    failure.__traceback__ = None
    gc.collect()
    for reference in caches:
        cache = reference()
        assert cache is None or not list(cache.tensors()), "a failed request kept its cache"
    assert answers(list(engine.compare(request_, COLUMNS))) == good


@pytest.mark.parametrize("stage", ["vision tower", "fifth decoding step"])
def test_memory_short_once_is_answered_under_tighter_limits(
    stage: str, engine: Engine, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The visitor gets a message, the columns start again, and earlier text is void."""
    owner, name, after = place(stage)
    failure = torch.OutOfMemoryError("Tried to allocate 3 GiB")
    usual = next(e for e in engine.compare(request_, COLUMNS) if isinstance(e, Prefilled))
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, raising(failure, after, times=1)(getattr(owner, name)))
        events = list(engine.compare(request_, COLUMNS))
    (told,) = [event for event in events if isinstance(event, Restarted)]
    assert told.message == errors.TIGHTER and told.message.endswith(".")
    assert told.max_new_tokens == memory.tighter(request_).max_new_tokens
    again = events[events.index(told) + 1 :]
    assert not [event for event in events if isinstance(event, Failed)]
    assert set(answers(again)) == set(COLUMNS)
    filled = next(event for event in again if isinstance(event, Prefilled))
    assert filled.visual_tokens < usual.visual_tokens


def test_a_lost_accelerator_turns_health_red(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be answered any more: requests get a message, and health reports it."""
    gpu, failure = torch.device("cuda"), torch.AcceleratorError("CUDA error: illegal memory access")
    monkeypatch.setattr(memory, "probe", lambda device: None)
    assert not memory.is_lost(failure, gpu)  # the next call works
    monkeypatch.setattr(memory, "probe", raising(failure)(memory.probe))
    assert memory.is_lost(failure, gpu) and not memory.is_lost(ValueError(), gpu)
    assert not memory.is_lost(failure, torch.device("cpu"))
    engine = Engine(tiny_qwen())
    assert engine.health().able
    owner, name, after = place("first decoding step")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, raising(failure, after)(getattr(owner, name)))
        patch.setattr(memory, "is_lost", lambda failure, device: True)
        *_, last = engine.compare(request_, COLUMNS)
    for told in (last, *engine.compare(request_, COLUMNS)):
        assert isinstance(told, Failed) and isinstance(told.error, errors.Restarting)
    assert not engine.health().able


@pytest.mark.parametrize(
    ("tokens", "looks"), [(0, None), (4, None), (None, 0), (None, 6)],
    ids=["left before", "left later", "stopped in the tower", "stopped in the decoder"],
)  # fmt: skip
def test_who_leaves_or_stops_frees_everything(
    tokens: int | None, looks: int | None, engine: Engine, request_: Request
) -> None:
    """The generator is dropped after some tokens, as when a tab is closed; or a flag is set in the
    vision tower (3 blocks) or in the decoder (4 layers): then there is no token."""
    others = caches_held()  # of tests before, in this worker
    stop = mock.Mock()  # a flag that is set after it has been read so often
    stop.is_set.side_effect = chain([False] * (looks or 0), repeat(looks is not None))
    events = engine.compare(request_, COLUMNS, stop)
    seen = 0
    for event in events:
        seen += isinstance(event, Token)
        if tokens is not None and seen >= tokens:
            break
    events.close()  # type: ignore[attr-defined]
    del events
    assert looks is None or seen == 0
    assert caches_held() <= others
    assert len(answers(list(engine.compare(request_, COLUMNS)))) == 2


def ask(checkpoint: Path, image: Path, *words: str) -> list[str]:
    """The words of a command line."""
    given = ["--model", str(checkpoint), "--max-new-tokens", "4"]
    return ["ask", str(image), "What is it?", *given, *words]


@pytest.fixture
def image(picture: Callable[..., Image.Image], tmp_path: Path) -> Path:
    picture(224, 224).save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


@pytest.mark.unversioned  # Triton is not replaced
def test_without_triton(checkpoint: Path, image: Path) -> None:
    """A process in which Triton cannot be imported answers through the reference."""
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from rotatek.__main__ import main\n"
        f"sys.exit(main({ask(checkpoint, image, '--json')!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["attention"] == "reference"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize(("device", "said"), [("cuda:9", "no such GPU"), ("tpu", "device must")])
def test_without_a_gpu(
    device: str, said: str, checkpoint: Path, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asking for a device that is not there is refused in a sentence."""
    assert command.main(ask(checkpoint, image, "--device", device)) == 2
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1


def _heed_interrupts() -> None:
    """A shell's background jobs ignore Ctrl+C, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def talking(checkpoint: Path, image: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """For each signal a process in the middle of a batch of long answers, started together."""
    batch = image.with_name("batch.jsonl")
    batch.write_text((json.dumps({"image": str(image), "question": "?"}) + "\n") * 500)
    words = [sys.executable, "-m", "rotatek", "ask", "--batch", str(batch)]
    words += ["--model", str(checkpoint), "--max-new-tokens", "50"]
    pipe = subprocess.PIPE
    started = {
        name: subprocess.Popen(
            words, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, preexec_fn=_heed_interrupts
        )
        for name in ("SIGTERM", "SIGINT")
    }
    try:
        for process in started.values():
            assert process.stdout is not None
            assert process.stdout.readline().startswith("{")
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.wait()


@pytest.mark.unversioned  # our handlers, and Python's
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_signal_ends_the_process(talking: dict[str, subprocess.Popen[str]]) -> None:
    for name, process in talking.items():
        process.send_signal(getattr(signal, name))
        _, err = process.communicate(timeout=SIGNAL_LIMIT_S)
        assert process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM, 130), name
        assert "Traceback" not in err, name


# -- the closed list, and what reaches the screen and the log ----------------------------------

SECRET = "my account number is 998877 /home/someone/file.png 0x7f3a2b"
CLOSED_LIST = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, errors.UserError) and value.__module__ == errors.__name__
    if value is not errors.UserError
]


def example(kind: type[errors.UserError]) -> errors.UserError:
    if kind is errors.SettingError:
        return errors.SettingError("keep_tokens", "a number in (0, 1]", 7)
    if kind is errors.SettingUnknown:
        return errors.SettingUnknown("kep_tokens", "channels, keep_tokens, tokens")
    if kind is errors.SettingRemoved:
        return errors.SettingRemoved("bits", "choose `smaller`")
    return kind()


def test_every_refusal_survives_a_worker_process() -> None:
    assert len({kind.code for kind in CLOSED_LIST}) == len(CLOSED_LIST) >= 20
    for kind in CLOSED_LIST:
        error = example(kind)
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is kind and back.message == error.message and back.code == kind.code


def test_unknown_failures_become_an_id(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the traceback under it; messages only where an operator asks for them."""

    class Awkward(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    caplog.set_level(logging.INFO, "rotatek")
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as cause:
            raise ValueError(SECRET) from cause
    except ValueError as failure:
        message = errors.public_message(failure)
    assert message.startswith("Something went wrong (id ") and len(message) == 30
    assert message[25:29] in caplog.text and "test_faults.py" in caplog.text
    assert "ValueError" in caplog.text and "KeyError" in caplog.text
    assert "998877" not in caplog.text and "998877" not in message
    assert errors.public_message(Awkward()).startswith("Something went wrong")
    caplog.set_level(logging.DEBUG, "rotatek")
    errors.public_message(ValueError(SECRET))
    assert "998877" in caplog.text
