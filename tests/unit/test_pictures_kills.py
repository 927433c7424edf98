"""`rotatek index` is killed wherever it happens to be: the page in hand is lost."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rotatek.pictures.store import PictureStore

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("ROTATEK_KILLS", "8"))
PAGES = 8 * KILLS
LATER_S = 0.15  # at most, after a page is there: within the next one
PATIENCE_S = 20.0  # for the next page, on a busy machine
# One process loads the library and a tiny model; for each line a copy of it is the real command,
# says its own number, and adds each page's name to a file once the page is there.
COMMANDS = """
import os, sys
from rotatek import models
from rotatek.cli import main as command
from rotatek.inputs.request import open_image
from rotatek.methods.settings import Settings
from rotatek.pictures import Pictures, indexing
from rotatek.pictures.store import PictureStore
from tests.tiny import tiny_qwen
import pathlib, tqdm, zstandard
import rotatek.cli.index
folder, store, named = sys.argv[1:]
vlm = tiny_qwen()
models.load = lambda *_, **__: vlm
Pictures(vlm, Settings.of(smaller=8)).add(open_image(next(pathlib.Path(folder).iterdir())))
write = PictureStore.write
def noted(self, name, *given):
    facts = write(self, name, *given)
    with open(named, "a") as file:
        file.write(name + "\\n")
    return facts
PictureStore.write = noted
for line in sys.stdin:
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        print(os.getpid(), flush=True)
        os._exit(command.main(["index", folder, "--store", store, "--smaller", "8"]))
    print("ended", os.waitpid(child, 0)[1], flush=True)
"""


def begun(store: Path) -> set[str]:
    """Files of pages that are, or were, being written."""
    with suppress(OSError):
        return {name for name in os.listdir(store / "pages") if name.startswith(".")}
    return set()


@pytest.mark.slow
def test_a_killed_index_loses_the_page_in_hand_at_most(tmp_path: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no such processes here")
    folder, where, named = tmp_path / "in", tmp_path / "store", tmp_path / "named"
    folder.mkdir()
    named.touch()
    for number in range(PAGES):
        noise = np.random.default_rng(number).integers(0, 255, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((56, 56)).save(folder / f"{number:03d}.png")
    chance, seen, left = random.Random(7), set[str](), 0
    with subprocess.Popen(
        [sys.executable, "-c", COMMANDS, str(folder), str(where), str(named)], cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        for number in range(KILLS):
            process.stdin.write("index\n")
            process.stdin.flush()
            pid = int(process.stdout.readline())
            pages, drafts = len(named.read_text().split()), begun(where)
            wanted, deadline = pages + chance.randrange(3), time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:  # every second one is aimed at a page being written
                there = len(named.read_text().split()) >= wanted
                if begun(where) - drafts if number % 2 else there:
                    break
                time.sleep(0.001)
            time.sleep(0 if number % 2 else chance.uniform(0, LATER_S))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            while not process.stdout.readline().startswith("ended"):
                pass  # what it said of its pages
            if not (where / "store.json").exists():  # killed before it had made one
                continue
            store = PictureStore(where)
            names = set(store.names())
            assert seen <= names and set(named.read_text().split()) <= names
            assert all(good for name, good in store.check() if name not in seen)
            files = {path.name for path in store.pages.iterdir()}
            orphans = len(files) - 2 * len(names)
            assert orphans <= left + 2  # a draft, or a cache without its figures
            seen, left = names, orphans
        process.stdin.close()
    assert len(seen) > KILLS / 4 and all(good for _, good in store.check())
