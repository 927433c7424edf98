"""A model is loaded at its first question: with messages, interruptible, and others do not wait."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from rotatek import Engine, Settings, errors
from rotatek.models import download
from rotatek.page.ask.events import AskEvents
from rotatek.page.page_context import PageContext
from rotatek.page.settings import values_of
from rotatek.service.model_list import Example, Model
from rotatek.service.service import Service
from tests.fixtures import Picture
from tests.tiny import tiny_llava, tiny_qwen

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
def service(slow: Slow) -> Service:
    offered = [Model(name, f"{name.title()} (a size)", name) for name in ("small", "large", "none")]
    return Service(offered, slow)


def asked(service: Service, model: str, image: Image.Image, session: str = "a") -> Iterator[dict]:
    return AskEvents(PageContext(service)).ask(
        image=image, question="Which?", model=model, max_new_tokens=2, times=5, session=session,
        **FORM,
    )  # fmt: skip


def test_others_are_answered_while_a_model_is_loaded(
    service: Service, slow: Slow, picture: Picture
) -> None:
    image = picture(100, 60)
    *_, first = asked(service, "small", image)
    assert first["run"].chosen.finished
    waits = asked(service, "large", image, "b")
    shown = next(waits)
    assert "Loading Large…" in shown["status"]
    assert shown["ask"]["interactive"] is False and shown["stop"]["interactive"] is True
    assert slow.begun.wait(60)
    *_, other = asked(service, "small", image, "c")
    assert other["run"].chosen.finished and service.busy()
    slow.may_load.set()
    *_, last = waits
    assert last["run"].chosen.finished and last["ask"]["interactive"] is True
    assert not service.busy()


def test_stop_ends_the_wait_and_the_model_is_loaded_all_the_same(
    service: Service, slow: Slow, picture: Picture
) -> None:
    waits = asked(service, "large", picture(100, 60))
    next(waits)
    service.stop("a")
    (last,) = waits
    assert errors.Stopped.sentence in last["status"] and last["ask"]["interactive"] is True
    assert not service.busy()
    slow.may_load.set()
    assert service.engine("large")


def test_a_picture_loads_no_model(service: Service, slow: Slow, picture: Picture) -> None:
    events = AskEvents(PageContext(service))
    assert events.count(picture(100, 60), "large") == {"count": None} and not slow.begun.is_set()
    slow.may_load.set()
    *_, last = asked(service, "large", picture(100, 60))
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

    service = Service([Model("large", "Large (a size)", "large")], fetched)
    site = PageContext(service, [example])
    events, first = AskEvents(site), threading.Thread(target=site.prepare)
    first.start()
    assert slow.begun.wait(60)
    greeted, waits = events.greet("b"), asked(service, "large", picture(100, 60), "a")
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
