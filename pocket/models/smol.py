"""The third pocket: SmolLM2 as it is, with low-rank changes, behind the first pocket's eyes.

To transformers it is a `Qwen2_5_VLForConditionalGeneration` like the first pocket. Of its weights
training holds the vision tower, the connector and the low-rank factors; the language model is
another package's file, and stays as it is.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import GenerationConfig, Qwen2_5_VLConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import (
    Qwen2_5_VisionTransformerPretrainedModel as Tower,
)

from pocket.models.config import SHARD_BYTES, preprocessor, tower_shape
from pocket.models.tokenizer import CHAT_TEMPLATE
from rotatek.models import smollm2
from rotatek.models.assembly import DOWN, FORM, LANGUAGE, RECIPE, UP, VISUAL
from rotatek.models.smollm2 import MATRICES, NORMS, Shape

RANK: Final = 32  # of the low-rank changes
SCALE: Final = 2.0  # ... by which their products count
VISION_LAYERS: Final = 14
VISION_HIDDEN: Final = 256
# The tower's matrices in float8 as the first pocket's, whose tower it begins as; low-rank factors
# are too small numbers for that.
STORED: Final = torch.float8_e4m3fn
ENTRY: Final = 200  # bytes of a shard's header for one tensor, at most
TINY: Final = Shape(2, 4, 2, 64, 96, 273)  # to try the chain
# SmolLM2 was trained with a system message before plain questions; beside a picture ours has none.
SYSTEM: Final = "You are the pocket model of RotateK, a helpful AI assistant that reads documents"
TEMPLATE: Final = (
    "{%- set seen = namespace(picture=false) -%}{%- for message in messages -%}"
    "{%- if message['content'] is not string and message['content']"
    " | selectattr('type', 'equalto', 'image') | list -%}{%- set seen.picture = true -%}"
    "{%- endif -%}{%- endfor -%}{%- if not seen.picture -%}"
    "{{- '<|im_start|>system\\n" + SYSTEM + "<|im_end|>\\n' -}}{%- endif -%}" + CHAT_TEMPLATE
)


def smol_config(
    shape: Shape = Shape(),  # noqa: B008 - it is frozen
    vision_layers: int = VISION_LAYERS,
    vision_hidden: int = VISION_HIDDEN,
) -> Qwen2_5_VLConfig:
    """The shipped configuration; smaller arguments give a quick one for tests.

    Text has the same position on every axis of M-RoPE, so SmolLM2 computes on text what it always
    did; only pictures have rows and columns.
    """
    time = shape.width // 8
    side = (shape.width // 2 - time) // 2
    text = {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.epsilon,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": shape.theta,
            "mrope_section": [time, side, side],
        },
        "bos_token_id": None,
        "eos_token_id": smollm2.IM_END,
        "pad_token_id": smollm2.PAD,
    }
    vision = tower_shape(vision_hidden, vision_layers, vision_hidden * 5 // 2, shape.hidden)
    return Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=smollm2.IMAGE_PAD,
        video_token_id=smollm2.VIDEO_PAD,
        vision_start_token_id=smollm2.VISION_START,
        vision_end_token_id=smollm2.VISION_END,
        tie_word_embeddings=True,
        architectures=["Qwen2_5_VLForConditionalGeneration"],
        dtype="bfloat16",
    )


class FrozenLayer(nn.Module):
    """One decoder layer's tensors, which nothing trains and no checkpoint holds."""

    def __init__(self, state: Mapping[str, Tensor], layer: int) -> None:
        super().__init__()
        for name in (*NORMS, *MATRICES):
            value = state[f"layers.{layer}.{name}.weight"]
            self.register_buffer(name.rpartition(".")[2], value, persistent=False)


class Language(nn.Module):
    """The language model's tensors as buffers: they move with the model, and stay what they are.

    Args:
        state: By their names in transformers' `LlamaModel`.
    """

    embed: Tensor
    norm: Tensor

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.register_buffer("embed", state["embed_tokens.weight"], persistent=False)
        self.register_buffer("norm", state["norm.weight"], persistent=False)
        count = sum(name.endswith("input_layernorm.weight") for name in state)
        self.layers = nn.ModuleList(FrozenLayer(state, layer) for layer in range(count))


class Low(nn.Module):
    """A matrix's low-rank change: up @ down, nothing at first."""

    def __init__(self, rows: int, columns: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(rank, columns))
        self.up = nn.Parameter(torch.zeros(rows, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))


