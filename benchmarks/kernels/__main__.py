"""`python -m benchmarks.kernels NAME [--json FILE] [--full]`: one benchmark, a table and JSON.

Names: attention, latency, ragged, quant, solver, prefill, step, capacity, baselines, efficiency,
all of these (all); and candidates for `kernels.plan` (tune, small, splits, joined) and for a step's
matrix products (products). Every arm of a table runs interleaved in one process and is refused when
it disagrees with the reference.
`table FILE` prints every number of a committed JSON. `compare OLD NEW` prints what changed between
two files beyond the spread; its exit status is 1 where a time of ours became slower, and 2 where
the files do not measure the same.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import attention, compare, efficiency, joined, planes, prefill, solver, step, tune
from .compare import table

RUNS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "attention": lambda o: attention.attention(o.full, o.rounds),
    "latency": lambda o: attention.latency(o.rounds),
    "ragged": lambda o: attention.ragged(o.rounds),
    "quant": lambda o: attention.quant(o.rounds),
    "baselines": lambda o: attention.baselines(o.rounds),
    "solver": lambda o: solver.solver(o.rounds),
    "prefill": lambda o: prefill.prefill(),
    "step": lambda o: step.step(transformers=o.transformers),
    "capacity": lambda o: step.capacity(),
    "efficiency": lambda o: efficiency.efficiency(),
    "tune": lambda o: tune.tune(o.packs),
    "small": lambda o: tune.small(o.packs),
    "splits": lambda o: tune.splits(o.packs),
    "joined": lambda o: joined.joined(o.packs),
    "planes": lambda o: planes.planes(o.rounds),
    "packing": lambda o: planes.packing(o.rounds),
    "digits": lambda o: planes.candidates(),
    "products": lambda o: tune.products(),
}
CANDIDATES = ("tune", "small", "splits", "joined", "digits", "products")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*RUNS, "all", "table", "compare"])
    parser.add_argument("file", nargs="*", type=Path, help="the JSON to read, two to compare")
    parser.add_argument("--json", type=Path, help="write (or extend) this file")
    parser.add_argument("--full", action="store_true", help="the whole grid of benchmark A")
    parser.add_argument("--transformers", action="store_true", help="time transformers' step too")
    parser.add_argument("--packs", help="ways to store the cache, divided by semicolons")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    if options.name == "compare":
        text, status = compare.run(options.file)
        print(text)
        return status
    if options.name == "table":
        if len(options.file) != 1:
            parser.error("table reads one file")
        print(table(json.loads(options.file[0].read_text())))
        return 0
    if options.file:
        parser.error(f"{options.name} reads no file; --json names the one to write")
    names = [n for n in RUNS if n not in CANDIDATES] if options.name == "all" else [options.name]
    found = json.loads(options.json.read_text()) if _exists(options.json) else {}
    found |= {"hardware": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name in names:
        begin = time.perf_counter()
        found[name] = RUNS[name](options)
        print(f"# {name}: {time.perf_counter() - begin:.0f} s", flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")
        gc.collect()  # graphs hold buffers in cycles
        torch.cuda.empty_cache()
    print(table(found))
    return 0


def _exists(path: Path | None) -> bool:
    return path is not None and path.exists()


if __name__ == "__main__":
    sys.exit(main())
