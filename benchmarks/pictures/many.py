"""Many stored pages: how a store opens, what it holds in memory, and what asking a page takes.

A few pages are read; their caches stand in for the others under names of their own (links to the
same files). A page asked afresh is measured on those few, by the uncompressed model.
"""

import json
import os
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.pictures.times import QUESTION, pages_of, spent
from rotatek.engine.engine import Engine
from rotatek.inputs.request import make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from rotatek.pictures import Pictures
from rotatek.pictures.store import PictureStore

READ: Final = 8  # pages that are read, and asked afresh
LENGTH: Final = 16  # tokens of an answer
MEMORY: Final = "20MB"  # that caches may take
Row = dict[str, Any]


def linked(read: PictureStore, store: PictureStore, pages: int) -> list[str]:
    """Fill a store with links to the pages of another one, under so many names; the names."""
    names = read.names()
    for number in range(pages):
        facts = read.facts(names[number % len(names)]) or {}
        name = f"{number:040x}"
        file = f"{name}.{facts['digest'][:8]}.cache"
        os.link(read.pages / facts["file"], store.pages / file)
        text = json.dumps(facts | {"name": name, "file": file})
        (store.pages / f"{name}.json").write_text(text)
    return store.names()


def many(vlm: VisionLanguageModel, settings: Settings, asked: int, sizes: tuple[int, ...]) -> Row:
    """Figures of stores of these sizes; asked: pages that a question goes to."""
    engine, report, images = Engine(vlm), Row(), pages_of(READ, None)
    with tempfile.TemporaryDirectory() as folder:
        first = Pictures(engine, settings, Path(folder) / "read")
        for image in images:
            first.add(image)
        for size in sizes:
            where = Path(folder) / str(size)
            empty = Pictures(engine, settings, where)
            assert first.store is not None and empty.store is not None
            linked(first.store, empty.store, size)
            began = time.perf_counter()
            pictures = Pictures(engine, settings, where, memory=MEMORY)
            names = pictures.names()
            opened = time.perf_counter() - began
            some = random.Random(0).sample(names, min(asked, len(names)))
            pictures.ask(some[:2], QUESTION, LENGTH)  # warm
            ms = spent(partial(pictures.ask, some, QUESTION, LENGTH)) / len(some)
            held = pictures.held_bytes / 1e6
            report[f"{size} pages"] = {"opens_s": opened, "page_ms": ms, "held_mb": held}
            pictures.close()
    list(engine.answer(make_request(images[0], QUESTION, 2), BASELINE))  # warm
    engine.pictures.clear()
    afresh = spent(
        lambda: [list(engine.answer(make_request(i, QUESTION, LENGTH), BASELINE)) for i in images]
    ) / len(images)
    best = report[f"{sizes[0]} pages"]["page_ms"]
    return report | {
        "afresh": {"page_ms": afresh, "measured_on": READ},
        "times_as_many": afresh / best,
    }
