"""Follow-up questions on the page: whose caches they use, what is shown, and when memory goes."""

import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rotatek import Engine, Settings, errors
from rotatek.engine.events import Event
from rotatek.errors import ConversationGone
from rotatek.inputs.request import Limits
from rotatek.methods.settings import titled
from rotatek.models import download
from rotatek.page.ask.events import AskEvents
from rotatek.page.page_context import PageContext
from rotatek.page.settings import values_of
from rotatek.service.model_list import Example, Model
from rotatek.service.service import Run, Service
from tests.fixtures import Picture
from tests.served import service_of
from tests.tiny import tiny_llava, tiny_qwen

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


# -- a model is loaded at its first question: interruptible, and others do not wait ------------

FORM = values_of(Settings.of(tokens="fastv", keep_tokens=0.5, keep_channels=0.25))


class Slow:
    """Loads a small model at once, and a large one when it may."""

    def __init__(self) -> None:
        self.may_load, self.begun = threading.Event(), threading.Event()

    def __call__(self, source: str) -> Engine:
        if source == "small":
            return Engine(tiny_qwen())
        self.begun.set()
        assert self.may_load.wait(60)
        if source == "none":
            raise errors.HubUnreachable
        return Engine(tiny_llava())


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.may_load.set()


@pytest.fixture
def offering(slow: Slow) -> Service:
    offered = [Model(name, f"{name.title()} (a size)", name) for name in ("small", "large", "none")]
    return Service(offered, slow)


def asked(offering: Service, model: str, image: Image.Image, session: str = "a") -> Iterator[dict]:
    return AskEvents(PageContext(offering)).ask(
        image=image, question="Which?", model=model, max_new_tokens=2, times=5, session=session,
        **FORM,
    )  # fmt: skip


def test_others_are_answered_while_a_model_is_loaded(
    offering: Service, slow: Slow, picture: Picture
) -> None:
    image = picture(100, 60)
    *_, first = asked(offering, "small", image)
    assert first["run"].chosen.finished
    waits = asked(offering, "large", image, "b")
    shown = next(waits)
    assert "Loading Large…" in shown["status"]
    assert shown["ask"]["interactive"] is False and shown["stop"]["interactive"] is True
    assert slow.begun.wait(60)
    *_, other = asked(offering, "small", image, "c")
    assert other["run"].chosen.finished and offering.busy()
    slow.may_load.set()
    *_, last = waits
    assert last["run"].chosen.finished and last["ask"]["interactive"] is True
    assert not offering.busy()


def test_stop_ends_the_wait_and_the_model_is_loaded_all_the_same(
    offering: Service, slow: Slow, picture: Picture
) -> None:
    waits = asked(offering, "large", picture(100, 60))
    next(waits)
    offering.stop("a")
    (last,) = waits
    assert errors.Stopped.sentence in last["status"] and last["ask"]["interactive"] is True
    assert not offering.busy()
    slow.may_load.set()
    assert offering.engine("large")


def test_a_picture_loads_no_model(offering: Service, slow: Slow, picture: Picture) -> None:
    events = AskEvents(PageContext(offering))
    assert events.count(picture(100, 60), "large") == {"count": None} and not slow.begun.is_set()
    slow.may_load.set()
    *_, last = asked(offering, "large", picture(100, 60))
    count = events.count(picture(100, 60), "large")["count"]
    assert count == last["run"].chosen.prefilled.visual_tokens


def test_whoever_comes_later_reads_how_far_the_download_is(
    slow: Slow, picture: Picture, tmp_path: Path
) -> None:
    """The first model is fetched from the start, before anybody asks."""
    picture(100, 60).save(tmp_path / "shown.png")
    example = Example(tmp_path / "shown.png", "A picture", ("Which?",))

    def fetched(source: str) -> Engine:
        progress = download._PROGRESS.get()
        assert progress is not None
        progress.done, progress.total = 120_000_000, 513_000_000
        return slow(source)

    offering = Service([Model("large", "Large (a size)", "large")], fetched)
    site = PageContext(offering, [example])
    events, first = AskEvents(site), threading.Thread(target=site.prepare)
    first.start()
    assert slow.begun.wait(60)
    greeted, waits = events.greet("b"), asked(offering, "large", picture(100, 60), "a")
    for shown in (next(greeted), next(waits)):
        assert "Downloading Large: 120 of 513 MB" in shown["status"]
    visitor = events.greet("a")  # has asked meanwhile, and is not interrupted
    slow.may_load.set()
    assert list(visitor) == []
    *_, hello = greeted
    assert hello["run"].chosen.finished and hello["count"] > 0
    *_, last = waits
    assert last["run"].chosen.finished
    first.join()
