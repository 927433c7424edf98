"""Many visitors, full queues, dropped connections, health: over HTTP, as strangers meet it."""

import errno
import re
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rotatek import Engine, errors
from rotatek.page.binding import VISITORS
from tests import wire
from tests.fixtures import at_once
from tests.served import Slow, caches_held, page_of, service_of, until
from tests.tiny import tiny_qwen

STEP_S = 0.01
LONG = 1000  # tokens of an answer that takes ten seconds and more
FREE_S = 5.0  # a cache is freed this soon after its visitor has gone, on a busy machine
LEAKS = re.compile(r"Traceback|/work|site-packages|0x[0-9a-f]{6}|\.py\b")
JOINS = 40
AT_ONCE = 4  # questions that this page answers side by side
WAITING = 8  # the length of these tests' queue
COMPLETE = '"process_completed"'


@pytest.fixture(scope="module")
def engine() -> Slow:
    made = Slow(tiny_qwen())
    made.pause = STEP_S
    return made


@pytest.fixture(scope="module")
def crowded(engine: Slow, picture_file: Path) -> Iterator[str]:
    """A page with a short queue."""
    with page_of(service_of(engine), picture_file, AT_ONCE) as (page, url):
        page._queue.max_size = WAITING
        yield url


@pytest.fixture(scope="module")
def uploaded(crowded: str, picture_file: Path) -> dict[str, Any]:
    """The picture as the server knows it, for payloads made by hand; the model is loaded."""
    image = wire.picture(crowded, picture_file)
    assert is_answered(crowded, image)
    return image


def ask(
    address: str, image: dict[str, Any], question: str, tokens: int
) -> tuple[int, dict[str, Any]]:
    """A place in the queue for a question."""
    return wire.join(address, wire.question(address, image=image, question=question, length=tokens))


def rest(address: str, said: dict[str, Any]) -> str:
    """All that a visitor who has joined is sent."""
    return wire.Listener(address, said["session_hash"]).rest()


def test_forty_joins_are_answered_or_politely_refused(
    crowded: str, uploaded: dict[str, Any], engine: Slow
) -> None:
    """All of them come before the first answer begins."""
    engine.open.clear()
    try:
        calls = [partial(ask, crowded, uploaded, f"number {n}?", 16) for n in range(JOINS)]
        joined = at_once(calls)
    finally:
        engine.open.set()
    placed = [said for status, said in joined if status == 200]
    assert WAITING <= len(placed) < JOINS
    refusal = (503, {"detail": errors.QueueFull.sentence})
    assert all(one == refusal for one in joined if one[0] != 200)
    for told in at_once([partial(rest, crowded, said) for said in placed]):
        assert COMPLETE in told and "data-verdict" in told, told[-3000:]
    assert is_answered(crowded, uploaded)


def is_answered(address: str, image: dict[str, Any]) -> bool:
    status, said = ask(address, image, "Now?", 16)
    return status == 200 and COMPLETE in rest(address, said)


@pytest.mark.parametrize("tokens", [0, 20])
def test_a_dropped_connection_frees_the_cache(
    tokens: int, crowded: str, uploaded: dict[str, Any], engine: Slow
) -> None:
    """During the prefill (0) and while tokens come: everything is freed long before its end."""
    question = f"Dropped at {tokens}?"
    engine.asked.clear()
    others = caches_held()  # of tests before
    _, said = ask(crowded, uploaded, question, LONG)
    listener = wire.Listener(crowded, said["session_hash"])
    until(lambda: question in engine.asked and engine.said.get(question, 0) >= tokens)
    listener.drop()
    until(lambda: caches_held() <= others, FREE_S)
    assert engine.said.get(question, 0) < LONG


def test_a_bad_file_is_refused_in_our_words(crowded: str, tmp_path: Path) -> None:
    """Whatever it is called; so is a path of the server's own, and an address is not fetched."""
    bad = tmp_path / "picture.png"
    bad.write_bytes(b"%PDF-1.7")
    kind = {"_type": "gradio.FileData"}
    images = {
        "format is not supported": wire.picture(crowded, bad),
        "not an uploaded file": {"path": None, "url": "http://127.0.0.1:1/x.png", "meta": kind},
        "": {"path": "/etc/passwd", "meta": kind},
    }
    for sentence, image in images.items():
        _, said = ask(crowded, image, "Which?", 16)
        told = rest(crowded, said)
        assert sentence in told and '"success":false' in told and not LEAKS.search(told)


def test_the_server_hands_out_no_file_of_its_own(crowded: str) -> None:
    for path in ("/etc/passwd", "app.py", "assets/pocket/config.json", "../../etc/passwd"):
        assert wire.fetch(f"{crowded}gradio_api/file={path}")[0] in (403, 404)


def test_an_upload_over_ten_megabytes_is_turned_away(crowded: str) -> None:
    status, _ = wire.upload(crowded, b"\x89PNG\r\n\x1a\n" + bytes(11_000_000))
    assert status == 413


def test_a_full_disk_while_uploading_is_said(crowded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file cannot be stored: a sentence, no traceback, and the next upload works."""

    def none_left(*args: Any, **options: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere")

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "NamedTemporaryFile", none_left)
        patch.setattr("gradio.route_utils.NamedTemporaryFile", none_left, raising=False)
        assert wire.upload(crowded, b"!") == (507, {"detail": errors.StorageFull.sentence})
    assert wire.upload(crowded, b"!")[0] == 200


def test_every_visitor_has_a_thread_and_the_page_has_some_left(
    picture_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradio holds a thread for every question that waits, forty by default."""
    engine = Slow(tiny_qwen())
    with page_of(service_of(engine), picture_file) as (_, url):
        image = wire.picture(url, picture_file)
        assert is_answered(url, image)
        monkeypatch.setattr(Engine, "compare", lambda *_, **__: iter(()))  # says nothing
        engine.asked.clear()
        engine.open.clear()
        asked = wire.question(url, image=image, question="Hello?", length=16)
        joined = [wire.join(url, asked) for _ in range(VISITORS)]
        listeners = [wire.Listener(url, place["session_hash"]) for _, place in joined]
        try:
            until(lambda: len(engine.asked) == VISITORS)
            assert wire.upload(url, picture_file.read_bytes())[0] == 200
        finally:
            engine.open.set()
        assert all(COMPLETE in listener.rest() for listener in listeners)
