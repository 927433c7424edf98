"""The effect of compressed caches on a given answer.

Every accepted answer is fed behind its question, once into the plain cache and once into each
setting's, from one prefill, a batch of questions at a time. What `out` holds of the same run is not
asked again, so one that was cut short goes on. The report has, paired by question: how many short
answers a setting would write letter for letter (all of its most likely tokens are the answer's),
wrong tokens of whole pages, the divergence of the tokens' distributions from the plain cache's, and
live bytes, of a batch's padding too. It takes one forward pass an answer, so settings can be judged
in seconds, on a CPU too. `ask="second"` puts the picture's first question and its answer in front,
and `"neutral"` a question about nothing in particular: then the cache was not weighed by the
question.
"""

import hashlib
import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import cache_bytes, release
from rotatek.engine.conversation import turn_of
from rotatek.engine.prefill import by_pruning, empty_cache, fill, plan_for
from rotatek.evaluation.chains import FIRST, NEUTRAL_QUESTION, SECOND
from rotatek.evaluation.journal import weights_id
from rotatek.evaluation.metrics import paired_interval
from rotatek.evaluation.question_batch import QuestionBatch
from rotatek.evaluation.suite import FileSuite, Item, StoredSuite, Suite, fingerprint
from rotatek.methods.settings import BASELINE, Settings
from rotatek.models import Embedded, VisionLanguageModel
from rotatek.models.loading import load

MOST = 300  # tokens of a page
NOTHING = "a page"  # the answer to a neutral question
Arms = Mapping[str, Mapping[str, Any]]
ARMS: Final[Arms] = {
    **{f"bits {b:g}": {"bits": b} for b in (8, 3, 2, 1, 0.75, 0.5, 0.25)},
    "bits 0.75, none": {"bits": 0.75, "weighting": "none"},
    "Keys 32": {"keep_channels": 0.25},
    "Keys 16, Values 32, adaptive": {
        "keep_channels": 0.125, "keep_values": 0.25, "widths": "adaptive"
    },
    "Keys 8, Values 16, adaptive": {
        "keep_channels": 0.0625, "keep_values": 0.125, "widths": "adaptive"
    },
    "int8": {"keep_channels": 1.0, "cache_dtype": "int8"},
    "FastV .5, bits 1": {"tokens": "fastv", "keep_tokens": 0.5, "bits": 1},
}  # fmt: skip


@torch.inference_mode()
def forced(
    vlm: VisionLanguageModel, embedded: Embedded, cache: Cache, first: Tensor, ids: Tensor
) -> Tensor:
    """Log-probabilities [B, T, vocabulary] of answers' tokens ids [B, T], given those before."""
    T = ids.shape[1]
    places = [vlm.positions_at(embedded.next_position + t) for t in range(T - 1)]
    mask = None
    if not bool(embedded.valid.all()):
        mask = torch.nn.functional.pad(embedded.valid.long(), (0, T - 1), value=1)
    out = vlm.model(
        input_ids=ids[:, :-1],
        position_ids=torch.cat(places, -1),
        attention_mask=mask,
        **with_cache(vlm.model, cache),
        use_cache=True,
    )
    return torch.cat([first[:, None], out.logits.float()], 1).log_softmax(-1)


def opened(items: Sequence[Item], ask: str) -> list[tuple[Item, Item | None]]:
    """Questions with the one that is asked before each; those that open are left out.

    Args:
        items: a suite's questions.
        ask: of `rotatek.evaluation.chains.ASKS`.
    """
    if ask == FIRST:
        return [(item, None) for item in items]
    if ask != SECOND:
        return [
            (one, replace(one, question=NEUTRAL_QUESTION, accepted=(NOTHING,), long=False))
            for one in items
        ]
    first: dict[int, Item] = {}
    for item in sorted(items, key=lambda item: item.long):
        first.setdefault(item.document, item)
    return [(item, first[item.document]) for item in items if item != first[item.document]]


