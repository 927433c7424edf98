"""What compressed caches do to an answer that is given: `python -m tests.bits_quality --suite DIR`.

Every accepted answer is fed behind its question, once into the plain cache and once into each
setting's, from one prefill. Printed are, paired by question: how many short answers a setting would
write letter for letter (all of its most likely tokens are the answer's), wrong tokens of whole
pages, the divergence of the tokens' distributions from the plain cache's, and live bytes. It takes
one forward pass an answer, so settings can be judged in seconds, on a CPU too.
"""

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.cache.compressed import cache_bytes, release
from rotatek.compare.prefill import by_pruning, empty_cache, fill, plan_for
from rotatek.evaluation.metrics import paired_interval
from rotatek.evaluation.suite import Item, StoredSuite
from rotatek.inputs import make_request
from rotatek.models import Embedded, VisionLanguageModel
from rotatek.models.loading import load
from rotatek.settings import BASELINE, Settings

MOST = 300  # tokens of a page
ARMS: dict[str, dict[str, Any]] = {
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
    vlm: VisionLanguageModel, embedded: Embedded, cache: Cache, first: Tensor, ids: Sequence[int]
) -> Tensor:
    """Log-probabilities [len(ids), vocabulary] of an answer's tokens, given those before them."""
    places = [vlm.positions_at(embedded.next_position + t) for t in range(len(ids) - 1)]
    out = vlm.model(
        input_ids=torch.tensor([list(ids[:-1])], device=vlm.device),
        position_ids=torch.cat(places, -1),
        past_key_values=cache,
        use_cache=True,
    )
    return torch.cat([first, out.logits[0].float()]).log_softmax(-1)


def rows_of(vlm: VisionLanguageModel, suite: StoredSuite, item: Item) -> Iterator[dict[str, Any]]:
    """One question under every arm, the plain cache first."""
    request = make_request(suite.image(item.document), item.question, 8)
    prompt = vlm.prompt(request)
    ids = vlm.tokenizer(item.accepted[0], add_special_tokens=False)["input_ids"][:MOST]
    ids = [*ids, min(vlm.stop_ids)]
    settings = {"plain": BASELINE} | {name: Settings.of(**arm) for name, arm in ARMS.items()}
    plain: Tensor | None = None
    full = 0
    for alike in by_pruning(settings.values()):
        embedded = vlm.embed(prompt, alike[0].pruning)
        plan = plan_for(vlm, embedded, alike[0].pruning)
        names = [name for name, one in settings.items() if one in alike]
        caches = [empty_cache(vlm, embedded, settings[name], plan) for name in names]
        first, _ = fill(vlm, embedded, plan, caches, timed=False)
        for name, cache in zip(names, caches, strict=True):
            got = forced(vlm, embedded, cache, first, ids)
            held = cache_bytes(cache).total
            plain, full = (got, held) if plain is None else (plain, full)
            right = got.argmax(-1) == torch.tensor(ids, device=got.device)
            yield {
                "item": item.name, "document": item.document, "page": item.long, "arm": name,
                "right": bool(right.all()), "wrong": 1 - float(right.float().mean()),
                "kl": float((plain.exp() * (plain - got)).sum(-1).mean()), "share": held / full,
            }  # fmt: skip
            release(cache)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line an arm, differences paired with the plain cache and their 95 % intervals."""
    names = list(dict.fromkeys(row["arm"] for row in rows))
    head = f"{'arm':<30} {'bytes':>6} {'short right':>27} {'wrong on pages':>27}"
    lines = [f"{head} {'KL':>8} {'page':>7}"]
    for name in names:
        own = [row for row in rows if row["arm"] == name]
        cells = [f"{name:<30} {np.mean([row['share'] for row in own]):6.3f}"]
        cells += [_cell(rows, name, page=False, key="right"), _cell(rows, name, True, "wrong")]
        for page in (False, True):
            cells.append(f"{np.mean([row['kl'] for row in own if row['page'] == page]):8.4f}")
        lines.append(" ".join(cells))
    return "\n".join(lines)


def _cell(rows: Sequence[Mapping[str, Any]], name: str, page: bool, key: str) -> str:
    """An arm's mean in percent, its difference from the plain cache, and that one's interval."""
    own, plain = (
        {row["item"]: row for row in rows if row["arm"] == arm and row["page"] == page}
        for arm in (name, "plain")
    )
    mine, theirs = (np.array([100.0 * one[item][key] for item in plain]) for one in (own, plain))
    groups = np.array([row["document"] for row in plain.values()])
    low, high = paired_interval(mine, theirs, groups)
    gap = (mine - theirs).mean() if len(mine) else 0.0
    return f"{mine.mean() if len(mine) else 0.0:6.2f} {gap:+6.2f} [{low:+.2f}, {high:+.2f}]".rjust(
        27
    )


def answer(args: argparse.Namespace, part: int) -> None:
    """Every `args.jobs`-th question, from `part` on, into a file of rows."""
    torch.set_num_threads(1)
    change(args.set)
    vlm, suite = load(args.model, args.device), StoredSuite(args.suite / "questions.jsonl")
    items = [*suite.items][:: max(1, len(suite.items) // args.questions)][part :: args.jobs]
    with (args.out / f"rows-{part}.jsonl").open("w") as file:
        for item in items:
            for row in rows_of(vlm, suite, item):
                file.write(json.dumps(row) + "\n")
            file.flush()


def change(constants: Sequence[str]) -> None:
    """Set constants of modules in this process: `rotatek.channels.bits:TOKEN_POWER=0.25`."""
    for one in constants:
        place, value = one.split("=")
        module, name = place.split(":")
        setattr(importlib.import_module(module), name, float(value) if "." in value else int(value))


def main() -> None:
    """Run the parts as processes of their own, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--device")
    parser.add_argument("--suite", type=Path, required=True, help="what `evaluate --draw` made")
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--part", type=int)
    parser.add_argument("--arms", help="JSON: {label: flat options}")
    parser.add_argument("--set", action="append", default=[], metavar="MODULE:NAME=NUMBER")
    parser.add_argument("--out", type=Path, default=Path("artifacts/bits"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.arms:
        ARMS.clear()
        ARMS.update(json.loads(args.arms))
    if args.part is not None:
        answer(args, args.part)
        return
    line = [sys.executable, "-m", "tests.bits_quality", *sys.argv[1:], "--part"]
    parts = [subprocess.Popen([*line, str(part)]) for part in range(args.jobs)]
    if any(list(map(subprocess.Popen.wait, parts))):
        sys.exit("a part failed")
    files = [args.out / f"rows-{part}.jsonl" for part in range(args.jobs)]
    rows = [json.loads(text) for file in files for text in file.read_text().splitlines()]
    sys.stdout.write(f"{args.model}, {args.set}, {len({r['item'] for r in rows})} questions\n")
    sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main()
