"""The folder of stored pictures: complete or not there, through concurrent writers, kills and
damage."""

import errno
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rotatek import Engine, Pictures, Settings, errors
from rotatek.pictures import store as module
from rotatek.pictures.store import PictureStore
from tests.fixtures import Picture, present
from tests.tiny import tiny_qwen

BITS = Settings.of(smaller=8)
PAGES = [f"{number}" * 40 for number in range(8)]
DESCRIBED = {"model": {"class": "none"}, "settings": {}}
CALLS = ("fsync", "replace", "link", "unlink", "mkdir")  # that change a folder


def page(store: PictureStore, name: str, content: bytes = b"page") -> None:
    store.write(name, content, {"name": name})


@pytest.fixture
def made(engine: Engine, picture: Picture, tmp_path: Path) -> Pictures:
    """A store of two pages."""
    pictures = Pictures(engine, BITS, tmp_path / "store")
    for seed in (1, 2):
        pictures.add(picture(150, 120, seed=seed))
    return pictures


def writer(where: Path, calls: int) -> int:
    """The process that writes a store's pages, and is killed before so many calls."""
    child = os.fork()
    if child:
        return child
    left = [calls]

    def ending(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(*given, **named)

        return call

    for name in CALLS:
        setattr(os, name, ending(getattr(os, name)))
    try:
        store = PictureStore(where, DESCRIBED)
        for name in PAGES:
            if store.facts(name) is None:
                page(store, name)
        store.note_source(where / "a.pdf", 1, 2, PAGES)
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no such processes here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_several_processes_write_one_store(tmp_path: Path) -> None:
    """Readers see whole pages all the while."""
    left = {writer(tmp_path / "store", 10**9) for _ in range(3)}
    while left:
        ended, status = os.waitpid(-1, os.WNOHANG)
        assert status == 0
        left -= {ended}
        if (tmp_path / "store" / "store.json").exists():
            store = PictureStore(tmp_path / "store")
            assert all(present(store.facts(name))["name"] == name for name in store.names())
    assert store.names() == PAGES and all(good for _, good in store.check())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no such processes here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_killed_writer_loses_the_page_in_hand_at_most(tmp_path: Path) -> None:
    """Killed before each call that changes the folder, from the store's first to a page's last."""
    where, seen, left, kills, status = tmp_path / "store", set[str](), 0, 0, -1
    while status:
        status = os.waitpid(writer(where, kills), 0)[1]
        kills += 1
        if not (where / "store.json").exists():
            continue
        store = PictureStore(where)
        names, held = set(store.names()), len(list(store.pages.iterdir()))
        assert seen <= names and all(good for _, good in store.check())
        orphans = held - 2 * len(names)
        assert orphans <= left + 2  # a draft, or a cache without its figures
        seen, left = names, orphans
    assert sorted(seen) == PAGES and kills >= 10


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EROFS])
def test_what_cannot_be_written_leaves_nothing(
    number: int, made: Pictures, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every call that writes, first the numbers', then the figures'."""
    store = made.store
    assert store is not None
    before = sorted(path.name for path in store.pages.iterdir())
    for call in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, _failing(number))
            with pytest.raises(
                errors.StorageFull if number == errno.EDQUOT else errors.StoreUnwritable
            ):
                made.add(picture(150, 120, seed=9))
        assert sorted(path.name for path in store.pages.iterdir()) == before
    assert made.add(picture(150, 120, seed=9)).file_bytes


def _failing(number: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_read_only_store_answers(
    made: Pictures, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = Pictures(made.engine, BITS, made.store.folder)  # type: ignore[union-attr]
    refuse = _failing(errno.EROFS)
    for call in ("fsync", "replace", "utime", "link", "unlink", "mkdir"):
        monkeypatch.setattr(os, call, refuse)
    assert len(pictures.ask(pictures.names(), "what?", 2)) == 2
    assert pictures.add(picture(150, 120, seed=1)).name in pictures.names()
    with pytest.raises(errors.StoreUnwritable):
        pictures.add(picture(150, 120, seed=9))


def test_a_store_that_does_not_fit_is_refused(made: Pictures, tmp_path: Path) -> None:
    """Of another model, of other settings, of another version, damaged, or none at all."""
    folder = present(made.store).folder
    with pytest.raises(errors.StoreOfAnotherModel):
        Pictures(tiny_qwen(seed=1), BITS, folder)
    with pytest.raises(errors.StoreOfOtherSettings):
        Pictures(made.engine, Settings.of(smaller=4), folder)
    own = folder / "store.json"
    own.write_text(json.dumps(json.loads(own.read_text()) | {"versions": {"store": 99}}))
    with pytest.raises(errors.StoreVersion):
        PictureStore(folder)
    for damaged in ("", "{", "[]", "{}", '{"versions": 3}'):
        own.write_text(damaged)
        with pytest.raises(errors.StoreDamaged):
            PictureStore(folder)
    with pytest.raises(errors.StoreForeign):
        PictureStore(tmp_path / "nowhere")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "notes.txt").write_text("mine")
    with pytest.raises(errors.StoreFolderTaken):
        PictureStore(taken, DESCRIBED)
    with pytest.raises(errors.StoreUnwritable):
        PictureStore(taken / "notes.txt" / "store", DESCRIBED)
    assert [path.name for path in taken.iterdir()] == ["notes.txt"]
    assert not (tmp_path / "nowhere").exists()


def test_a_damaged_page_says_so_and_others_answer(made: Pictures, picture: Picture) -> None:
    """One whose figures are damaged is none, and is read again."""
    store = present(made.store)
    name, whole = made.names()
    path = present(store.path(name))
    data = path.read_bytes()
    path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    fresh = Pictures(made.engine, BITS, store.folder)
    found = {answer.picture: answer for answer in fresh.answers([name, whole], "what?", 2)}
    assert found[name].error == errors.PictureDamaged.sentence and not found[whole].error
    assert dict(store.check()) == {name: False, whole: True}
    with pytest.raises(errors.UserError, match="damaged"):
        fresh.ask(name, "what?")
    for one in (name, whole):
        (store.pages / f"{one}.json").write_text("{")
        assert made.find(one) is None
    assert made.add(picture(150, 120, seed=1)).name in (name, whole) and made.counts["read"] == 3


def test_old_drafts_are_swept_and_new_ones_are_not(made: Pictures) -> None:
    store = made.store
    assert store is not None
    drafts = [
        folder / f".x.1234{module.DRAFT}" for folder in (store.pages, store.sources, store.folder)
    ]
    orphan = store.pages / f"{'0' * 40}.12345678.cache"
    for path in (*drafts, orphan):
        path.write_bytes(b"half")
    assert store.sweep() == 0 and len(store.names()) == 2
    for path in (*drafts, orphan):
        os.utime(path, (1, 1))
    assert store.sweep() == 4 and not orphan.exists() and len(store.names()) == 2


def test_names_may_be_shortened_where_they_are_clear(tmp_path: Path) -> None:
    store = PictureStore(tmp_path / "store", DESCRIBED)
    for name in ("abcdef01", "abcdef02", "123456789"):
        page(store, name)
    assert store.find("1234567") == ["123456789"] and store.find("abcdef01") == ["abcdef01"]
    for unclear in ("abcdef", "12345", "nothing", ""):
        with pytest.raises(errors.PageNameUnknown):
            store.find(unclear)
    store.note_source(tmp_path / "a.pdf", 1, 2, ["abcdef01", "abcdef02"])
    assert store.find(str(tmp_path / "a.pdf")) == ["abcdef01", "abcdef02"]
    store.forget(["abcdef01", "nobody"])
    assert store.find(str(tmp_path / "a.pdf")) == ["abcdef02"]
