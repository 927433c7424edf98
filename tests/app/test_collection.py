"""The Collection tab: pages are read once and asked, each visitor's own, under bounds."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rotatek import Engine, Settings, errors
from rotatek.page.collection import drawing
from rotatek.page.collection.events import CollectionEvents
from rotatek.page.collection.pages import Bounds, Collection
from rotatek.page.page_context import PageContext
from rotatek.page.settings import values_of
from rotatek.service.service import Service
from rotatek.service.session_store import SessionStore
from tests import fixtures
from tests.fixtures import present
from tests.served import service_of
from tests.tiny import tiny_qwen

FORM = values_of(Settings.of(keep_channels=0.25))


@pytest.fixture
def events(service: Service) -> CollectionEvents:
    return CollectionEvents(PageContext(service))


@pytest.fixture
def files(picture: fixtures.Picture, tmp_path: Path) -> list[str]:
    """Three pictures, the last one with a name of its own, and a file that is none."""
    paths = [tmp_path / name for name in ("one.png", "two.png", "<b>&.png", "notes.txt")]
    for number, path in enumerate(paths[:3]):
        picture(150, 120, seed=number).save(path)
    paths[3].write_text("no picture")
    return [str(path) for path in paths]


def read(
    events: CollectionEvents, files: list[str], session: str = "me", keep: str = "8", **form: Any
) -> dict[str, Any]:
    """Everything that a reading changes, its last words included."""
    return _all(events.read(files=files, keep=keep, model="tiny", session=session, **FORM | form))


def ask(events: CollectionEvents, question: str = "what?", session: str = "me") -> dict[str, Any]:
    return _all(events.ask_all(question=question, max_new_tokens=6, session=session))


def _all(stream: Iterator[dict[str, Any]]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for found in stream:
        shown |= found
    return shown


def test_nobody_sees_another_visitors_pages(events: CollectionEvents, files: list[str]) -> None:
    """Neither by a number, nor by showing the same picture: it is read again, for its own."""
    tiles = read(events, files[2:3])["tiles"]
    assert "&lt;b&gt;&amp;.png" in tiles and "<b>&" not in tiles
    mine = events.held.of("me", Collection)
    assert list(events.open(chosen="0,1", session="other")) == []
    shown = ask(events, session="other")
    assert "no pages yet" in shown["status"] and shown["tiles"] == drawing.tiles(Collection())
    with pytest.raises(errors.CollectionEmpty, match="no pages yet"):
        events.save(session="other")
    read(events, files[2:3], session="other")
    theirs = events.held.of("other", Collection)
    assert theirs.pictures is not None and mine.pictures is not None
    assert theirs.pages[0].picture.name == mine.pages[0].picture.name
    assert theirs.pictures is not mine.pictures and theirs.pictures.counts["read"] == 1


def test_bounds_end_a_reading_and_keep_what_was_read(service: Service, files: list[str]) -> None:
    for bounds, kept, said in (
        (Bounds(pages=2), 2, errors.CollectionFull),
        (Bounds(bytes=1), 1, errors.CollectionFull),
        (Bounds(seconds=-1), 0, errors.CollectionTooLong),
    ):
        events = CollectionEvents(PageContext(service), bounds)
        shown = read(events, files)
        assert said.sentence.split(",")[0] in shown["status"]
        assert len(events.held.of("me", Collection).pages) == kept
        assert shown["ask"]["interactive"] and not shown["stop"]["interactive"]


def test_stop_ends_and_leaving_forgets(events: CollectionEvents, files: list[str]) -> None:
    stream = events.read(files=files, keep="8", model="tiny", session="me", **FORM)
    for shown in stream:
        if "Read one.png" in shown.get("status", ""):
            with pytest.raises(errors.CollectionBusy, match="still being read"):
                ask(events)
            events.stop(session="me")
    assert errors.Stopped.sentence in shown["status"]
    collection = events.held.of("me", Collection)
    assert len(collection.pages) == 1 and not collection.work.locked()
    held = collection.pictures
    assert held is not None and held.held_bytes > 0
    events.clear("me")
    assert held.held_bytes == 0 and len(events.held) == 0 and not events.context.service.busy()
    read(events, files[:2])
    empty = events.clear(session="me")
    assert empty["tiles"] == drawing.tiles(Collection()) and not empty["csv"]["interactive"]


def test_other_settings_and_other_engines_are_refused_in_a_sentence(
    events: CollectionEvents, files: list[str]
) -> None:
    read(events, files[:1])
    shown = read(events, files[1:2], keep="16")
    assert "stored with another model or other settings" in shown["status"]

    class Elsewhere(Engine):
        """As where the model is in another process."""

    vlm = tiny_qwen()
    far = service_of(Elsewhere(vlm))
    shown = read(CollectionEvents(PageContext(far)), files[:1])
    assert "runs in another process" in shown["status"]


def test_the_oldest_collections_make_room_and_idle_ones_go(
    picture: fixtures.Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = SessionStore[Collection](most=2, idle_s=1000)
    first = held.of("a", Collection)
    held.of("b", Collection)
    assert held.of("a", Collection) is first
    second = held.of("b", Collection)
    held.of("c", Collection)
    assert first.closed and not second.closed and len(held) == 2
    started: list[Any] = []
    monkeypatch.setattr(threading.Timer, "start", lambda self: started.append(self))
    waiting = held.of("b", Collection)
    busy = present(held.take("c"))  # as while it answers
    held.hold("c", busy)
    assert held.take("c") is busy
    for timer in started:
        timer.function(*timer.args)
    assert waiting.closed and not busy.closed and len(held) == 0
    held.drop("nobody")
    small = SessionStore[Any](most=9, most_bytes=100)  # of conversations, which weigh something
    talks = [mock.Mock(cache_bytes=size) for size in (40, 70, 101)]
    for number, talk in enumerate(talks):
        small.hold(str(number), talk)
        assert [one.close.called for one in talks[:number]] == [True] * number
    assert talks[-1].close.called and len(small) == 0, "too large by itself"
