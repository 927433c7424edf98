"""`model.generate` with a compressed cache, and without one.

    python examples/generate.py [PICTURE QUESTION]

A model and a processor of your own are used in the same way: `inputs` is what the processor makes,
and `RotateKCache(model, inputs, settings)` is the only new line.
"""

import sys
from pathlib import Path

import torch
from transformers.cache_utils import DynamicCache

from rotatek import FastV, RotateK, RotateKCache, Settings, load, make_request, open_image
from rotatek.bridge.scope import with_cache
from rotatek.cache.rotatek_cache import cache_bytes

PICTURE = Path(__file__).parents[1] / "assets" / "examples" / "receipt.png"


def main(picture: str = str(PICTURE), question: str = "What is the total?") -> None:
    """Answer twice, and print what each cache weighs."""
    vlm = load("pocket", "cpu")
    prompt = vlm.prompt(make_request(open_image(Path(picture)), question, 64))
    inputs = {  # as transformers' processor would make it
        "input_ids": prompt.ids,
        "attention_mask": torch.ones_like(prompt.ids),
        "mm_token_type_ids": prompt.visual.int(),
        **prompt.pixels.tensors,
    }
    settings = Settings(tokens=FastV(keep=0.4), channels=RotateK(keep=0.25))
    caches = {
        "uncompressed": DynamicCache(),
        f"KV {settings.nominal_kv:.2f}": RotateKCache(vlm.model, inputs, settings),
    }
    for name, cache in caches.items():
        ids = vlm.model.generate(
            **inputs, **with_cache(vlm.model, cache), max_new_tokens=64, do_sample=False
        )
        new = ids[0, prompt.ids.shape[1] :]
        answer = vlm.tokenizer.decode(new, skip_special_tokens=True)
        print(f"{name:<14} {cache_bytes(cache).total:>10,} bytes  {answer}")


if __name__ == "__main__":
    main(*sys.argv[1:])
