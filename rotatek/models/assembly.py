"""An embedded model whose language model is another package's: put together once, then kept.

The checkout holds a vision tower, its connector and low-rank changes of the language model's
matrices (Hu et al., "LoRA: low-rank adaptation of large language models", ICLR 2022). The first
load merges them with SmolLM2 into an ordinary checkpoint in the user's cache; later ones read that.
"""

import gzip
import hashlib
import json
import os
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from rotatek.errors import StorageFull, WeightsDamaged, WeightsMissing
from rotatek.models import smollm2
from rotatek.models.download import FULL

RECIPE: Final = "language.json"  # what marks such a folder: {"language", "sha256", "scale"}
# Not "model*", so that transformers alone does not load half a model; shipped ones end in ".gz".
PARTS: Final = "parts*.safetensors*"
FORM: Final = 2  # of what is written; another one is put together anew
LANGUAGE: Final = "model.language_model."
VISUAL: Final = "model.visual."
DOWN, UP = "down", "up"  # the two factors, [r, in] and [out, r]
STEP: Final = ".step"  # ends the name of an int8 matrix's steps, float16 [rows, 1]
DAMAGE: Final = (
    SafetensorError, gzip.BadGzipFile, zlib.error, EOFError, RuntimeError, ValueError, KeyError,
    TypeError,
)  # fmt: skip


def is_apart(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder's language model is to be put to it."""
    return Path(folder, RECIPE).is_file()


def at_hand(folder: str | os.PathLike[str]) -> bool:
    """Whether a model can be loaded: it is whole, or what it lacks is on this machine."""
    return not is_apart(folder) or smollm2.find() is not None or _kept(Path(folder)).is_dir()


def whole(folder: str | os.PathLike[str]) -> str:
    """The folder of a complete checkpoint: `folder` itself, or what is made of it and kept.

    It takes some seconds the first time, and 300 MB of the user's cache (`XDG_CACHE_HOME`).

    Raises:
        WeightsMissing: where the language model is not on this machine, or is another one.
        WeightsDamaged: for parts that cannot be read.
        StorageFull: where the cache cannot hold it.
    """
    parts = Path(folder)
    if not is_apart(parts):
        return str(folder)
    kept = _kept(parts)
    if kept.is_dir():
        return str(kept)
    language = smollm2.located()
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{kept.name}-", dir=kept.parent, ignore_cleanup_errors=True
        ) as made:
            _assemble(parts, language, Path(made))
            Path(made).rename(kept)  # atomic: no process finds half of it
    except OSError as exc:
        if kept.is_dir():  # another process was faster
            return str(kept)
        if exc.errno in FULL:
            raise StorageFull from exc
        raise WeightsMissing(
            "The embedded model could not be put together, because the cache's folder cannot be "
            "written to. Set XDG_CACHE_HOME to one that can."
        ) from exc
    return str(kept)


def _assemble(parts: Path, language: Path, out: Path) -> None:
    """Write a complete checkpoint of `parts` and the file of SmolLM2 into the folder `out`."""
    try:
        recipe = json.loads((parts / RECIPE).read_text(encoding="utf-8"))
        wanted, scale = recipe["sha256"], float(recipe["scale"])
        own = stored(parts)
    except DAMAGE as exc:
        raise WeightsDamaged from exc
    if wanted != smollm2.SHA256:
        raise WeightsMissing(
            f"The parts in {parts.name} belong to another language model. "
            "Fetch this version's parts."
        )
    state = {name: value.bfloat16() for name, value in own.items() if name.startswith(VISUAL)}
    for name, value in smollm2.weights(language):
        stem = LANGUAGE + name.removesuffix("weight")
        if stem + UP in own:
            # In float64: in float32 the sums' order, which is a processor's own, would move some
            # weights by a rounding, and the same parts be another model elsewhere.
            value = value.double() + scale * (own[stem + UP].double() @ own[stem + DOWN].double())
        state[LANGUAGE + name] = value.bfloat16().contiguous()
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            bias = name.replace("weight", "bias")  # which the class has, and SmolLM2 has not
            state[LANGUAGE + bias] = torch.zeros(len(value), dtype=torch.bfloat16)
    save_file(state, out / "model.safetensors", {"format": "pt"})
    for file in (*parts.glob("*.json"), *parts.glob("*.jinja")):
        if file.name != RECIPE and not file.name.endswith(".index.json"):
            shutil.copyfile(file, out / file.name)
    smollm2.write_tokenizer(language, out)


def stored(parts: Path) -> dict[str, Tensor]:
    """The tensors of a folder's shards by name; those of int8 as float32, times their steps. Raises
    an error of `DAMAGE` for what cannot be read."""
    found: dict[str, Tensor] = {}
    for file in sorted(parts.glob(PARTS)):
        content = file.read_bytes()
        found |= load(gzip.decompress(content) if file.suffix == ".gz" else content)
    steps = {name: found.pop(name) for name in list(found) if name.endswith(STEP)}
    for name, value in found.items():
        if value.dtype == torch.int8:
            found[name] = value.float() * steps[name + STEP].float()
    return found


def _kept(parts: Path) -> Path:
    """Where what is made of these parts is kept: another place for other weights."""
    digest = hashlib.sha256(f"{FORM} {smollm2.SHA256}".encode())
    for file in sorted(parts.iterdir()):
        if file.suffix in (".json", ".jinja", ".safetensors", ".gz"):
            digest.update(file.name.encode() + file.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "rotatek" / f"{parts.resolve().name}-{digest.hexdigest()[:16]}"