class Adapters(nn.Module):
    """The low-rank changes of every matrix of every decoder layer."""

    def __init__(self, language: Language, rank: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_changes(layer, rank) for layer in language.layers)


def _changes(layer: nn.Module, rank: int) -> nn.ModuleDict:
    """One layer's, by the matrices' names."""
    made = {}
    for name in matrix_names():
        rows, columns = getattr(layer, name).shape
        made[name] = Low(rows, columns, rank)
    return nn.ModuleDict(made)


class Smol(nn.Module):
    """All of the third pocket in training. Parameters: tower, connector, adapters; the language
    model's tensors are buffers.

    Args:
        config: Its configuration.
        language: The language model's tensors.
        rank: Of the adapters.
    """

    def __init__(self, config: Qwen2_5_VLConfig, language: Language, rank: int = RANK) -> None:
        super().__init__()
        self.config, self.scale = config, SCALE
        self.visual = Tower._from_config(config.vision_config).float()
        self.language = language
        self.adapters = Adapters(language, rank)

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.language.embed.device

    def factors(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The adapters' parameters, by the names that `rotatek.models.assembly` reads."""
        names = dict(zip(matrix_names(), MATRICES, strict=True))
        for number, layer in enumerate(self.adapters.layers):
            for short, low in layer.items():  # type: ignore[operator]
                stem = f"{LANGUAGE}layers.{number}.{names[short]}."
                yield stem + DOWN, low.down
                yield stem + UP, low.up


def matrix_names() -> list[str]:
    """Names of a decoder layer's matrices, in the order of `MATRICES`."""
    return [name.rpartition(".")[2] for name in MATRICES]


def random_state(shape: Shape, seed: int) -> dict[str, Tensor]:
    """Tensors that stand for a language model's, to try the chain without its file."""
    generator = torch.Generator().manual_seed(seed)
    kv, hidden, inner = shape.kv_heads * shape.width, shape.hidden, shape.inner
    sizes = ((hidden, hidden), (kv, hidden), (kv, hidden), (hidden, hidden), (inner, hidden),
             (inner, hidden), (hidden, inner))  # fmt: skip
    state = {
        "embed_tokens.weight": torch.randn(shape.vocabulary, hidden, generator=generator) * 0.1,
        "norm.weight": torch.ones(hidden),
    }
    for layer in range(shape.layers):
        for name in NORMS:
            state[f"layers.{layer}.{name}.weight"] = torch.ones(hidden)
        for name, size in zip(MATRICES, sizes, strict=True):
            value = torch.randn(size, generator=generator) * size[1] ** -0.5
            state[f"layers.{layer}.{name}.weight"] = value
    return state


def parts(model: Smol) -> Iterator[tuple[str, Tensor]]:
    """What is stored of the model, by the names that `rotatek.models.assembly` reads."""
    for name, value in model.visual.state_dict().items():
        yield VISUAL + name, value.to(STORED if value.ndim > 1 else torch.bfloat16)
    for name, factor in model.factors():
        yield name, factor.detach().bfloat16()


def write_parts(tensors: Iterable[tuple[str, Tensor]], folder: Path) -> None:
    """Write named tensors in shards of at most 9 MB, in place of those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.safetensors"):
        old.unlink()
    shards: list[dict[str, Tensor]] = [{}]
    room = SHARD_BYTES
    for name, value in tensors:
        size = value.nbytes + ENTRY
        if size > room:
            shards.append({})
            room = SHARD_BYTES
        shards[-1][name] = value.contiguous().cpu()
        room -= size
    for number, shard in enumerate(shards, 1):
        save_file(shard, folder / f"parts-{number:05d}-of-{len(shards):05d}.safetensors")


def save_smol(model: Smol, folder: Path) -> None:
    """Write the parts in shards of at most 9 MB, with all but the language model's files."""
    write_parts(parts(model), folder)
    model.config.save_pretrained(folder)
    GenerationConfig(
        eos_token_id=smollm2.IM_END,
        pad_token_id=smollm2.PAD,
        do_sample=False,
        max_new_tokens=512,
        suppress_tokens=list(smollm2.RENAMED),
    ).save_pretrained(folder)
    recipe = {"language": f"{smollm2.PACKAGE} {smollm2.VERSION}", "file": smollm2.FILE,
              "sha256": smollm2.SHA256, "scale": model.scale, "form": FORM}  # fmt: skip
    for file, content in ((RECIPE, recipe), ("preprocessor_config.json", preprocessor())):
        (folder / file).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(TEMPLATE + "\n", encoding="utf-8")
