"""A stored picture at the size of a real model: Qwen2.5-VL-7B with random weights on one GPU.

The first token of a question to a picture of 2,880 visual tokens: asked afresh of the uncompressed
model, of a cache that is held, and of a file. Then bytes, and what `index` adds to reading. Random
weights give real times and bytes; their answers mean nothing. `tiny` runs the same lines on a CPU.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.full_families import noise, qwen
from benchmarks.pictures.times import read_plain
from benchmarks.serving import SIDES
from benchmarks.timing import in_turn, seconds
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import feed
from rotatek.engine.engine import Engine
from rotatek.inputs.request import make_request
from rotatek.methods.settings import BASELINE, Settings
from rotatek.pictures import Pictures
from rotatek.pictures.indexing import made_ahead
from rotatek.pictures.reading import PictureNotes
from tests.tiny import tiny_qwen

QUESTION = "What is the total on this receipt?"  # a token a letter
PAGES = 8  # that are read one after the other
LENGTH = 16  # tokens of an answer
Row = dict[str, Any]


def first_tokens(pictures: Pictures, page: Any, rounds: int) -> Row:
    """Milliseconds up to the first token's logits, arms in turn; with the parts of each."""
    vlm, reader, store = pictures.engine.vlm, pictures.reader, pictures.store
    request = make_request(page, QUESTION, LENGTH)
    pixels, name = vlm.look(request), pictures.add(page).name
    ids = torch.tensor([pictures.asker.ids_of(QUESTION)], device=vlm.device)
    held = reader.read([page], pixels)

    def afresh() -> Any:
        return read_plain(vlm, vlm.embed(vlm.prompt(request, pixels=pixels)))

    def asked(cache: RotateKCache) -> Any:
        return feed(vlm, ids, cache.notes.next_position, cache.fork(ids.shape[1]))

    def loaded() -> RotateKCache:
        path = None if store is None else store.path(name)
        return RotateKCache.load(path or "", vlm.model, PictureNotes, owner=reader.owner)

    arms: dict[str, Callable[[], Any]] = {
        "pixels": lambda: vlm.look(request),
        "afresh": afresh,
        "stored": lambda: asked(held),
        "copying": held.fork,
    }
    if store is not None:
        arms |= {"stored, from disk": lambda: asked(loaded()), "loading": loaded}
    ms = in_turn(arms, rounds)
    shares = {each: ms[each] / ms["afresh"] for each in arms if each.startswith("stored")}
    return {"first_token_ms": ms, "over_afresh": shares}


def reading(pictures: Pictures, pages: list[Any]) -> Row:
    """Milliseconds a page: read into an uncompressed cache, read and compressed, and indexed."""
    vlm, reader = pictures.engine.vlm, pictures.reader

    def plain(page: Any) -> None:
        read_plain(vlm, vlm.embed(vlm.prompt(make_request(page, "?", 1))))

    def index() -> None:
        """While the model reads a page, one is written, and the next one is prepared."""
        ready = made_ahead(pictures.prepare(page) for page in pages)
        with ThreadPoolExecutor(1) as writer:
            kept = [writer.submit(pictures.begin(one)) for one in ready]
        for one in kept:
            one.result()

    arms: dict[str, Callable[[], Any]] = {
        "uncompressed": lambda: list(map(plain, pages)),
        "reading": lambda: [reader.read([page], reader.look([page])) for page in pages],
        "index": index,
    }
    first, *pages = pages
    plain(first)
    pictures.add(first)  # what runs once runs here
    took = {name: 1000 * seconds(arm) / len(pages) for name, arm in arms.items()}
    more = took["index"] / took["reading"] - 1
    return {"page_ms": took, "index_over_reading": more}


def asking(pictures: Pictures, pages: list[Any]) -> Row:
    """Pages a second of one question to all, afresh and stored, whole answers."""
    engine, names = pictures.engine, [pictures.add(page) for page in pages]

    def stored() -> None:
        pictures.ask(names, QUESTION, LENGTH)

    def afresh() -> None:
        for page in pages:
            list(engine.answer(make_request(page, QUESTION, LENGTH), BASELINE))
            engine.pictures.clear()

    took = {}
    for name, arm in (("afresh", afresh), ("stored", stored)):
        arm()  # compiles, and captures its steps
        took[name] = len(pages) / seconds(arm)
    return {"pages_a_second": took, "times_as_many": took["stored"] / took["afresh"]}


@torch.inference_mode()
def full_size(tiny: bool = False, rounds: int = 5, bits: float = 0.75) -> Iterator[Row]:
    """The report, part by part; bits: a number."""
    begun = time.perf_counter()
    side = (224, 168) if tiny else SIDES
    vlm = tiny_qwen() if tiny else qwen(2880)
    row: Row = {"model": vlm.name, "bits": bits, "seconds": {}}
    with TemporaryDirectory() as folder:
        where = folder if find_spec("zstandard") else None
        pictures = Pictures(Engine(vlm), Settings.of(bits=bits), where)
        pages = [noise(*side, 28, seed) for seed in range(PAGES + 1)]
        pages = [make_request(page, "?").images[0] for page in pages]
        row["seconds"]["model"] = round(time.perf_counter() - begun, 1)
        parts: dict[str, Callable[[], Row]] = {
            "first token": lambda: first_tokens(pictures, pages[0], rounds),
            "bytes": lambda: _bytes(pictures, pages[0]),
            "reading": lambda: reading(pictures, pages[1:]),
            "asking": lambda: asking(pictures, pages[1:]),
        }
        for name, part in parts.items():
            begun = time.perf_counter()
            row |= part()
            row["seconds"][name] = round(time.perf_counter() - begun, 1)
            yield row


def _bytes(pictures: Pictures, page: Any) -> Row:
    """Of one page: uncompressed, held, and on disk."""
    picture = pictures.add(page)
    sizes = {
        "dense": picture.full_bytes, "held": picture.cache_bytes, "file": picture.file_bytes
    }  # fmt: skip
    smaller = {
        name: picture.full_bytes / size for name, size in sizes.items() if size and name != "dense"
    }
    return {"visual_tokens": picture.visual_tokens, "bytes": sizes, "times_smaller": smaller}
