"""Times and bytes of stored pages, beside the uncompressed model asked afresh, in one run.

Milliseconds of the processor (one thread, so that other programs change little), and quotients.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from PIL import Image
from torch import Tensor

from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import feed
from rotatek.engine.engine import Engine
from rotatek.engine.prefill import empty_cache, fill, plan_for
from rotatek.inputs.request import make_request, open_image
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import Embedded, VisionLanguageModel
from rotatek.pictures import Pictures
from rotatek.pictures.reading import PictureNotes

EXAMPLES: Final = Path(__file__).parents[2] / "assets" / "examples"
QUESTION: Final = "What is the title?"


def spent(work: Callable[[], Any], times: int = 1) -> float:
    """Milliseconds of the processor that a call takes, on average."""
    began = time.process_time()
    for _ in range(times):
        work()
    return 1000 * (time.process_time() - began) / times


def pages_of(count: int, side: int | None) -> list[Image.Image]:
    """The example pictures, a pixel row shorter each time round; side: of the longer edge."""
    found, paths = [], sorted(EXAMPLES.glob("*.png"))
    for number in range(count):
        image = open_image(paths[number % len(paths)])
        width, height = image.size
        image = image.crop((0, 0, width, height - number // len(paths)))
        if side is not None:
            scale = side / max(image.size)
            image = image.resize((round(width * scale), round(image.height * scale)))
        found.append(image)
    return found


@torch.inference_mode()
def first_token(vlm: VisionLanguageModel, image: Image.Image) -> Tensor:
    """Logits of a question about a picture that is read for it, in a plain cache."""
    return read_plain(vlm, vlm.embed(vlm.prompt(make_request(image, QUESTION, 8))))


def read_plain(vlm: VisionLanguageModel, embedded: Embedded) -> Tensor:
    """The last logits of a prompt that is read into a plain cache."""
    plan = plan_for(vlm, embedded, BASELINE.pruning)
    return fill(vlm, embedded, plan, [empty_cache(vlm, embedded, BASELINE, plan)])[0]


def times_of(vlm: VisionLanguageModel, settings: Settings, pages: int, side: int | None) -> dict:
    """Times and bytes of pages that are asked afresh, and from a store."""
    engine, images = Engine(vlm), pages_of(pages, side)
    with tempfile.TemporaryDirectory() as folder:
        pictures = Pictures(engine, settings, folder)
        reader, store = pictures.reader, pictures.store
        assert store is not None
        first_token(vlm, images[0])  # warm
        alone = spent(lambda: [reader.read([one], reader.look([one])) for one in images[:4]]) / 4
        index = spent(lambda: [pictures.add(one) for one in images]) / pages
        held = [pictures.add(one) for one in images]
        ids = torch.tensor([pictures.asker.ids_of(QUESTION)], device=vlm.device)

        def asked(cache: RotateKCache) -> None:
            feed(vlm, ids, cache.notes.next_position, cache.fork(ids.shape[1]))

        def loaded() -> RotateKCache:
            path = store.path(held[0].name)
            return RotateKCache.load(path or "", vlm.model, PictureNotes, owner=reader.owner)

        ready = loaded()
        asked(ready)
        afresh = spent(lambda: first_token(vlm, images[0]), 3)
        warm, cold = spent(lambda: asked(ready), 5), spent(lambda: asked(loaded()), 5)
        from_store = spent(lambda: pictures.ask(held, QUESTION, 16)) / pages
        few = images[:4]
        whole = spent(
            lambda: [list(engine.answer(make_request(i, QUESTION, 16), BASELINE)) for i in few]
        ) / len(few)
        dense, files = (sum(getattr(p, n) for p in held) for n in ("full_bytes", "file_bytes"))
        return {
            "visual_tokens": held[0].visual_tokens,
            "first_token_ms": {"afresh": afresh, "stored": warm, "with_loading": cold},
            "first_token_share": {"stored": warm / afresh, "with_loading": cold / afresh},
            "page_ms": {"afresh": whole, "stored": from_store, "times_faster": whole / from_store},
            "bytes": {"dense": dense, "files": files, "times_smaller": dense / files},
            "index_ms": {"reading": alone, "index": index, "more": index / alone - 1},
        }
