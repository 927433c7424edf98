"""Measure the pocket model: ``python -m rotatek.pocket.evaluate [--model FOLDER]``.

Greedy answers of the plain transformers model to questions about freshly drawn documents, on three
splits: ``own`` (the training renderers and fonts, other seeds), ``fonts`` (families never trained
on) and ``renderers`` (renderers never trained on). Reports exact match with 95 % Wilson intervals
by kind, size and renderer, and the error rate of transcriptions (edit distance over length).
"""

import argparse
import json
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import Qwen2_5_VLForConditionalGeneration

from rotatek.pocket import shards
from rotatek.pocket.document import Question
from rotatek.pocket.generate import SPLITS, make_document
from rotatek.pocket.models import tokenizer
from rotatek.pocket.models.config import MIN_PIXELS, UNIT, scaled
from rotatek.pocket.models.forward import colour_scale, patchify

SIZES = ((224, 224), (448, 448), (336, 588), (672, 448), (728, 728), (896, 896))
SHORT_BYTES = 96
FIRST_SEED = 1 << 60  # training draws 48-bit seeds


@dataclass
class Answered:
    """One question and what became of it."""

    split: str
    renderer: str
    size: str
    kind: str
    question: str
    truth: str
    answer: str = ""
    error: float = 0.0
    confidence: float = 0.0


Pair = tuple[np.ndarray, Answered]


def edit_distance(a: str, b: str) -> int:
    """Levenshtein distance, one vectorised row at a time."""
    x, y = np.array([ord(c) for c in a], np.int64), np.array([ord(c) for c in b], np.int64)
    steps = np.arange(len(y) + 1)
    row = steps.copy()
    for i, c in enumerate(x):
        new = np.empty_like(row)
        new[0] = i + 1
        new[1:] = np.minimum(row[1:] + 1, row[:-1] + (y != c))
        row = np.minimum.accumulate(new - steps) + steps
    return int(row[-1])


def wilson(hits: int, n: int) -> tuple[float, float]:
    """95 % interval of a share."""
    if n == 0:
        return 0.0, 1.0
    z, p = 1.96, hits / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def drawn(size: str, args: argparse.Namespace) -> list[Pair]:
    """Every split's questions about documents of one size ("448x336")."""
    width, height = (int(v) for v in size.split("x"))
    made = (draw_items(s, (width, height), args.documents, args.questions) for s in args.splits)
    return [(image, item) for each in made for image, items in each for item in items]


def draw_items(
    split: str, size: tuple[int, int], documents: int, questions: int
) -> list[tuple[np.ndarray, list[Answered]]]:
    """Documents of one split and size, each with up to ``questions`` of its questions."""
    out = []
    for i in range(documents):
        seed = FIRST_SEED + i
        document = make_document(seed, *size, split=split)
        rng = random.Random(seed)
        chosen = _choose(rng, document.questions, questions)
        items = [
            Answered(split, document.renderer, f"{size[0]}x{size[1]}", q.kind, q.text, q.answer)
            for q in chosen
        ]
        out.append((np.asarray(document.image), items))
    return out


def stored_items(folder: Path, questions: int) -> list[tuple[np.ndarray, list[Answered]]]:
    """Stored documents (a browser's pages) as the split ``browser``."""
    out = []
    for i in range(shards.count(folder)):
        document = shards.read(folder, i)
        chosen = _choose(random.Random(i), document.questions, questions)
        size = "x".join(map(str, document.image.size))
        items = [
            Answered("browser", document.renderer, size, q.kind, q.text, q.answer) for q in chosen
        ]
        out.append((np.asarray(document.image), items))
    return out


def _choose(rng: random.Random, questions: list[Question], n: int) -> list[Question]:
    """``n`` questions of as many kinds as possible."""
    kinds: dict[str, list[Question]] = defaultdict(list)
    for q in questions:
        kinds[q.kind].append(q)
    names = list(kinds)
    rng.shuffle(names)
    return [rng.choice(kinds[k]) for k in names[:n]]


def prompts(questions: list[str], image_tokens: int, device: torch.device) -> torch.Tensor:
    """Token ids [B, T] of one image and one question each, padded on the left."""
    rows = [
        tokenizer.prefix()
        + [tokenizer.IMAGE_PAD] * image_tokens
        + tokenizer.question_ids(q, first=True)
        for q in questions
    ]
    longest = max(map(len, rows))
    return torch.tensor([[tokenizer.PAD] * (longest - len(r)) + r for r in rows], device=device)


