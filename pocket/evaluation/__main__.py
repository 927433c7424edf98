"""Measure a pocket model: `python -m pocket.evaluation [--family smol]`.

Greedy answers of the plain transformers model to questions about freshly drawn documents, on six
splits: own (the training's renderers and fonts, other seeds), fonts (families never trained on),
renderers (renderers never trained on), topics (subjects never trained on), scanned (vouchers in
type and by printers never trained on) and small (directories in small print). With `--renderers`
instead: what of the training's own mixture is weak and may be drawn more often. Writes Markdown to
stdout. The third pocket is also measured on `scenery`: pictures without a word, by what never drew
one for training, about which it is to decline. Under torchrun the processes share the questions.
"""

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from transformers import Qwen2_5_VLForConditionalGeneration

from pocket.evaluation import qwen2_5_vl, smol
from pocket.evaluation.measures import (
    Answered,
    Pair,
    declined_shares,
    markdown,
    report,
    summary,
)
from pocket.evaluation.questions import SCENERY, SIZES, drawn, stored_items
from pocket.generate import SPLITS, renderers_of
from rotatek.evaluation.result_json import text_of
from rotatek.models.assembly import whole

ASSETS: Final = Path(__file__).parents[2] / "assets"


@dataclass(frozen=True)
class Family:
    """The measurement of one of the pockets."""

    folder: Path  # of its weights
    run: Callable[[Any, list[Pair], int, int], None]  # fills in what a model answers
    batches: tuple[int, int]  # questions at once: on a GPU, on a processor
    splits: tuple[str, ...] = SPLITS


FAMILIES: Final = {
    "qwen2_5_vl": Family(
        folder=ASSETS / "pocket",
        run=qwen2_5_vl.run,
        batches=(128, 4),
    ),
    "smol": Family(
        folder=ASSETS / "pocket-smol",
        run=smol.run,
        batches=(48, 2),
        splits=(*SPLITS, SCENERY),
    ),
}


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line's options."""
    p = argparse.ArgumentParser(prog="python -m pocket.evaluation", description=__doc__)
    p.add_argument("--family", choices=FAMILIES, default="qwen2_5_vl", help="of the pockets")
    p.add_argument("--model", type=Path, help="weights, unless the family's own")
    p.add_argument("--splits", nargs="*", help="those of the family, unless named")
    kinds, what = renderers_of("train"), "documents of these, as training draws them, alone"
    p.add_argument("--renderers", nargs="+", choices=kinds, metavar="NAME", help=what)
    p.add_argument("--documents", type=int, default=40, help="documents per split and size")
    p.add_argument("--questions", type=int, default=3, help="questions per document")
    p.add_argument("--sizes", nargs="+", help="as 448x336, unless the family's own")
    p.add_argument("--pages", type=Path, help="stored documents to add as the split browser")
    p.add_argument("--batch", type=int, default=0)
    p.add_argument("--max-new", type=int, default=960)
    p.add_argument("--json", type=Path, help="write the tables here, too")
    p.add_argument("--items", type=Path, help="write every question and answer here")
    p.add_argument("--merge", type=Path, nargs="+", help="only add up these files of --items")
    args = p.parse_args(argv)
    if args.splits is None:
        args.splits = list(FAMILIES[args.family].splits)
    return args


class Measurement:
    """One model and, as it goes on, what it has answered on this process."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.family = args, FAMILIES[args.family]
        self.rank = int(os.environ.get("RANK", 0))
        self.world = int(os.environ.get("WORLD_SIZE", 1))
        cuda = torch.cuda.is_available()
        self.device = torch.device("cpu")
        if cuda:
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        folder = args.model or self.family.folder
        kind = Qwen2_5_VLForConditionalGeneration
        model = kind.from_pretrained(whole(folder), dtype=torch.float32)
        self.model = model.to(self.device).eval()
        self.batch = args.batch or self.family.batches[0 if cuda else 1]
        self.items: list[Answered] = []

    def ask(self, pairs: list[Pair]) -> None:
        """Answer this process's part of some questions about pictures of one size."""
        mine = pairs[self.rank :: self.world]
        self.family.run(self.model, mine, self.batch, self.args.max_new)
        self.items += [item for _, item in mine]

    def run(self) -> list[Answered]:
        """Ask everything; returns the items of all processes."""
        if self.world > 1:
            dist.init_process_group("gloo")
        args, began = self.args, time.monotonic()
        wanted, kinds = (["train"], args.renderers) if args.renderers else (args.splits, ())
        for name, splits in sizes(wanted, args.sizes, qwen2_5_vl.SIZES):
            self.ask(drawn(name, splits, args.documents, args.questions, kinds))
            said = f"{name}: {summary(self.items)} after {time.monotonic() - began:.0f} s"
            print(said, file=sys.stderr, flush=True)
        for pairs in by_shape(args.pages, args.questions) if args.pages else ():
            self.ask(pairs)
        items = self.gathered()
        if self.world > 1:
            dist.destroy_process_group()
        return items

    def gathered(self) -> list[Answered]:
        """Everyone's items, on every process."""
        if self.world == 1:
            return self.items
        everyone: list[Any] = [None] * self.world
        dist.all_gather_object(everyone, self.items)
        return [item for items in everyone for item in items]


def sizes(
    splits: list[str], wanted: list[str] | None, usual: tuple[tuple[int, int], ...]
) -> list[tuple[str, list[str]]]:
    """Sizes, as "448x336", and the splits that are measured at each; `wanted` ones are for all."""
    if wanted:
        return [(name, splits) for name in wanted]
    found: dict[str, list[str]] = defaultdict(list)
    for split in splits:
        for w, h in SIZES.get(split, usual):
            found[f"{w}x{h}"].append(split)
    return list(found.items())


def by_shape(pages: Path, questions: int) -> list[list[Pair]]:
    """The questions about stored documents, those of one size together."""
    groups: dict[tuple[int, ...], list[Pair]] = defaultdict(list)
    for image, mine in stored_items(pages, questions):
        groups[image.shape] += [(image, item) for item in mine]
    return list(groups.values())


def finish(items: list[Answered], args: argparse.Namespace, device: str | None = None) -> None:
    """Write the report, and the answers themselves where asked for."""
    tables = report(items) | {"questions": len(items)} | ({"device": device} if device else {})
    if args.family == "smol":
        tables["declined"] = declined_shares(items)
    if args.json:
        args.json.write_text(text_of(tables), encoding="utf-8")
    if args.items and not args.merge:
        rows = [asdict(i) for i in items]
        args.items.write_text(json.dumps(rows, indent=0, ensure_ascii=False), encoding="utf-8")
    shown = (*SPLITS, SCENERY, "browser", "train")
    print(markdown({k: v for k, v in tables.items() if k in shown}))
    if args.family == "smol":
        print(f"\nDeclined, of each split: {tables['declined']}")


def main(argv: list[str] | None = None) -> None:
    """Evaluate, or add up what was evaluated, as the command line says."""
    args = arguments(argv)
    if args.merge:
        rows = [row for path in args.merge for row in json.loads(path.read_text("utf-8"))]
        finish([Answered(**row) for row in rows], args)
        return
    measurement = Measurement(args)
    items = measurement.run()
    if measurement.rank == 0:
        finish(items, args, measurement.device.type)


if __name__ == "__main__":
    main()
