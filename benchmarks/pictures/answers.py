"""Answers of stored pictures beside those of the uncompressed model, question by question.

A picture is read once without a question and compressed; the uncompressed model's own answer is fed
behind it, so that every token is compared where the model would have been. `same`: all tokens are
those that it would have chosen. Questions come from the generator's suites (`pocket`, and
`pocket-unseen` by other renderers), or from a file of pictures and questions.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.decode import feed, forward_one
from rotatek.evaluation.metrics import exact_match
from rotatek.evaluation.suite import EMBEDDED, draw
from rotatek.inputs.request import make_request, open_image
from rotatek.methods.channels import Full
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from rotatek.pictures.reading import PictureReader, cut

LONGEST: Final = 48  # tokens of a compared answer
SEED: Final = 5
Row = dict[str, Any]


class Page(NamedTuple):
    """One picture, and what is asked of it: each question with the answers that are right."""

    image: Image.Image
    asked: list[tuple[str, tuple[str, ...]]]


def pages_of(suite: str, pages: int) -> Iterator[Page]:
    """The first pages of a suite.

    Args:
        suite: a name of `EMBEDDED`, or a file of JSON lines: image (a path beside the file),
            question, and answers, one or several.
        pages: how many.
    """
    if suite in EMBEDDED:
        drawn = draw(suite, 3 * pages, SEED, Path("build") / f"pictures-{suite}-{pages}")
        short = [item for item in drawn.items if not item.long]
        for document in list(dict.fromkeys(item.document for item in short))[:pages]:
            own = [item for item in short if item.document == document]
            asked = [(item.question, item.accepted) for item in own]
            yield Page(drawn.image(document), asked)
        return
    path = Path(suite)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    for name in list(dict.fromkeys(line["image"] for line in lines))[:pages]:
        told = [line for line in lines if line["image"] == name]
        asked = [(line["question"], _accepted(line)) for line in told]
        yield Page(open_image(path.parent / name), asked)


def _accepted(line: Row) -> tuple[str, ...]:
    """A line's right answers."""
    given: Any = line.get("answers", line.get("answer", ()))
    return (given,) if isinstance(given, str) else tuple(given)


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


def greedy(vlm: VisionLanguageModel, cache: RotateKCache, ids: Sequence[int]) -> list[int]:
    """The tokens that a model answers behind a picture, its end included."""
    own, position = cache.fork(), cache.notes.next_position
    logits, _ = feed(vlm, torch.tensor([list(ids)], device=vlm.device), position, own)
    own.make_growing()
    answer = [int(logits.argmax())]
    while len(answer) < LONGEST and answer[-1] not in vlm.stop_ids:
        token = torch.tensor(answer[-1:], device=vlm.device)
        place = position + len(ids) + len(answer) - 1
        answer.append(int(forward_one(vlm, token, place, own, None).argmax()))
    return answer


@torch.inference_mode()
def compared(
    vlm: VisionLanguageModel, page: Page, bits: float, weigh_by: Sequence[str]
) -> Iterator[Row]:
    """A row for each question and way to weigh."""
    stop = vlm.stop_ids
    images = make_request(page.image, "?").images
    exact = PictureReader(vlm, Settings(channels=Full()))
    pixels = exact.look(images)
    whole = exact.read(images, pixels)
    readers = {name: PictureReader(vlm, Settings.of(bits=bits), name) for name in weigh_by}
    stored = {name: reader.read(images, pixels) for name, reader in readers.items()}
    for question, accepted in page.asked:
        ids = cut(vlm, question, [vlm.placeholder])[1]
        answer = greedy(vlm, whole, ids)
        wanted = forced(vlm, whole, [*ids, *answer[:-1]], len(answer))
        said = vlm.tokenizer.decode([t for t in answer if t not in stop]).strip()
        for name, cache in stored.items():
            got = forced(vlm, cache, [*ids, *answer[:-1]], len(answer))
            yield {
                "question": question,
                "weigh_by": name,
                "answer": said,
                "right": exact_match(said, accepted),
                "same": got.argmax(-1).tolist() == answer,
                "kl": float((wanted.exp() * (wanted - got)).sum(-1).mean()),
            }


def answers(
    vlm: VisionLanguageModel, suite: str, pages: int, bits: float, weigh_by: Sequence[str]
) -> Iterator[Row]:
    """How many answers are the same, and the mean divergence, by way to weigh; page by page."""
    rows: list[Row] = []
    for count, page in enumerate(pages_of(suite, pages), 1):
        rows += compared(vlm, page, bits, weigh_by)
        report: Row = {"bits": bits, "pages": count}
        for name in weigh_by:
            own = [row for row in rows if row["weigh_by"] == name]
            report[name] = {
                "questions": len(own),
                "same": sum(row["same"] for row in own),
                "kl": sum(row["kl"] for row in own) / max(len(own), 1),
                "right": sum(row["right"] for row in own),
                "differ": [row["question"] for row in own if not row["same"]],
            }
        yield report
