"""Measure the second pocket model: ``python -m rotatek.pocket.llava_evaluate [--model FOLDER]``.

The questions, splits, measures and intervals are those of `rotatek.pocket.evaluate`, on documents
of up to 672 pixels: larger ones lose their small type to the tiling. Under torchrun the processes
share the documents.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import Tensor
from transformers import LlavaNextForConditionalGeneration

from rotatek.pocket.evaluation.evaluate import (
    SHORT_BYTES,
    Answered,
    Pair,
    drawn,
    greedy,
    markdown,
    note,
    prompts,
    report,
    summary,
)
from rotatek.pocket.generate import SPLITS
from rotatek.pocket.models.config import MEAN, STD
from rotatek.pocket.models.llava_tiles import join, order, tiling, views

SIZES = ((224, 224), (336, 336), (560, 336), (448, 448), (448, 672), (672, 672))
LONGEST_TRUTH = 560  # bytes; longer pages never occur in training


@torch.no_grad()
def answer(
    model: Any, images: list[np.ndarray], questions: list[str], max_new: int
) -> list[tuple[str, float]]:
    """Greedy answers and their confidences (geometric mean of the tokens' probabilities).

    ``images`` uint8 [H, W, 3], all of one size: one image a question.
    """
    height, width = images[0].shape[:2]
    pixels, count = pixel_values(images, model.config.vision_config.image_size)
    return greedy(
        model,
        prompts(questions, count, model.device),
        max_new,
        pixel_values=pixels.to(model.device, model.dtype),
        image_sizes=torch.tensor([[height, width]] * len(questions), device=model.device),
    )


def pixel_values(images: list[np.ndarray], side: int) -> tuple[Tensor, int]:
    """What the stock processor makes of images of one size, [B, tiles, 3, side, side]; N of one."""
    height, width = images[0].shape[:2]
    plan = tiling(width, height, side)
    made = [views(Image.fromarray(image), plan) for image in images]
    base, grid = (torch.from_numpy(np.stack(column)) for column in zip(*made, strict=True))
    tiles = join(base, grid, plan).permute(0, 1, 4, 2, 3).float() / 255
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    return (tiles - mean) / std, len(order(plan))


def run(model: Any, pairs: list[Pair], batch: int) -> None:
    """Answer every item (images of one size) and fill it in, in batches of ``batch``."""
    pairs = sorted(pairs, key=lambda p: len(p[1].truth.encode()))
    for i in range(0, len(pairs), batch):
        part = pairs[i : i + batch]
        most = len(part[-1][1].truth.encode())
        room = most + 24 if most > SHORT_BYTES else SHORT_BYTES
        questions = [item.question for _, item in part]
        note(part, answer(model, [image for image, _ in part], questions, room))


def share(pairs: list[Pair], rank: int, world: int) -> list[Pair]:
    """The part of one process, without pages too long to have been trained on."""
    return [p for p in pairs if len(p[1].truth.encode()) <= LONGEST_TRUTH][rank::world]


def gather(items: list[Answered], world: int) -> list[Answered]:
    """Everyone's items, on every process."""
    if world == 1:
        return items
    everyone: list[Any] = [None] * world
    dist.all_gather_object(everyone, items)
    return [item for items in everyone for item in items]


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m rotatek.pocket.llava_evaluate", description=__doc__)
    default = Path(__file__).parents[3] / "assets" / "pocket-llava"
    p.add_argument("--model", type=Path, default=default)
    p.add_argument("--splits", nargs="+", default=list(SPLITS))
    p.add_argument("--documents", type=int, default=40, help="documents per split and size")
    p.add_argument("--questions", type=int, default=3, help="questions per document")
    p.add_argument("--sizes", nargs="+", default=[f"{w}x{h}" for w, h in SIZES])
    p.add_argument("--batch", type=int, default=0)
    p.add_argument("--json", type=Path)
    p.add_argument("--items", type=Path, help="write every question and answer here")
    return p.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Evaluate as the command line says; Markdown to stdout, JSON to ``--json``."""
    args = arguments(argv)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) if cuda else 0)
    device = device if cuda else torch.device("cpu")
    model = LlavaNextForConditionalGeneration.from_pretrained(args.model, dtype=torch.float32)
    model = model.to(device).eval()
    batch, began, items = args.batch or (48 if cuda else 2), time.monotonic(), []
    for name in args.sizes:
        mine = share(drawn(name, args), rank, world)
        run(model, mine, batch)
        items += [item for _, item in mine]
        took = time.monotonic() - began
        print(f"{name}: {summary(i for _, i in mine)} after {took:.0f} s", file=sys.stderr)
    items = gather(items, world)
    if rank == 0:
        tables = report(items) | {"questions": len(items), "device": device.type}
        if args.json:
            args.json.write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")
        if args.items:
            rows = [asdict(i) for i in items]
            args.items.write_text(json.dumps(rows, indent=0, ensure_ascii=False), encoding="utf-8")
        print(markdown({k: v for k, v in tables.items() if k in SPLITS}))
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
