"""Every benchmark and every option, as data."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import MERGED, SECTION, Benchmark

# Options by name, as argparse takes them; the benchmarks' functions have the defaults.
OPTIONS: Final[Mapping[str, dict[str, Any]]] = {
    "arms": {"type": json.loads, "help": "JSON: {label: flat options}"},
    "ask": {"choices": ("first", "second", "neutral"), "help": "as of `rotatek evaluate`"},
    "asked": {"nargs": "+", "choices": ("first", "later"), "help": "which questions"},
    "batch": {"type": int, "help": "questions at once: 16 on a GPU"},
    "bits": {"type": float, "help": "a number, on average"},
    "clients": {"type": int},
    "contexts": {"nargs": "+", "type": int, "metavar": "TOKENS", "help": "compressed tokens"},
    "constants": {"nargs": "+", "metavar": "MODULE:NAME=NUMBER", "help": "change constants"},
    "device": {},
    "dtype": {"help": "of the model"},
    "endless": {"action": "store_true", "help": "answers as long as they may be"},
    "every": {"type": int, "metavar": "N", "help": "take every n-th case of the grid"},
    "family": {"nargs": "+", "metavar": "NAME", "help": "models, by name"},
    "full": {"action": "store_true", "help": "the whole grid of shapes"},
    "image": {"type": Path, "metavar": "FILE"},
    "limit": {"type": float, "help": "seconds that a way of answering may take"},
    "model": {"help": "a name or a folder, as `rotatek.load` takes it"},
    "models": {"nargs": "+", "metavar": "NAME", "help": "names or folders"},
    "out": {"type": Path, "metavar": "FOLDER", "help": "keep rows here, to go on from"},
    "over": {"type": float, "help": "seconds in which clients arrive"},
    "packs": {"nargs": "+", "metavar": "PACK", "help": "only these ways to store the cache"},
    "pages": {"type": int, "help": "how many are read and asked"},
    "part": {"help": "what is measured: its module's text has the names"},
    "pictures": {"nargs": "+", "metavar": "FILE", "help": "below assets/"},
    "question": {},
    "questions": {"type": int, "help": "how many are asked"},
    "rounds": {"type": int, "help": "how often the arms take turns"},
    "segments": {"type": int, "help": "of each context at most"},
    "settings": {"nargs": "+", "metavar": "NAME", "help": "only these settings"},
    "short": {"action": "store_true", "help": "greedy, at the smaller picture"},
    "side": {"type": int, "help": "pixels of a page's longer edge"},
    "sides": {"nargs": "+", "type": int, "metavar": "PIXELS", "help": "of a picture's longer edge"},
    "suite": {
        "type": Path,
        "required": True,
        "help": "a drawn suite's folder, or FILE.jsonl",
    },
    "suites": {"nargs": "+", "metavar": "SUITE", "help": "pocket, pocket-unseen, or FILE.jsonl"},
    "texts": {"nargs": "*", "type": Path, "metavar": "TEXT", "help": "files; else Python's own"},
    "tiny": {"action": "store_true", "help": "try it out: tiny random weights on a CPU"},
    "tokens": {"type": int, "help": "of an answer, on average"},
    "transformers": {"action": "store_true", "help": "time transformers' step too"},
    "turns": {"type": int, "help": "clients that are asked in turns; 0 is all"},
    "visual": {"type": int, "help": "visual tokens of the picture"},
    "weigh": {"nargs": "+", "metavar": "WAY", "help": "questions, picture"},
    "workers": {"type": int, "help": "processes; by default as many as cores, less two"},
}
MINUTE: Final = "a minute of a GPU"
TUNING: Final = "5 to 30 minutes of a GPU"
LARGE: Final = "of a GPU with 40 GB"


def _kernels(run: str, answers: str, takes: str, *options: str) -> Benchmark:
    return Benchmark(f"kernels.{run}", answers, takes, options, layout=SECTION)


def _candidates(run: str, answers: str, *options: str) -> Benchmark:
    return _kernels(run, answers, TUNING, *options)._replace(candidates=True)


BENCHMARKS: Final[Mapping[str, Benchmark]] = {
    "check": Benchmark(
        "kernels.check:check", "Do all kernels agree with float64?", "5 minutes of a GPU",
        ("device", "every", "packs", "workers"), faults="kernels.check:faults",
    ),
    "attention": _kernels(
        "attention:attention", "How fast is attention at k channels, beside dense kernels?",
        "5 minutes of a GPU", "full", "rounds",
    ),
    "latency": _kernels("attention:latency", "How long is one call at batch 1?", MINUTE, "rounds"),
    "ragged": _kernels(
        "attention:ragged", "What do rows of different lengths cost?", MINUTE, "rounds"
    ),
    "quant": _kernels(
        "attention:quant", "How fast are 8-bit caches and rotated Values?", MINUTE, "rounds"
    ),
    "baselines": _kernels(
        "attention:baselines", "How fast are ThinK and SparK with rebuilt Keys?", MINUTE, "rounds"
    ),
    "solver": _kernels("solver:solver", "How fast and exact are the bases?", MINUTE, "rounds"),
    "prefill": _kernels("prefill:prefill", "What does RotateK add to a prefill?", MINUTE),
    "step": _kernels(
        "step:step", "How near is a decode step to the roofline?", MINUTE, "transformers"
    ),
    "capacity": _kernels("step:capacity", "What does equal KV memory serve?", MINUTE),
    "efficiency": _kernels(
        "efficiency:efficiency", "What do methods cost by length and batch?", "10 minutes of a GPU"
    ),
    "planes": _kernels(
        "planes:planes", "How fast is attention over digits of 2 bits?", "4 minutes of a GPU",
        "rounds",
    ),
    "packing": _kernels("planes:packing", "What does it take to pack digits?", MINUTE, "rounds"),
    "tune": _candidates("tune:tune", "Which split configuration is fastest?", "packs"),
    "small": _candidates("tune:small", "Which is fastest at small batches?", "packs"),
    "splits": _candidates("tune:splits", "How many visual splits are fastest?", "packs"),
    "joined": _candidates("tune:joined", "Which is fastest with joined text?", "packs"),
    "digits": _candidates("planes:candidates", "Which configuration is fastest for digits?"),
    "products": _candidates("tune:products", "Which tile is fastest for a step's products?"),
    "full-size": Benchmark(
        "full_size:full_size", "What do the real shapes of every model cost?",
        f"2 minutes a model {LARGE}", ("family",),
    ),
    "generate": Benchmark(
        "generate_speed:generate", "What does `model.generate` take a token?",
        f"3 minutes {LARGE}", ("tiny", "short", "tokens"),
    ),
    "serving": Benchmark(
        "serving:serving", "How many clients does one GPU serve at once?", f"6 minutes {LARGE}",
        ("tiny", "clients", "tokens", "turns", "over", "limit", "settings"),
    ),
    "serving-cores": Benchmark(
        "serving:serving_cores", "How many clients does this machine serve at once?",
        "5 minutes of two cores",
        ("tiny", "clients", "tokens", "turns", "over", "limit", "settings", "endless", "rounds"),
        layout=MERGED, gpu=False,
    ),
    "layers": Benchmark(
        "layers_gpu:layers", "What do the layers of a prefill cost?", f"a minute {LARGE}",
        ("tiny",),
    ),
    "bits-prefill": Benchmark(
        "bits_prefill:bits_prefill", "What do bits add to a prefill?", "2 minutes of a GPU",
        ("tiny", "rounds", "visual"),
    ),
    "bits-quality": Benchmark(
        "bits_quality:bits_quality", "What do settings do to an answer that is given?",
        "a second a question, of two cores",
        ("suite", "model", "device", "questions", "batch", "arms", "constants", "ask",
         "out"),
        layout=MERGED, gpu=False,
    ),
    "real-keys": Benchmark(
        "real_keys:real_keys", "What do settings do to the Keys of a pretrained language model?",
        "a second a setting and segment, of two cores or a GPU",
        ("contexts", "asked", "segments", "device", "dtype", "arms", "constants", "out"),
        gpu=False, words=("model", "texts"),
    ),
    "stored-keys": Benchmark(
        "stored_keys:stored_keys", "What does a stored context of a language model weigh?",
        "two seconds a setting and segment, of two cores or a GPU",
        ("contexts", "segments", "device", "dtype", "out"), gpu=False, words=("model", "texts"),
    ),
    "quantized-cache": Benchmark(
        "quantized_cache:quantized_cache", "How do transformers' own caches compare?",
        "a minute of two cores", ("model", "device", "dtype", "image", "question", "tokens"),
        gpu=False,
    ),
    "processor": Benchmark(
        "processor:processor", "What do settings cost on a processor?", "3 minutes of two cores",
        ("model", "image", "question", "sides", "settings", "tokens", "rounds"),
        gpu=False,
    ),
    "stored-sizes": Benchmark(
        "stored_sizes:stored_sizes", "How large are caches in files?", "5 minutes of two cores",
        ("models", "pictures", "device"), gpu=False,
    ),
    "pictures": Benchmark(
        "pictures.parts:pictures", "What does a stored picture save?",
        "minutes of two cores, or of a GPU with 40 GB",
        (
            "part", "model", "device", "pages", "side", "bits", "suites", "weigh", "rounds",
            "tiny",
        ),
        layout=MERGED, gpu=False,
    ),
    "gpu-check": Benchmark(
        "gpu_check:gpu_check", "Does everything work on a new GPU?", f"2 minutes {LARGE}",
        ("tiny",), faults="gpu_check:faults",
    ),
}  # fmt: skip
