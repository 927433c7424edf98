"""What a stored context of a pretrained language model weighs, and what it still knows.

Segments, scoring and fields are those of `benchmarks.real_keys`; a file's bytes without the text's
stand in place of live bytes, over the context's in bfloat16. RotateK, KIVI and TurboQuant are saved
as any cache is (`RotateKCache.save`). KVTC (`benchmarks.kvtc`) is calibrated on segments behind the
measured ones, and counts neither axes nor means, as a calibration of RotateK does not.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from benchmarks.kvtc import Calibration, Kvtc, Rope, stored
from benchmarks.real_keys import (
    BEFORE,
    QUESTION,
    SCORED,
    Prompt,
    Row,
    compressed_bytes,
    figures,
    filled,
    load,
    prompt_of,
    report,
    row_of,
    scored,
    segments_of,
    texts_of,
)
from benchmarks.stored_sizes import tensors_of
from rotatek.bridge.attention import prepare
from rotatek.bridge.cache_argument import with_cache
from rotatek.bridge.state_layers import key_layers
from rotatek.cache import cache_file
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.evaluation.real_keys import FIRST, Divergence, read, write
from rotatek.methods.settings import Settings

SIZES: Final = (3, 4, 5, 6, 8, 12, 16, 32)  # times smaller
ARMS: Final[Mapping[str, Settings]] = {
    **{f"RotateK {bits:g} bits": Settings.of(bits=bits) for bits in (4, 3, 2, 1, 0.75)},
    **{f"RotateK {n} times smaller": Settings.of(smaller=n) for n in SIZES},
    **{f"KIVI {b} bits": Settings.of(channels="kivi", number_bits=b) for b in ("4", "3", "2")},
    **{
        f"KIVI {b} bits, groups of 128": Settings.of(channels="kivi", number_bits=b, group="128")
        for b in ("3", "2")
    },
    **{
        f"TurboQuant {b} bits": Settings.of(channels="turboquant", number_bits=b)
        for b in ("4", "3", "2.5", "2", "1")
    },
}
KVTC: Final = {f"KVTC {bits:g} bits": bits for bits in (4, 3, 2, 1.5, 1, 0.75, 0.5)}
CALIBRATION: Final = 24  # further segments, at most, that calibrate KVTC


@torch.inference_mode()
def stored_keys(
    model: str,
    texts: Sequence[Path] = (),
    contexts: Sequence[int] = (1024,),
    segments: int = 4,
    device: str | None = None,
    dtype: str = "bfloat16",
    out: Path = Path("artifacts/stored-keys"),
) -> Iterator[dict[str, Any]]:
    """Every arm's figures.

    `out` keeps `stored-rows.csv`, a line a segment and arm, from which a run that was cut short
    goes on, and `stored.csv`, their means.

    Args are those of `benchmarks.real_keys.real_keys`; further segments calibrate KVTC.
    """
    out.mkdir(parents=True, exist_ok=True)
    rows = read(out / "stored-rows.csv", Row)
    lm, tokenizer = load(model, device, dtype)
    prepare(lm)
    name, written = Path(model).name.removesuffix(".gguf"), texts_of(texts)
    for context in contexts:
        length = BEFORE + context + QUESTION + 1 + SCORED
        most = segments + CALIBRATION
        every = [ids.to(lm.device) for ids in segments_of(tokenizer, written, length, most)]
        count = min(segments, len(every) // 2)
        asked, others = every[:count], every[count:]
        visual = torch.zeros_like(asked[0][:, : BEFORE + context + QUESTION], dtype=torch.bool)
        visual[:, BEFORE : BEFORE + context] = True
        kvtc = dict[str, Settings]()
        for number, ids in enumerate(asked):
            own = name, context, FIRST, number
            known = {row.arm for row in rows if row[:4] == own}
            if not known.issuperset(KVTC):
                kvtc = kvtc or calibrated(lm, others, visual, context)
            left = {label: one for label, one in (dict(ARMS) | kvtc).items() if label not in known}
            prompt = prompt_of(ids, context)
            for row in rows_of(lm, own, prompt, visual, left) if left else ():
                rows.append(row)
                write(out / "stored-rows.csv", rows, Row._fields)
            made = figures(rows)
            write(out / "stored.csv", made, Divergence._fields)
            yield report(made)


@torch.inference_mode()
def rows_of(
    model: PreTrainedModel,
    known: tuple[str, int, str, int],
    prompt: Prompt,
    visual: Tensor,
    arms: Mapping[str, Settings],
) -> Iterator[Row]:
    """One segment under every arm; known: the first fields of its rows."""
    plain = DynamicCache(config=model.config)
    model(input_ids=prompt.read, **with_cache(model, plain), use_cache=True, logits_to_keep=1)
    full = compressed_bytes(plain, QUESTION) * 2 / model.dtype.itemsize
    sure, said = scored(model, plain, prompt.tail), prompt.tail[:, -SCORED:, None]
    caches = filled(model, prompt.read, visual, list(arms.values()))
    for label, cache in zip(arms, caches, strict=True):
        live, got = bytes_of(cache) / full, scored(model, cache, prompt.tail)
        yield row_of(known, label, live, sure, got, said)
        cache.close()


def calibrated(
    model: PreTrainedModel, segments: Sequence[Tensor], visual: Tensor, context: int
) -> dict[str, Settings]:
    """KVTC's arms, of one calibration."""
    places = torch.arange(BEFORE, BEFORE + context, device=model.device)
    found = Calibration(Rope(model), places)
    for ids in segments:
        cache = RotateKCache(model, {"visual": visual}, Settings.of(channels="full"),
                             recorder=found)  # fmt: skip
        seen = prompt_of(ids, context).read
        model(input_ids=seen, **with_cache(model, cache), use_cache=True, logits_to_keep=1)
    return {label: Settings(channels=Kvtc.made(found, bits)) for label, bits in KVTC.items()}


def bytes_of(cache: RotateKCache) -> int:
    """Of a cache's file, without its text's."""
    stores = [layer.store for layer in key_layers(cache)]
    if isinstance(cache.settings.channels, Kvtc):
        return stored(stores)
    with TemporaryDirectory() as folder:
        whole = cache.save(Path(folder) / "cache")
    text = [each for layer in key_layers(cache) for each in tensors_of(layer.state()["text"])]
    return whole - len(
        cache_file.packed(dict(zip(map(str, range(len(text))), text, strict=True)), "{}")
    )
