"""Follow-up questions on the page: whose caches they use, what is shown, and when memory goes."""

import time
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from PIL import Image

from rotatek import Engine, Settings
from rotatek.engine.events import Event
from rotatek.errors import ConversationGone
from rotatek.inputs.request import Limits
from rotatek.methods.columns import titled
from rotatek.page.ask.events import AskEvents
from rotatek.page.build import Presence
from rotatek.page.page_context import PageContext
from rotatek.page.settings import values_of
from rotatek.service.run import Run
from rotatek.service.service import Service
from tests.served import service_of

COLUMNS = titled(Settings.of(tokens="fastv", keep_tokens=0.5), [Settings.of(channels="think")])


@pytest.fixture
def place(service: Service) -> Iterator[Service]:
    """A service of its own over the shared tiny model, two turns a conversation."""
    vlm = service.engine("tiny").vlm
    engine = Engine(vlm, limits=Limits(turns=2))
    made = service_of(engine)
    yield made
    made.conversations.clear()


def first(place: Service, image: Image.Image, session: str = "visitor", tokens: int = 4) -> Run:
    """A complete first answer whose caches wait."""
    *_, run = place.ask("tiny", image, "Which?", COLUMNS, tokens, session, talk=True)
    assert run.goes_on
    return run


def test_nobody_else_and_no_older_answer_gets_the_caches(
    place: Service, image: Image.Image
) -> None:
    run = first(place, image)
    with pytest.raises(ConversationGone):
        next(place.follow(run, "And then?", 4, "somebody else"))
    newer = first(place, image)
    assert len(place.conversations) == 1
    with pytest.raises(ConversationGone):
        next(place.follow(run, "And then?", 4, "visitor"))
    running = place.follow(newer, "And then?", 4, "visitor")
    next(running)
    with pytest.raises(ConversationGone):  # the caches answer one question at a time
        next(place.follow(newer, "And then?", 4, "visitor"))
    assert list(running)[-1].goes_on


@pytest.mark.parametrize("way", ["stop", "new image", "close"])
def test_caches_leave_when_the_visitor_does(place: Service, image: Image.Image, way: str) -> None:
    first(place, image)
    events = AskEvents(PageContext(place))
    if way == "stop":
        events.stop(session="visitor")
    elif way == "new image":
        assert events.forget(session="visitor")["follow"]["visible"] is False
    else:
        place.close()
    assert len(place.conversations) == 0 == place.conversations.bytes


def test_the_page_offers_a_follow_up_only_while_caches_wait(
    place: Service, image: Image.Image
) -> None:
    events = AskEvents(PageContext(place))
    request = {"image": image, "question": "Which?", "model": "tiny", "max_new_tokens": 4}
    *_, last = events.ask(**request, times=8, session="visitor", **values_of(Settings()))
    assert last["follow"]["visible"] is True and last["ask"]["interactive"] is True
    *_, later = events.follow(last["run"], "And then?", 4, "visitor")
    assert later["follow"]["visible"] is True and later["follow_text"]["value"] == ""
    with pytest.warns(UserWarning, match="has reached its limit"):
        *_, over = events.follow(later["run"], "More?", 4, "visitor")
    assert "follow" not in over
    place.conversations.drop("visitor")
    with pytest.warns(UserWarning, match="has been released to free memory"):
        *_, gone = events.follow(later["run"], "More?", 4, "visitor")
    assert gone["follow"]["visible"] is False


def test_caches_too_large_to_keep_are_not_offered(place: Service, image: Image.Image) -> None:
    place.conversations.most_bytes = 1000
    *_, run = place.ask("tiny", image, "Which?", COLUMNS, 4, "visitor", talk=True)
    assert run.chosen.finished is not None and not run.goes_on and len(place.conversations) == 0


def test_memory_that_runs_out_takes_kept_caches_first(
    place: Service, image: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    first(place, image, "somebody")
    engine = place.engine("tiny")
    whole = engine._attempt
    calls: list[int] = []

    def attempt(*args: Any) -> Generator[Event, None, bool]:
        calls.append(len(place.conversations))
        if len(calls) == 1:
            return True
        return (yield from whole(*args))

    monkeypatch.setattr(engine, "_attempt", attempt)
    *_, run = place.ask("tiny", image, "Which?", COLUMNS, 4, "visitor", talk=True)
    assert calls == [1, 0] and run.goes_on and "ran out of memory" in run.notice


def test_a_lost_connection_frees_nothing_while_the_page_is_open() -> None:
    freed: list[str] = []
    presence = Presence(freed.append, grace_s=1.0)
    for session in ("open", "closed"):
        presence.here(session)
        presence.lost(session)
    presence.lost("closed")  # twice, as where two requests are cut
    deadline = time.monotonic() + 60
    while not freed and time.monotonic() < deadline:
        time.sleep(0.02)
        presence.here("open")
    assert freed == ["closed"]
    while len(freed) == 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert freed == ["closed", "open"]
