"""Finding and loading a checkpoint: safetensors only, no remote code, clear refusals."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForImageTextToText, AutoTokenizer
from transformers import __version__ as transformers_version

from rotatek import errors
from rotatek.bridge.attention import prepare
from rotatek.models import smollm2
from rotatek.models.assembly import PARTS, at_hand, is_apart, whole
from rotatek.models.base import VisionLanguageModel
from rotatek.models.download import fetch, incomplete, missing, shown
from rotatek.models.families import family_of
from rotatek.models.memory import GB, HEADROOM, free_bytes, is_out_of_memory, weight_bytes
from rotatek.paths import assets

POCKET: Final = assets() / "pocket"
POCKET_SMOL: Final = POCKET.with_name("pocket-smol")
DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LACKS: Final = "Missing optional dependencies"  # transformers' ValueError of a processor's package
CPU_GIGABYTES: Final = 3.0  # a larger model answers too slowly without a GPU to be offered there


@dataclass(frozen=True)
class Checkpoint:
    """A model the page offers. source: a folder, or a hub id pinned to `revision`; gigabytes: of
    its weights on a GPU, or in a CPU's memory for what answers there in seconds."""

    name: str
    label: str
    source: str
    revision: str | None = None
    gigabytes: float = 0.1


CHECKPOINTS: Final[dict[str, Checkpoint]] = {
    c.name: c
    for c in (
        Checkpoint("pocket", "Pocket (embedded, 33 M)", str(POCKET)),
        Checkpoint("pocket-smol", "Pocket SmolLM2 (embedded, 147 M)", str(POCKET_SMOL), None, 0.6),
        Checkpoint(
            "smolvlm-256m",
            "SmolVLM-256M (a download of 0.5 GB)",
            "HuggingFaceTB/SmolVLM-256M-Instruct",
            "7e3e67edbbed1bf9888184d9df282b700a323964",
            1.1,
        ),
        Checkpoint(
            "smolvlm-500m",
            "SmolVLM-500M (a download of 1 GB)",
            "HuggingFaceTB/SmolVLM-500M-Instruct",
            "a7da5b986cb59b408707209984f360a5f4ad7e47",
            2.1,
        ),
        Checkpoint(
            "qwen2.5-vl-7b",
            "Qwen2.5-VL-7B-Instruct",
            "Qwen/Qwen2.5-VL-7B-Instruct",
            "cc594898137f460bfe9f0759e9844b3ce807cfb5",
            16.6,
        ),
        Checkpoint(
            "llava-next-8b",
            "LLaVA-NeXT-8B",
            "llava-hf/llama3-llava-next-8b-hf",
            "b041c0d0ea0dd0196d147206c210c8d1752fc2da",
            16.7,
        ),
    )
}


