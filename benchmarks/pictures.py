"""Stored pictures beside the model asked afresh, at Qwen2.5-VL-7B's shapes.

First tokens are timed from the question to the token: a picture of 2,880 visual tokens asked
afresh of the uncompressed model, one that is held, and one that is opened from its file. Then
bytes, and pages a second that are read and asked.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch

from benchmarks.full_qwen import QUESTION, SETTINGS, model_and_sides, noise
from benchmarks.timing import in_turn, seconds
from rotatek.engine.engine import Engine
from rotatek.inputs.request import make_request
from rotatek.methods.settings import BASELINE
from rotatek.pictures import Pictures

LENGTH: Final = 16  # tokens of an answer


def figures(
    pictures: Pictures, folder: str | None, pages: list[Any], rounds: int
) -> Iterator[dict[str, Any]]:
    """First tokens, bytes, and rates; folder: of the store, None for one in memory alone."""
    engine = pictures.engine
    first, *rest = pages
    stored = pictures.add(first)

    def afresh(page: Any, length: int) -> None:
        engine.pictures.clear()
        list(engine.compare(make_request(page, QUESTION, length), {"x": BASELINE}, trace=False))

    def opened() -> None:
        again = Pictures(engine, pictures.settings, folder)
        again.ask([stored.name], QUESTION, 1)
        again.close()

    arms: dict[str, Callable[[], object]] = {
        "afresh": lambda: afresh(first, 1),
        "stored": lambda: pictures.ask([stored.name], QUESTION, 1),
    }
    if folder:
        arms["opened"] = opened
    ms = in_turn(arms, rounds)
    sooner = {f"{name}_times_sooner": ms["afresh"] / ms[name] for name in [*arms][1:]}
    yield {f"{name}_ms": each for name, each in ms.items()} | sooner
    sizes = {"dense": stored.full_bytes, "held": stored.cache_bytes, "file": stored.file_bytes}
    yield {"visual_tokens": stored.visual_tokens} | {f"{n}_MB": b / 1e6 for n, b in sizes.items()}
    read = len(rest) / seconds(lambda: [pictures.add(page) for page in rest])
    names = [pictures.add(page).name for page in pages]
    pictures.ask(names, QUESTION, LENGTH)  # compiles
    asked = len(names) / seconds(lambda: pictures.ask(names, QUESTION, LENGTH))
    fresh = len(pages) / seconds(lambda: list(map(partial(afresh, length=LENGTH), pages)))
    yield {"pages_read_s": read, "pages_asked_s": asked, "afresh_s": fresh, "over": asked / fresh}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pages", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)


@torch.inference_mode()
def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Three rows a setting: first tokens, bytes, pages a second."""
    vlm, side = model_and_sides(options.tiny)
    engine = Engine(vlm, graphs=vlm.device.type == "cuda")
    pages = [noise(*side, 28, seed) for seed in range(options.pages)]
    pages = [make_request(page, "?").images[0] for page in pages]
    for name, setting in [*SETTINGS.items()][1:]:  # which leaves out the uncompressed one
        with TemporaryDirectory() as folder:
            where = folder if find_spec("zstandard") else None
            pictures = Pictures(engine, setting, where)
            for row in figures(pictures, where, pages, options.rounds):
                yield {"setting": name} | row
            pictures.close()
