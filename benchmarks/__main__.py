"""`python -m benchmarks NAME [--json FILE] [...]`: run one benchmark, print its rows.

attention  attention over k channels and packed digits, beside the best dense kernels
model      first token, prefill and decode step of `model.generate` at a 7B model's shapes
serving    clients that the engine answers together, beside the same ones in turns
pictures   stored pictures: first token, bytes, pages a second
real-keys  what settings do to the Keys of a pretrained language model

Weights are random (but of real-keys): times and bytes are real, answers mean nothing. The first
four need a GPU, and `--tiny` tries them out on a processor. FILE has a row for each printed line
and is written as they come, so that a run that is cut off has kept what it had.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

NAMES: Final = ("attention", "model", "serving", "pictures", "real-keys")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status: 2 without a GPU, 1 where a figure was refused."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("name", choices=NAMES)
    words = sys.argv[1:] if words is None else words
    name = parser.parse_args(words[:1]).name
    module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
    parser.description = module.__doc__
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    module.arguments(parser)
    if name != "real-keys":
        parser.add_argument("--tiny", action="store_true", help="small, on a processor")
    options = parser.parse_args(words)
    gpu = torch.cuda.is_available()
    if name != "real-keys" and not gpu and not options.tiny:
        sys.stderr.write(f"{name} needs a GPU; --tiny tries it out on a processor.\n")
        return 2
    report: dict[str, Any] = {
        "benchmark": name, "device": torch.cuda.get_device_name() if gpu else "cpu",
        "torch": torch.__version__, "options": vars(options), "rows": [],
    }  # fmt: skip
    refused = False
    for row in module.run(options):
        refused |= "refused" in row
        report["rows"].append(row)
        figures = (f"{n} {v:.4g}" if isinstance(v, float) else f"{n} {v}" for n, v in row.items())
        sys.stdout.write("  ".join(figures) + "\n")
        sys.stdout.flush()
        if options.json is not None:
            options.json.write_text(json.dumps(report, indent=1, default=str) + "\n")
    return int(refused)


if __name__ == "__main__":
    sys.exit(main())
