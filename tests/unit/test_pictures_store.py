"""The folder of stored pictures: complete or not there, through concurrent writers, kills and
damage."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rotatek import errors
from rotatek.engine.engine import Engine
from rotatek.methods.settings import Settings
from rotatek.pictures import Pictures
from rotatek.pictures import store as module
from rotatek.pictures.store import PictureStore
from tests.fixtures import Picture, present
from tests.tiny import tiny_qwen

ROOT = Path(__file__).resolve().parents[2]
BITS = Settings.of(smaller=8)
PAGES = 8
DESCRIBED = {"model": {"class": "none"}, "settings": {}, "weigh_by": "questions"}
# One process loads the library and a tiny model. For each line "STORE CALLS..." copies of it run
# the real command at once, each killed before so many calls of those that change a folder, and say
# the name of each page once it is there; then it says how they ended.
COMMANDS = """
import os, pathlib, signal, sys
import tqdm, zstandard
import rotatek.cli.index
from rotatek import models
from rotatek.cli import main as command
from rotatek.inputs.request import open_image
from rotatek.methods.settings import Settings
from rotatek.pictures import Pictures, indexing
from rotatek.pictures.store import PictureStore
from tests.tiny import tiny_qwen
folder, vlm, write = sys.argv[1], tiny_qwen(), PictureStore.write
models.load = lambda *_, **__: vlm
Pictures(vlm, Settings.of(smaller=8)).add(open_image(next(pathlib.Path(folder).iterdir())))
def told(self, name, *given):
    facts = write(self, name, *given)
    print(name, flush=True)
    return facts
PictureStore.write = told
def index(store, calls):
    left = [calls]
    def ending(plain):
        def call(*given, **named):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(*given, **named)
        return call
    for name in ("fsync", "replace", "link", "unlink", "mkdir"):
        setattr(os, name, ending(getattr(os, name)))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    return command.main(["index", folder, "--store", store, "--smaller", "8"])
for line in sys.stdin:
    store, *calls = line.split()
    children = []
    for number in map(int, calls):
        child = os.fork()
        if not child:
            os._exit(index(store, number))
        children.append(child)
    print("ended", *(os.waitpid(child, 0)[1] for child in children), flush=True)
"""
Work = Callable[..., Iterator[str]]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    """Gives the process a line, and what is said until the jobs have ended."""
    if not hasattr(os, "fork"):
        pytest.skip("no such processes here")
    folder = tmp_path_factory.mktemp("in")
    for number in range(PAGES):
        Image.effect_noise((56, 56), 10 * number + 9).save(folder / f"{number}.png")
    with subprocess.Popen(
        [sys.executable, "-c", COMMANDS, str(folder)], cwd=ROOT, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        text=True,
    ) as process:  # fmt: skip

        def lines(store: Path, *calls: int) -> Iterator[str]:
            print(store, *calls, file=process.stdin, flush=True)
            for line in present(process.stdout):
                yield line.strip()
                if line.startswith("ended"):
                    return

        yield lines
        process.kill()


def page(store: PictureStore, name: str, content: bytes = b"page") -> None:
    store.write(name, lambda path: path.write_bytes(content), {"name": name})


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(tiny_qwen())


@pytest.fixture
def made(engine: Engine, picture: Picture, tmp_path: Path) -> Pictures:
    """A store of two pages."""
    pictures = Pictures(engine, BITS, tmp_path / "store")
    for seed in (1, 2):
        pictures.add(picture(150, 120, seed=seed))
    return pictures


def test_several_processes_write_one_store(work: Work, tmp_path: Path) -> None:
    """Readers see whole pages all the while."""
    said = []
    for line in work(tmp_path / "store", *[10**9] * 3):
        said.append(line)
        if (tmp_path / "store" / "store.json").exists():
            store = PictureStore(tmp_path / "store")
            for name in store.names():
                assert present(store.facts(name))["name"] == name
    assert said[-1] == "ended 0 0 0" and len(store.names()) == PAGES
    assert all(good for _, good in store.check())


@pytest.mark.slow
def test_a_killed_index_loses_the_page_in_hand_at_most(work: Work, tmp_path: Path) -> None:
    """Killed before each call that changes the folder, from the store's first to a page's last."""
    where, done, seen, left, kills = tmp_path / "store", set[str](), set[str](), 0, 0
    while "ended 0" not in done:
        done |= set(work(where, kills))
        kills += 1
        if not (where / "store.json").exists():
            continue
        store = PictureStore(where)
        names, held = set(store.names()), len(list(store.pages.iterdir()))
        assert seen <= names and {one for one in done if len(one) == 40} <= names
        assert all(good for _, good in store.check())
        orphans = held - 2 * len(names)
        assert orphans <= left + 2  # a draft, or a cache without its figures
        seen, left = names, orphans
    assert len(seen) == PAGES and kills >= 15


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
    for settings, weigh_by in ((Settings.of(smaller=4), "questions"), (BITS, "picture")):
        with pytest.raises(errors.StoreOfOtherSettings):
            Pictures(made.engine, settings, folder, weigh_by=weigh_by)
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
    for name in made.names():
        (store.pages / f"{name}.json").write_text("{")
        assert made.find(name) is None
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


def test_replicas_share_the_folder(picture: Picture, tmp_path: Path) -> None:
    """As in a cluster: each has a model of its own, and one opens what another one has read."""
    one, two = (Pictures(Engine(tiny_qwen()), BITS, tmp_path / "store") for _ in range(2))
    page = one.add(picture(150, 120, seed=1))
    assert two.names() == [page.name] and two.find(page.name) == page
    assert two.ask(page, "what?", 4) == one.ask(page, "what?", 4)
    assert two.counts == {"loaded": 1} and one.counts["loaded"] == 0
    assert two.add(picture(150, 120, seed=1)) == page and two.counts["read"] == 0
    one.forget(page)
    assert two.find(page.name) is None
    assert two.ask(page, "what?", 4)  # what it holds ready it still answers
    fresh = Pictures(Engine(tiny_qwen()), BITS, tmp_path / "store")
    with pytest.raises(errors.UserError, match="no longer in memory"):
        fresh.ask(page, "what?", 4)
