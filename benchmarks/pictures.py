"""Savings of a stored picture: `python -m benchmarks.pictures [--pages 24] [--weights]`.

The same pages are asked afresh by the uncompressed model and from a store, in one run. Printed are
milliseconds of the processor (one thread, so that other programs change little), their quotients,
and bytes. With --weights: the share of answers that are the uncompressed model's own, and the
divergence of its tokens' distributions, by the source of queries of a picture without questions.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
from PIL import Image
from torch import Tensor

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import feed
from rotatek.engine.engine import Engine
from rotatek.engine.prefill import empty_cache, fill, plan_for
from rotatek.evaluation.suite import draw
from rotatek.inputs.request import make_request, open_image
from rotatek.methods.channels import Full
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import VisionLanguageModel
from rotatek.pictures import Pictures
from rotatek.pictures.reading import WEIGH_BY, PictureNotes, PictureReader, cut

EXAMPLES: Final = Path(__file__).parents[1] / "assets" / "examples"
QUESTION: Final = "What is the title?"
LONGEST: Final = 48  # tokens of a compared answer


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
    embedded = vlm.embed(vlm.prompt(make_request(image, QUESTION, 8)))
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
            feed(vlm, ids, cache.notes.next_position, cache.fork())

        def loaded() -> RotateKCache:
            path = store.path(held[0].name)
            return RotateKCache.load(path or "", vlm.model, PictureNotes)

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


@torch.inference_mode()
def forced(vlm: VisionLanguageModel, cache: RotateKCache, ids: list[int], kept: int) -> Tensor:
    """Log-probabilities [kept, vocabulary] of the last tokens of `ids`, fed behind a picture."""
    start = cache.notes.next_position
    places = [vlm.positions_at(start + step) for step in range(len(ids))]
    out = vlm.model(
        input_ids=torch.tensor([ids], device=vlm.device),
        position_ids=torch.cat(places, -1),
        use_cache=True,
        logits_to_keep=kept,
        **with_cache(vlm.model, cache.fork()),
    )
    return out.logits[0].float().log_softmax(-1)


def weights_of(vlm: VisionLanguageModel, pages: int, bits: list[float]) -> Iterator[dict[str, Any]]:
    """Each question's answer by each way to weigh, against the uncompressed model's."""
    suite = draw("pocket", 3 * pages, 5, Path("build") / f"pictures-{pages}")
    documents: dict[int, list[str]] = {}
    for item in suite.items:
        if not item.long:
            documents.setdefault(item.document, []).append(item.question)
    stop = set(vlm.stop_ids)
    for document, questions in documents.items():
        images = make_request(suite.image(document), "?").images
        exact = Pictures(vlm, Settings(channels=Full()))
        page = exact.add(images)
        pixels, whole = exact.reader.look(images), exact._cache(page.name)
        said = []
        for question in questions:
            ids = cut(vlm, question, [vlm.placeholder])[1]
            answer = list[int]()
            while len(answer) < LONGEST and not stop & set(answer):
                answer.append(int(forced(vlm, whole, [*ids, *answer], 1).argmax()))
            whole_logits = forced(vlm, whole, [*ids, *answer[:-1]], len(answer))
            said.append((question, ids, answer, whole_logits))
        for each in bits:
            for weigh_by in WEIGH_BY:
                reader = PictureReader(vlm, Settings.of(bits=each), weigh_by)
                cache = reader.read(images, pixels)
                for question, ids, answer, wanted in said:
                    got = forced(vlm, cache, [*ids, *answer[:-1]], len(answer))
                    yield {
                        "document": document, "question": question, "bits": each,
                        "weigh_by": weigh_by, "same": got.argmax(-1).tolist() == answer,
                        "kl": float((wanted.exp() * (wanted - got)).sum(-1).mean()),
                    }  # fmt: skip


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pages", type=int, default=24)
    parser.add_argument("--side", type=int, help="pixels of the longer edge")
    parser.add_argument("--bits", type=float, nargs="+", default=[0.75])
    parser.add_argument("--weights", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    from rotatek.models import load  # noqa: PLC0415

    vlm = load(args.model, args.device)
    if not args.weights:
        found = times_of(vlm, Settings.of(bits=args.bits[0]), args.pages, args.side)
        print(json.dumps(found, indent=1))
        return
    rows = list(weights_of(vlm, args.pages, args.bits))
    for bits in args.bits:
        for weigh_by in WEIGH_BY:
            own = [row for row in rows if (row["bits"], row["weigh_by"]) == (bits, weigh_by)]
            same, kl = (sum(row[key] for row in own) for key in ("same", "kl"))
            print(f"{bits:g} bits, {weigh_by}: {same} of {len(own)}, KL {kl / len(own):.5f}")


if __name__ == "__main__":
    main()
