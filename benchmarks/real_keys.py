"""What compressed caches do to the Keys of a pretrained language model.

A text's first tokens take the part of the picture: `visual` may be any mask, so any causal model of
transformers can be measured. The first 4 tokens of each segment stay text, like a chat template
before a picture; `context` tokens are compressed; 48 more are the question. One prefill fills the
caches of all settings, and the next 192 tokens are scored by teacher forcing against the plain
cache: additional nats for each token, the divergence of its distribution (KL), and how often the
most likely token is the same. Live bytes are those of the compressed part over what the plain cache
holds of the same tokens in the same type. The first token behind the prompt is not scored: it never
meets a compressed cache.
"""

import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache

from benchmarks.bits_quality import change
from benchmarks.key_spectra import Spectra
from rotatek.bridge.attention import prepare
from rotatek.bridge.cache_argument import with_cache
from rotatek.bridge.fitness import attention_layers
from rotatek.bridge.state_layers import key_layers
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.shared_prefill import SharedPrefill
from rotatek.cache.token_plan import TokenPlan, layout_of
from rotatek.engine.prefill import by_pruning
from rotatek.evaluation.real_keys import FIRST, LATER, Divergence, read, write
from rotatek.methods.settings import Settings

BEFORE: Final = 4  # tokens before the context
QUESTION: Final = 48
SCORED: Final = 192
SOURCES: Final = (
    "statistics", "argparse", "difflib", "heapq", "doctest", "textwrap", "pickletools", "typing",
)  # fmt: skip
SHARES: Final = (0.5, 0.25, 0.125)  # of the tokens
Arms = Mapping[str, Mapping[str, Any]]


def _named(label: str, key: str, values: Sequence[Any], **given: Any) -> dict[str, dict[str, Any]]:
    """Arms of one method, one for each value of an option; label: a format string for the value."""
    return {label.format(value): given | {key: value} for value in values}


ARMS: Final[Arms] = {
    "every number": {"channels": "full"},
    **_named("{}", "cache_dtype", ("int8", "fp8"), channels="full"),
    **_named("RotateK {} bits", "bits", (4, 3, 2, 1.5, 1, 0.75, 0.5)),
    **_named("RotateK {} times smaller", "smaller", (3, 4, 5, 6, 8, 12, 16)),
    **_named("RotateK {} of the channels", "keep_channels", (0.5, 0.25)),
    **_named("ThinK {} of the channels", "keep_channels", (0.5, 0.25), channels="think"),
    **_named("SparK {} of the channels", "keep_channels", (0.5, 0.25), channels="spark"),
    **_named("KIVI {} bits", "number_bits", ("4", "3", "2"), channels="kivi"),
    **_named("KIVI {} bits, groups of 64", "number_bits", ("4", "3"), channels="kivi", group="64"),
    **_named("KIVI {} bits, groups of 128", "number_bits", ("3", "2"), channels="kivi",
             group="128"),
    "KIVI 4 and 2 bits": {"channels": "kivi", "value_bits": "2"},
    "KIVI 2 bits, 128 recent": {"channels": "kivi", "number_bits": "2", "residual": "128"},
    **_named("TurboQuant {} bits", "number_bits", ("4", "3.5", "3", "2.5", "2", "1"),
             channels="turboquant"),
    "TurboQuant 4 and 2 bits": {"channels": "turboquant", "value_bits": "2"},
    "TurboQuant 3 and 2 bits": {"channels": "turboquant", "number_bits": "3", "value_bits": "2"},
    **_named("VidKV, groups of {}", "group", ("32", "128"), channels="vidkv"),
    **_named("SnapKV {}", "keep_tokens", SHARES, tokens="snapkv", channels="full"),
    **_named("SnapKV {}, KIVI 2 bits", "keep_tokens", SHARES, tokens="snapkv", channels="kivi",
             number_bits="2"),
    **_named("AdaKV {}", "keep_tokens", SHARES, tokens="adakv", channels="full"),
    **_named("AdaKV {}, KIVI 2 bits", "keep_tokens", SHARES, tokens="adakv", channels="kivi",
             number_bits="2"),
    "AdaKV 0.5, RotateK 2 bits": {"tokens": "adakv", "keep_tokens": 0.5, "bits": 2},
    "SnapKV 0.5, RotateK 2 bits": {"tokens": "snapkv", "keep_tokens": 0.5, "bits": 2},
}  # fmt: skip


class Row(NamedTuple):
    """One setting on one segment.

    asked: "first" where the context was compressed behind the question, or "later".
    live: bytes of the compressed part over the plain cache's; nats: added a token; kl: in nats;
    top1: share of tokens whose most likely one is the same.
    """

    model: str
    context: int
    asked: str
    segment: int
    arm: str
    live: float
    nats: float
    kl: float
    top1: float