def load(
    model: str | os.PathLike[str] = "pocket",
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> VisionLanguageModel:
    """Load a model by registered name, folder or hub id, and prepare it for compressed caches.

    Args:
        model: a name in `CHECKPOINTS`, a folder, or a hub id.
        device: "cuda" where there is one, else "cpu"; "auto" spreads the model over several GPUs.
        dtype: what the environment's `ROTATEK_DTYPE` names; else bfloat16 on a GPU, float32 on a
            CPU.

    Raises:
        UserError: one that says how to go on: WeightsMissing, WeightsDamaged, ModelUnsupported,
            ModelGated, HubUnreachable, StorageFull, ModelTooLarge, OutOfMemory, DeviceMissing or
            SettingError.
    """
    checkpoint = _checkpoint(str(model))
    device = _device(device)
    dtype = dtype or _dtype(device)
    config = _config(checkpoint)
    family = family_of(config)
    needed, free = weight_bytes(config, dtype), free_bytes(device)
    needed += min(HEADROOM, 4 * needed)  # for a prefill and its caches
    if needed > free:
        raise errors.ModelTooLarge(
            f"{checkpoint.label} needs about {needed / GB:.1f} GB and {device} has "
            f"{free / GB:.1f} GB free. Choose a smaller model or another device."
        )
    source = whole(fetch(checkpoint.source, checkpoint.revision))
    try:
        network = AutoModelForImageTextToText.from_pretrained(
            source, dtype=dtype, device_map=device, use_safetensors=True, trust_remote_code=False
        )
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        images = family.images.from_pretrained(source, trust_remote_code=False)
    except (SafetensorError, RuntimeError, MemoryError) as exc:
        raise errors.OutOfMemory if is_out_of_memory(exc) else errors.WeightsDamaged from exc
    except (OSError, ValueError, ImportError) as exc:
        if isinstance(exc, ImportError) or LACKS in str(exc):
            raise errors.ModelUnsupported(
                f"The processor of {checkpoint.label} needs a package that is not installed, most "
                "often torchvision. Install it, or choose one of the families that "
                "`python -m rotatek info` lists."
            ) from exc
        raise incomplete(checkpoint.name) from exc
    kept = Path(source, "chat_template.json")  # where older checkpoints have it
    if not tokenizer.chat_template and kept.exists():
        tokenizer.chat_template = json.loads(kept.read_text(encoding="utf-8"))["chat_template"]
    vlm = family.adapter(prepare(network.eval()), tokenizer, images, checkpoint.name)
    if not tokenizer.chat_template:
        raise errors.ModelUnsupported(
            f"{checkpoint.label} has no chat template. Choose a model that was trained on chats."
        )
    vlm.check()
    if vlm.device.type == "cuda":
        vlm.optimise_for_gpu()
    return vlm


def _checkpoint(model: str) -> Checkpoint:
    return CHECKPOINTS.get(model) or Checkpoint(shown(model), shown(model), model)


def _dtype(device: str) -> torch.dtype:
    """A model's default type: that of `ROTATEK_DTYPE`, or else the device's."""
    name = os.environ.get("ROTATEK_DTYPE", "")
    if not name:
        return torch.float32 if device == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise errors.SettingError("ROTATEK_DTYPE", " or ".join(DTYPES), name)
    return DTYPES[name]


def _config(checkpoint: Checkpoint) -> Any:
    """A checkpoint's configuration. ModelUnsupported: for a type that transformers knows not."""
    file = Path(fetch(checkpoint.source, checkpoint.revision, ("config.json",)), "config.json")
    if not file.exists():
        raise missing(checkpoint.name)
    try:
        kind = json.loads(file.read_text(encoding="utf-8"))["model_type"]
        if kind in CONFIG_MAPPING:
            return AutoConfig.from_pretrained(file.parent, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise incomplete(checkpoint.name) from exc
    raise errors.ModelUnsupported(
        f"Models of type {kind!r} are not among those of transformers {transformers_version}, "
        "and a checkpoint's own code is not run. Install a newer transformers that knows them, "
        "or choose one of the families that `python -m rotatek info` lists."
    )


def fitting(free: int | None = None) -> list[str]:
    """Registered checkpoints that this machine can serve together: the embedded ones anywhere, the
    others by a GPU's memory, the smallest of these also by a CPU's memory. free: bytes, where the
    GPU cannot be asked."""
    on_gpu = free is not None or torch.cuda.is_available()
    if free is None:
        free = free_bytes("cuda" if on_gpu else "cpu")
    chosen, room = [], free - HEADROOM
    for name, checkpoint in CHECKPOINTS.items():
        slow = not on_gpu and checkpoint.gigabytes > CPU_GIGABYTES
        if slow or not at_hand(checkpoint.source):
            continue
        if checkpoint.gigabytes < 1 or checkpoint.gigabytes * GB <= room:
            chosen.append(name)
            room -= int(checkpoint.gigabytes * GB)
    return chosen


def _device(device: str | torch.device | None) -> str:
    """A device this machine has; "auto" is accelerate's to resolve."""
    wanted = str(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    kind, _, number = wanted.partition(":")
    if kind not in ("cpu", "cuda", "auto") or (number and not number.isdecimal()):
        raise errors.SettingError("device", "cpu, cuda, cuda:N or auto", wanted)
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise errors.DeviceMissing
    return wanted


def card_line(model: str) -> str:
    """One line about a model, from its configuration and weights on disk; raises as `load`."""
    checkpoint = _checkpoint(model)
    config = _config(checkpoint)
    text, folder = config.get_text_config(), Path(checkpoint.source)
    files = {*folder.glob("*.safetensors"), *folder.glob(PARTS)}
    size = sum(file.stat().st_size for file in files)
    weights = f"{size / 1e6:.1f} MB of weights" if size else "weights on the hub"
    if is_apart(checkpoint.source):
        weights += f" beside {smollm2.PACKAGE}"
        weights += "" if at_hand(checkpoint.source) else f", which is missing. {smollm2.INSTALL}"
    return (
        f"{checkpoint.label}: {config.model_type}, {text.num_hidden_layers} layers, "
        f"{text.num_attention_heads}/{text.num_key_value_heads} heads, {weights}"
    )