def rows_of(
    vlm: VisionLanguageModel,
    suite: Suite,
    pairs: Sequence[tuple[Item, Item | None]],
    arms: Arms,
) -> Iterator[dict[str, Any]]:
    """Questions under every arm, the plain cache first; bytes are those of all of them together.

    pairs: of `opened`.
    """
    items = [item for item, _ in pairs]
    asked = QuestionBatch(vlm, suite, [before or item for item, before in pairs], "", (8, 8))
    stop = min(vlm.stop_ids)

    def answer(item: Item) -> list[int]:
        said = vlm.tokenizer(item.accepted[0], add_special_tokens=False)["input_ids"]
        return [*said[:MOST], stop]

    answers = [answer(item) for item in items]
    opening = [
        [] if before is None else answer(before)[:-1] + turn_of(vlm, item.question).ids[0].tolist()
        for item, before in pairs
    ]
    fed = [[*before, *own] for before, own in zip(opening, answers, strict=True)]
    most = max(map(len, fed))
    ids = torch.tensor([one + [stop] * (most - len(one)) for one in fed], device=vlm.device)
    settings = {"plain": BASELINE} | {name: Settings.of(**arm) for name, arm in arms.items()}
    plain: Tensor | None = None
    full = 0
    for alike in by_pruning(settings.values()):
        embedded, _ = asked.under(alike[0].pruning)
        plan = plan_for(vlm, embedded, alike[0].pruning, general=alike[0].asks_generally)
        names = [name for name, one in settings.items() if one in alike]
        caches = [empty_cache(vlm, embedded, settings[name], plan) for name in names]
        first, _ = fill(vlm, embedded, plan, caches, timed=False)
        for name, cache in zip(names, caches, strict=True):
            got = forced(vlm, embedded, cache, first, ids)
            held = cache_bytes(cache).total
            plain, full = (got, held) if plain is None else (plain, full)
            right = got.argmax(-1) == ids
            away = (plain.exp() * (plain - got)).sum(-1)
            for number, (item, one) in enumerate(zip(items, answers, strict=True)):
                own = number, slice(len(fed[number]) - len(one), len(fed[number]))
                yield {
                    "item": item.name, "document": item.document, "page": item.long, "arm": name,
                    "right": bool(right[own].all()), "wrong": 1 - float(right[own].float().mean()),
                    "kl": float(away[own].mean()), "share": held / full,
                }  # fmt: skip
            release(cache)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every arm's figures, in percent where they are counts."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(row["arm"] for row in rows):
        own = [row for row in rows if row["arm"] == name]
        means = {
            page: np.mean([row["kl"] for row in own if row["page"] == page] or [0.0])
            for page in (False, True)
        }
        found[name] = {
            "bytes": round(float(np.mean([row["share"] for row in own])), 4),
            "short right": _paired(rows, name, page=False, key="right"),
            "wrong on pages": _paired(rows, name, page=True, key="wrong"),
            "KL": round(float(means[False]), 6),
            "KL on pages": round(float(means[True]), 6),
        }
    return found


def _paired(rows: Sequence[Mapping[str, Any]], name: str, page: bool, key: str) -> dict[str, Any]:
    """An arm's mean in percent, its difference from the plain cache, and that one's interval."""
    own, plain = (
        {row["item"]: row for row in rows if row["arm"] == arm and row["page"] == page}
        for arm in (name, "plain")
    )
    mine, theirs = (np.array([100.0 * one[item][key] for item in plain]) for one in (own, plain))
    groups = np.array([row["document"] for row in plain.values()])
    low, high = paired_interval(mine, theirs, groups)
    mean, gap = (mine.mean(), (mine - theirs).mean()) if len(mine) else (0.0, 0.0)
    return {
        "questions": len(mine), "mean": round(float(mean), 2), "gap": round(float(gap), 2),
        "interval": [round(float(low), 2), round(float(high), 2)],
    }  # fmt: skip


def answers(
    vlm: VisionLanguageModel, suite: Suite, asked: Sequence[tuple[Item, Item | None]], arms: Arms,
    batch: int, path: Path,
) -> list[dict[str, Any]]:  # fmt: skip
    """The rows of questions, of `opened`, which a file keeps; it is that of one run alone.

    What the file has of every arm is not asked again; a line that was cut short is.
    """
    owed = {"plain", *arms}
    known = [row for row in _whole(path) if row["arm"] in owed]
    seen: dict[str, set[str]] = {}
    for row in known:
        seen.setdefault(row["item"], set()).add(row["arm"])
    rows = [row for row in known if seen[row["item"]] == owed]
    alike = sorted(asked, key=lambda pair: (pair[0].long, len(pair[0].accepted[0])))  # in length
    left = [pair for pair in alike if seen.get(pair[0].name) != owed]
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
        for at in range(0, len(left), batch):
            new = [*rows_of(vlm, suite, left[at : at + batch], arms)]
            file.writelines(json.dumps(row) + "\n" for row in new)
            file.flush()
            rows += new
    return rows


def _whole(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, as far as they are whole."""
    rows = []
    with suppress(FileNotFoundError, ValueError):
        for line in path.read_text().splitlines():
            rows.append(json.loads(line))
    return rows


def change(constants: Sequence[str]) -> None:
    """Set constants of modules in this process:
    `rotatek.methods.channels.mixed_precision:TOKEN_POWER=0.25`."""
    for one in constants:
        place, value = one.split("=")
        module, name = place.split(":")
        setattr(importlib.import_module(module), name, float(value) if "." in value else int(value))


def bits_quality(
    suite: Path,
    model: str = "pocket",
    device: str | None = None,
    questions: int = 300,
    batch: int = 1,
    arms: Arms = ARMS,
    constants: Sequence[str] = (),
    ask: str = FIRST,
    out: Path = Path("artifacts/bits"),
) -> dict[str, Any]:
    """Every arm's figures, under the model's name; `out` keeps rows to go on from, a file for each
    combination of weights, questions, way to ask, arms and constants.

    suite: the folder of a drawn suite, or a file of questions; the others as the module says.
    """
    out.mkdir(parents=True, exist_ok=True)
    change(constants)
    asked: Suite = FileSuite(suite) if suite.is_file() else StoredSuite(suite / "questions.jsonl")
    vlm, pairs = load(model, device), opened(asked.items, ask)
    pairs = pairs[:: max(1, len(pairs) // questions)]
    run = weights_id(vlm), fingerprint(asked), ask, arms, sorted(constants)
    digest = hashlib.sha256(json.dumps(run).encode()).hexdigest()[:12]
    rows = answers(vlm, asked, pairs, arms, batch, out / f"rows-{digest}.jsonl")
    said = {
        name: {k: v for k, v in one.items() if k != "calibration"} for name, one in arms.items()
    }
    return {model: {"weights": weights_id(vlm), "arms": said, "figures": summary(rows)}}