def greedy(model: Any, ids: torch.Tensor, max_new: int, **seen: Any) -> list[tuple[str, float]]:
    """What ``model.generate`` answers to prompts ``ids``, up to the end of each answer.

    With each answer its confidence: the geometric mean of the tokens' probabilities.
    """
    out = model.generate(
        input_ids=ids,
        attention_mask=(ids != tokenizer.PAD).long(),
        max_new_tokens=max_new,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        **seen,
    )
    new = out.sequences[:, ids.shape[1] :]
    scores = torch.stack(out.logits, 1).float().log_softmax(-1).gather(-1, new[..., None])[..., 0]
    return [_spoken(*row) for row in zip(new.tolist(), scores.tolist(), strict=True)]


def _spoken(ids: list[int], scores: list[float]) -> tuple[str, float]:
    end = ids.index(tokenizer.IM_END) + 1 if tokenizer.IM_END in ids else len(ids)
    return tokenizer.decode(ids[:end]), math.exp(sum(scores[:end]) / max(1, end))


def enlarged(images: np.ndarray) -> np.ndarray:
    """Small images [B, H, W, 3] as the shipped processor scales them up; others as they are."""
    height, width = images.shape[1:3]
    if height * width >= MIN_PIXELS:
        return images
    size, how = scaled(width, height), Image.Resampling.BICUBIC
    return np.stack([np.asarray(Image.fromarray(x).resize(size, how)) for x in images])


@torch.no_grad()
def answer(
    model: Any, images: np.ndarray, questions: list[str], max_new: int
) -> list[tuple[str, float]]:
    """Greedy answers and their confidences. ``images`` uint8 [B, H, W, 3]: one a question."""
    device, images = model.device, enlarged(images)
    rows, columns = images.shape[1] // UNIT, images.shape[2] // UNIT
    ids = prompts(questions, rows * columns, device)
    patches = patchify(torch.from_numpy(images).to(device), *colour_scale(device))  # one frame
    both = patches.unflatten(-1, (3, 1, 196)).expand(-1, -1, 3, 2, 196)
    return greedy(
        model,
        ids,
        max_new,
        mm_token_type_ids=(ids == tokenizer.IMAGE_PAD).int(),
        pixel_values=both.reshape(-1, 1176).to(model.dtype),
        image_grid_thw=torch.tensor([[1, 2 * rows, 2 * columns]] * len(ids), device=device),
    )


def run(model: Any, pairs: list[Pair], batch: int, longest: int) -> None:
    """Answer every item (images of one size) and fill it in, in batches of ``batch``."""
    short = [p for p in pairs if len(p[1].truth.encode()) <= SHORT_BYTES]
    long = sorted(
        (p for p in pairs if len(p[1].truth.encode()) > SHORT_BYTES),
        key=lambda p: len(p[1].truth.encode()),
    )
    for group, limit in ((short, SHORT_BYTES + 16), (long, longest)):
        for i in range(0, len(group), batch):
            part = group[i : i + batch]
            images = np.stack([image for image, _ in part])
            most = min(limit, max(len(item.truth.encode()) for _, item in part) + 24)
            note(part, answer(model, images, [item.question for _, item in part], most))


def note(pairs: list[Pair], answers: list[tuple[str, float]]) -> None:
    """Fill in what was answered to each item."""
    for (_, item), (text, confidence) in zip(pairs, answers, strict=True):
        item.answer, item.confidence = text, round(confidence, 4)
        item.error = edit_distance(text, item.truth) / max(1, len(item.truth))


def summary(items: Iterable[Answered]) -> dict[str, Any]:
    """Exact match with its interval, and the transcription error, of some items."""
    items = list(items)
    hits = sum(i.answer == i.truth for i in items)
    low, high = wilson(hits, len(items))
    out = {"n": len(items), "exact": hits / max(1, len(items)), "low": low, "high": high}
    pages = [i for i in items if i.kind == "transcribe"]
    if pages:
        written = sum(len(i.truth) for i in pages)
        out["transcription_error"] = sum(i.error * len(i.truth) for i in pages) / written
        out["runaway"] = sum(i.error > 1 for i in pages)  # more wrong characters than there are
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in out.items()}