def load(name: str, device: str | None, dtype: str) -> tuple[PreTrainedModel, Any]:
    """A causal language model and its tokenizer.

    Args:
        name: a hub id, a folder, or a GGUF file.
        device: "cpu" or "cuda"; a GPU where there is one.
        dtype: of the weights, by torch's name.

    Raises:
        SystemExit: for a GGUF file without the package that reads it.
    """
    place, given = name, {}
    if name.endswith(".gguf"):
        if importlib.util.find_spec("gguf") is None:
            raise SystemExit("Reading a GGUF file needs the package gguf. Run pip install gguf.")
        place, given = str(Path(name).parent), {"gguf_file": Path(name).name}
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    model = AutoModelForCausalLM.from_pretrained(place, dtype=getattr(torch, dtype), **given)
    return model.to(device).eval(), AutoTokenizer.from_pretrained(place, **given)


def texts_of(paths: Sequence[Path]) -> list[str]:
    """The texts of files; without any, the sources of modules of Python's standard library."""
    if not paths:
        found = (importlib.util.find_spec(name) for name in SOURCES)
        paths = [Path(one.origin) for one in found if one is not None and one.origin is not None]
    return [path.read_text(encoding="utf-8", errors="replace") for path in paths]


def segments_of(tokenizer: Any, texts: Iterable[str], length: int, most: int) -> list[Tensor]:
    """Segments [1, length] of token ids: the texts' first ones, then their second ones, and so on.

    Raises:
        SystemExit: where no text is as long as that.
    """
    whole = [tokenizer(text, return_tensors="pt")["input_ids"] for text in texts]
    rounds = max((ids.shape[1] // length for ids in whole), default=0)
    found = [
        ids[:, turn * length : (turn + 1) * length]
        for turn in range(rounds)
        for ids in whole
        if ids.shape[1] >= (turn + 1) * length
    ]
    if not found:
        raise SystemExit(f"No text has {length:,} tokens. Give a longer one, or a smaller context.")
    return found[:most]


def compressed_bytes(plain: Cache, question: int) -> int:
    """Bytes that a filled plain cache holds of the compressed tokens; windows hold fewer.

    Args:
        plain: filled with `BEFORE` tokens, the context and the question.
        question: tokens of the question.
    """
    length, total = plain.get_seq_length(), 0
    for layer in key_layers(plain):
        held = layer.keys.shape[2]
        kept = held - min(held, question) - (BEFORE if held == length else 0)
        total += (layer.keys.nbytes + layer.values.nbytes) * kept // held
    return total


class Prompt(NamedTuple):
    """read: [1, BEFORE + context + QUESTION] ids that are compressed; tail: [1, T] those behind, of
    which the last `SCORED` are scored."""

    read: Tensor
    tail: Tensor


def prompt_of(ids: Tensor, context: int, other: Tensor | None = None) -> Prompt:
    """A segment as it is read.

    Args:
        ids: [1, BEFORE + context + QUESTION + 1 + SCORED].
        context: compressed tokens.
        other: [1, QUESTION] tokens that follow the context at first; the segment's own by default.
    """
    first = BEFORE + context
    if other is None:
        return Prompt(ids[:, : first + QUESTION], ids[:, first + QUESTION :])
    return Prompt(torch.cat([ids[:, :first], other], 1), ids[:, first:])


@torch.inference_mode()
def rows_of(
    model: PreTrainedModel,
    known: tuple[str, int, str, int],
    prompt: Prompt,
    context: int,
    arms: Arms,
) -> Iterator[Row]:
    """One segment under every arm; known: the first fields of its rows."""
    prepare(model)
    seen, tail = prompt
    visual = torch.zeros_like(seen, dtype=torch.bool)
    visual[:, BEFORE : BEFORE + context] = True
    plain = DynamicCache(config=model.config)
    model(input_ids=seen, **with_cache(model, plain), use_cache=True, logits_to_keep=1)
    full = compressed_bytes(plain, QUESTION)
    sure, said = scored(model, plain, tail), tail[:, -SCORED:, None]
    settings = {label: Settings.of(**arm) for label, arm in arms.items()}
    for alike in by_pruning(settings.values()):
        labels = [label for label, one in settings.items() if one in alike]
        caches = filled(model, seen, visual, [settings[label] for label in labels])
        for label, cache in zip(labels, caches, strict=True):
            count = cache.bytes()
            got = scored(model, cache, tail)
            held = count.total - count.parts["text"] - count.parts["state"]
            yield row_of(known, label, held / full, sure, got, said)
            cache.close()


def filled(
    model: PreTrainedModel, read: Tensor, visual: Tensor, settings: Sequence[Settings]
) -> list[RotateKCache]:
    """Caches of settings that drop the same tokens, from one prefill of read [1, L]."""
    layout, layers = layout_of(model, {"visual": visual}), len(attention_layers(model))
    plan = TokenPlan(layout, settings[0].pruning, layers)
    caches = [RotateKCache(model, {"visual": visual}, one, plan=plan) for one in settings]
    shared = SharedPrefill(plan, caches, timed=False)
    model(input_ids=read, **with_cache(model, shared), use_cache=True, logits_to_keep=1)
    return caches


def row_of(
    known: tuple[str, int, str, int], label: str, live: float, sure: Tensor, got: Tensor,
    said: Tensor,
) -> Row:  # fmt: skip
    """A setting's row: log-probabilities [1, T, vocabulary] got beside sure ones, of tokens said
    [1, T, 1]."""
    return Row(
        *known, label, round(live, 5),
        round(float((sure - got).gather(-1, said).mean()), 5),
        round(float((sure.exp() * (sure - got)).sum(-1).mean()), 6),
        round(float((sure.argmax(-1) == got.argmax(-1)).float().mean()), 4),
    )  # fmt: skip


def scored(model: PreTrainedModel, cache: Cache, tail: Tensor) -> Tensor:
    """Log-probabilities [1, SCORED, vocabulary] of a tail's last tokens, behind a filled cache."""
    out = model(input_ids=tail[:, :-1], **with_cache(model, cache), use_cache=True)
    return out.logits[:, -SCORED:].float().log_softmax(-1)


def figures(rows: Sequence[Row]) -> list[Divergence]:
    """Every model's, context's and setting's means, in the order in which they were measured."""
    found = []
    for key in dict.fromkeys((row.model, row.context, row.asked, row.arm) for row in rows):
        own = [row for row in rows if (row.model, row.context, row.asked, row.arm) == key]
        live, nats, kl, top1 = (
            np.array([getattr(row, name) for row in own]) for name in ("live", "nats", "kl", "top1")
        )
        spread = kl.std(ddof=1) if len(own) > 1 else 0.0
        found.append(
            Divergence(
                *key, len(own), round(float(live.mean()), 4), round(float(nats.mean()), 4),
                round(float(kl.mean()), 5), round(float(spread), 5), round(float(top1.mean()), 4),
            )
        )  # fmt: skip
    return found


def report(made: Sequence[Divergence], spectra: Spectra | None = None) -> dict[str, Any]:
    """Tables to print: one a model and context, and one of the Keys and Values by layer."""
    found: dict[str, Any] = {}
    for one in made:
        table = found.setdefault(f"{one.model}, {one.context:,} tokens, asked {one.asked}", {})
        table[one.arm] = {
            "live bytes": one.live, "nats added": one.nats, "KL": one.kl, "spread": one.spread,
            "same top token": one.top1,
        }  # fmt: skip
    return found | ({} if spectra is None else spectra.tables())


def real_keys(
    model: str,
    texts: Sequence[Path] = (),
    contexts: Sequence[int] = (1024, 3072),
    asked: Sequence[str] = (FIRST, LATER),
    segments: int = 4,
    device: str | None = None,
    dtype: str = "bfloat16",
    arms: Arms = ARMS,
    constants: Sequence[str] = (),
    out: Path = Path("artifacts/real-keys"),
) -> Iterator[dict[str, Any]]:
    """Every arm's figures at every context.

    `out` keeps `rows.csv`, a line a segment and arm, from which a run that was cut short goes on;
    `figures.csv`, their means; and `spectra.csv`, of Keys and Values by layer.

    Args:
        model: a hub id, a folder, or a GGUF file.
        texts: files; by default sources of Python's standard library.
        contexts: compressed tokens of a segment.
        asked: "first", "later", or both.
        segments: of each context at most.
        device: "cpu" or "cuda".
        dtype: of the weights and the cache, by torch's name.
        arms: label -> flat options of the settings.
        constants: to change in this process, as `bits_quality` takes them; then rows are kept in a
            folder of `out` that is named after them.
        out: a folder, whose rows may be of several models.
    """
    if constants:
        out = out / ",".join(sorted(one.rpartition(":")[2] for one in constants))
    out.mkdir(parents=True, exist_ok=True)
    change(constants)
    rows, spectra = read(out / "rows.csv", Row), Spectra.load(out / "spectra.csv")
    lm, tokenizer = load(model, device, dtype)
    name = Path(model).name.removesuffix(".gguf")
    written = texts_of(texts)
    starts = [
        tokenizer(text, return_tensors="pt")["input_ids"][:, :QUESTION].to(lm.device)
        for text in written
    ]
    for context in contexts:
        length = BEFORE + context + QUESTION + 1 + SCORED
        every = [ids.to(lm.device) for ids in segments_of(tokenizer, written, length, segments)]
        if not spectra.has(name, context):
            spectra.measure(lm, name, prompt_of(every[0], context).read, BEFORE, context)
            spectra.save(out / "spectra.csv")
        for number, when in product(range(len(every)), asked):
            own = name, context, when, number
            known = {row.arm for row in rows if row[:4] == own}
            left = {label: arm for label, arm in arms.items() if label not in known}
            other = None if when == FIRST else starts[(number + 1) % len(starts)]
            prompt = prompt_of(every[number], context, other)
            for row in rows_of(lm, own, prompt, context, left) if left else ():
                rows.append(row)
                write(out / "rows.csv", rows, Row._fields)
            made = figures(rows)
            write(out / "figures.csv", made, Divergence._fields)
            yield report(made, spectra)
