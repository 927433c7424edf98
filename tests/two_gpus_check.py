"""Does a model spread over several GPUs say what it says on one? Every channel method and pruner.

python -m tests.two_gpus_check [--layers 8]: on a machine with two GPUs or more. The model is
random, of Qwen2.5-VL's structure, in float32; its layers lie evenly on all GPUs. With --dry the
processor takes all parts, which only shows that this script runs.

Two GPUs round otherwise than one: layers are solved together where they share a device. What is
quantised amplifies that a few hundred times, since a number beside a step falls on its other side,
and where two groups of channels are nearly as strong, rounding decides which gets bits. So each arm
is also answered on one GPU by models whose Key weights are off by a little: by so much that full
Keys move as far as they do on two GPUs. An arm fails where its logits are off by more than
`TOLERANCE` and by more than `MARGIN` times what that little did, or where its tokens differ and
those of the moved models do not.
"""

import argparse
import copy
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from accelerate import dispatch_model
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel

from rotatek.bridge.cache_argument import with_cache
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.inputs.request import make_request
from rotatek.methods.channels import CHANNELS
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import TOKENS
from rotatek.models import VisionLanguageModel
from tests.tiny import scramble, tiny_qwen

TOLD: dict[str, Any] = {
    "max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False, "output_logits": True,
    "return_dict_in_generate": True,
}  # fmt: skip
TOLERANCE = 1e-2  # of the largest logit
MARGIN = 4  # times the largest move of `SHAKEN` models
SHAKEN = 2  # models that are off by a little
LITTLE = 1e-6, 1e-3  # of a weight, at least and at most
FULL = {"channels": "full"}


def arms() -> dict[str, dict[str, Any]]:
    """Options by what they are called in the table."""
    own: dict[str, dict[str, Any]] = {f"channels {name}": {"channels": name} for name in CHANNELS}
    own |= {}
    own |= {f"{times} times": {"smaller": times} for times in (3, 8, 16, 24)}
    pruners = {f"tokens {one.name}": one for one in TOKENS.values() if one.stage == "decoder"}
    for name, pruner in pruners.items():
        own[name] = {"tokens": pruner.name, "keep_tokens": 0.4}
        own[f"{name}, 16 times"] = own[name] | {"smaller": 16}
    return own


def spread(model: PreTrainedModel, devices: Sequence[str]) -> PreTrainedModel:
    """The model with its layers on all devices, evenly; all else on the first."""
    decoder = model.get_decoder()
    names = {id(module): name for name, module in model.named_modules()}
    places = {
        names[id(layer)]: devices[index * len(devices) // len(decoder.layers)]
        for index, layer in enumerate(decoder.layers)
    }
    around = [model, model.model, decoder]  # whose other parts are placed one by one
    for outer in around:
        for child in outer.children():
            if child is not decoder.layers and child not in around:
                places[names[id(child)]] = devices[0]
    return dispatch_model(model, places, main_device=devices[0], force_hooks=True)


def answer(
    vlm: VisionLanguageModel, model: PreTrainedModel, inputs: dict[str, Tensor], options: Any
) -> tuple[Tensor, Tensor]:
    """Tokens [12] and their logits [12, vocabulary], on the CPU."""
    cache = RotateKCache(model, inputs, Settings.of(**options))
    out = model.generate(**inputs, **with_cache(vlm.model, cache), **TOLD)
    return out.sequences[0, -12:].cpu(), torch.cat(out.logits).float().cpu()


def shaken(model: PreTrainedModel, seed: int, little: float) -> PreTrainedModel:
    """A copy whose Key weights are off by so little of themselves."""
    copied = copy.deepcopy(model)
    for layer in copied.get_decoder().layers:
        weight = layer.self_attn.k_proj.weight.data
        noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed))
        weight.mul_(1 + little * noise.to(weight.device))
    return copied


def apart(wanted: tuple[Tensor, Tensor], found: tuple[Tensor, Tensor]) -> tuple[int, float]:
    """How many tokens are equal, and how far logits of one context are, over the largest."""
    same = wanted[0] == found[0]
    alike = int(same.long().cumprod(0).sum()) + 1
    off = (found[1][:alike] - wanted[1][:alike]).abs().max() / wanted[1].abs().max()
    return int(same.sum()), float(off)


def main() -> int:
    """Compare, print a table; 1 if anything differs or fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=8, help="of the language model")
    parser.add_argument("--dry", action="store_true", help="on the processor alone")
    parser.add_argument("--little", type=float, help="of the weights, in place of what is found")
    args = parser.parse_args()
    devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    devices = ["cpu", "cpu"] if args.dry else devices
    if len(devices) < 2:
        sys.exit("Two GPUs or more are needed.")
    vlm = tiny_qwen()
    config = copy.deepcopy(vlm.model.config)
    config.text_config.num_hidden_layers = args.layers
    config.text_config.layer_types = ["full_attention"] * args.layers
    one = scramble(type(vlm.model)(config), 0)
    one.generation_config = copy.deepcopy(vlm.model.generation_config)
    many = spread(copy.deepcopy(one), devices)
    one = one.to(devices[0])
    noise = np.random.default_rng(0).integers(0, 256, (12, 15, 3), dtype=np.uint8)
    picture = Image.fromarray(noise).resize((420, 336), Image.Resampling.BICUBIC)
    prompt = vlm.prompt(make_request(picture, "what is it, and where?", 16))
    inputs = {"input_ids": prompt.ids, "attention_mask": torch.ones_like(prompt.ids)}
    inputs |= {"mm_token_type_ids": prompt.visual.int(), **prompt.pixels.tensors}
    inputs = {name: tensor.to(devices[0]) for name, tensor in inputs.items()}
    used = {str(next(layer.parameters()).device) for layer in many.get_decoder().layers}
    print(f"layers on {', '.join(sorted(used))}; {prompt.visual_tokens} visual tokens")
    wanted, least = answer(vlm, one, inputs, FULL), LITTLE[0]
    _, off = apart(wanted, answer(vlm, many, inputs, FULL))
    _, move = apart(wanted, answer(vlm, shaken(one, 0, least), inputs, FULL))
    little = args.little or min(max(least, least * off / move), LITTLE[1])
    print(f"full Keys are off by {off:.1e}, as where weights are by {little:.1e}")
    moved = [shaken(one, seed, little) for seed in range(SHAKEN)]
    failed = 0
    for name, options in arms().items():
        try:
            wanted = answer(vlm, one, inputs, options)
            same, off = apart(wanted, answer(vlm, many, inputs, options))
            others = [apart(wanted, answer(vlm, each, inputs, options)) for each in moved]
        except Exception as error:
            failed += 1
            print(f"{name:<28} FAILED {type(error).__name__}: {str(error)[:150]}")
            continue
        fewest, most = min(count for count, _ in others), max(move for _, move in others)
        failed += same < min(len(wanted[0]), fewest) or off > max(TOLERANCE, MARGIN * most)
        print(
            f"{name:<28} equal tokens {same} of {len(wanted[0])}, logits off by {off:.1e}; "
            f"by a little: {fewest}, {most:.1e}"
        )
    print("all the same" if not failed else f"{failed} differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