def report(items: list[Answered]) -> dict[str, Any]:
    """All tables: per split, and within each split per kind, size and renderer."""
    out: dict[str, Any] = {}
    for split in dict.fromkeys(i.split for i in items):
        mine = [i for i in items if i.split == split]
        table: dict[str, Any] = {"all": summary(mine)}
        table["short"] = summary(i for i in mine if i.kind != "transcribe")
        table["transcription"] = summary(i for i in mine if i.kind == "transcribe")
        for field in ("kind", "size", "renderer"):
            names = sorted({getattr(i, field) for i in mine})
            table[field] = {n: summary(i for i in mine if getattr(i, field) == n) for n in names}
        out[split] = table
    out["calibration"] = calibration(items)
    return out


def calibration(items: list[Answered]) -> dict[str, Any]:
    """Does the confidence know? Share right per confidence bin, and the area under the ROC."""
    scores = np.array([i.confidence for i in items])
    right = np.array([i.answer == i.truth for i in items])
    edges = (0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.01)
    bins = []
    for low, high in zip(edges, edges[1:], strict=False):
        inside = (scores >= low) & (scores < high)
        if inside.any():
            share = float(right[inside].mean())
            bins.append({"from": low, "n": int(inside.sum()), "exact": round(share, 4)})
    order = scores.argsort()
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    good, bad = int(right.sum()), int((~right).sum())
    area = (ranks[right].sum() - good * (good + 1) / 2) / max(1, good * bad)
    return {"bins": bins, "auroc": round(float(area), 4)}


def markdown(tables: dict[str, Any]) -> str:
    """The report as Markdown tables."""
    lines = [
        "| split | group | n | exact | 95 % | transcription error |",
        "|---|---|---|---|---|---|",
    ]
    for split, table in tables.items():
        if split == "calibration":
            continue
        rows = {name: table[name] for name in ("all", "short", "transcription")}
        for field in ("kind", "size", "renderer"):
            rows |= {f"{field}: {name}": row for name, row in table[field].items()}
        for name, r in rows.items():
            error = f"{r['transcription_error']:.3f}" if "transcription_error" in r else ""
            lines.append(
                f"| {split} | {name} | {r['n']} | {r['exact']:.3f} "
                f"| {r['low']:.3f}-{r['high']:.3f} | {error} |"
            )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Evaluate as the command line says; Markdown to stdout, JSON to ``--json``."""
    p = argparse.ArgumentParser(prog="python -m rotatek.pocket.evaluate", description=__doc__)
    default = Path(__file__).parents[3] / "assets" / "pocket"
    p.add_argument("--model", type=Path, default=default)
    p.add_argument("--splits", nargs="*", default=list(SPLITS))
    p.add_argument("--documents", type=int, default=40, help="documents per split and size")
    p.add_argument("--questions", type=int, default=3, help="questions per document")
    p.add_argument("--sizes", nargs="+", default=[f"{w}x{h}" for w, h in SIZES])
    p.add_argument("--pages", type=Path, help="stored documents to add as the split browser")
    p.add_argument("--batch", type=int, default=0)
    p.add_argument("--max-new", type=int, default=960)
    p.add_argument("--json", type=Path)
    p.add_argument("--items", type=Path, help="write every question and answer here")
    p.add_argument("--merge", type=Path, nargs="+", help="only add up these files of --items")
    args = p.parse_args(argv)
    if args.merge:
        rows = [row for path in args.merge for row in json.loads(path.read_text("utf-8"))]
        finish([Answered(**row) for row in rows], args)
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(args.model, dtype=torch.float32)
    model = model.to(device).eval()
    batch, began = args.batch or (128 if device == "cuda" else 4), time.monotonic()
    items: list[Answered] = []
    for name in args.sizes:
        pairs = drawn(name, args)
        run(model, pairs, batch, args.max_new)
        items += [item for _, item in pairs]
        done = summary(items)
        print(f"{name}: {done} after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if args.pages:
        by_size: dict[tuple[int, ...], list] = defaultdict(list)
        for image, mine in stored_items(args.pages, args.questions):
            by_size[image.shape] += [(image, item) for item in mine]
        for pairs in by_size.values():
            run(model, pairs, batch, args.max_new)
            items += [item for _, item in pairs]
    finish(items, args)


def finish(items: list[Answered], args: argparse.Namespace) -> None:
    """Write the report, and the answers themselves where asked for."""
    tables = report(items)
    tables["questions"] = len(items)
    if args.json:
        args.json.write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")
    if args.items and not args.merge:
        rows = [asdict(i) for i in items]
        args.items.write_text(json.dumps(rows, indent=0, ensure_ascii=False), encoding="utf-8")
    print(markdown({k: v for k, v in tables.items() if k in (*SPLITS, "browser")}))


if __name__ == "__main__":
    main()
