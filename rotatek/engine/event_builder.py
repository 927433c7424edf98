"""Builds the events of one column: its prefill, each token, and its figures at the end."""

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from transformers.convert_slow_tokenizer import bytes_to_unicode

from kernels import dispatch
from rotatek.engine.events import Finished, Likely, Prefilled, Token
from rotatek.engine.sequences import SampledToken, Sequence
from rotatek.inputs.text_files import whole_characters
from rotatek.inspect.answer_attention import AnswerAttention
from rotatek.inspect.trace import Trace
from rotatek.models import Prompt, VisionLanguageModel

CONTEXT: Final = 8  # tokens that are decoded again before a new one
LEAST_LOG: Final = -9999.0  # JSON has no infinity
BYTE: Final = re.compile(r"<0x([0-9A-F]{2})>")  # a token that is a byte


def prefilled_event(
    vlm: VisionLanguageModel, column: Sequence, prompt: Prompt, *, reused: bool = False
) -> Prefilled:
    """A column whose prompt is read, and not yet in the running batch."""
    tokens = prompt.ids.shape[1] + column.grown
    return Prefilled(
        column=column.name,
        prefill_ms=column.prefill_ms,
        visual_tokens=prompt.visual_tokens,
        visual_kept=column.plan.visual_kept,
        prompt_tokens=tokens,
        nominal_kv=column.settings.nominal_kv,
        kv_bytes_full=vlm.full_bytes(tokens),
        kept=_kept(column, prompt),
        grids=prompt.pixels.grids,
        attention=dispatch.status(vlm.device.type).backend,
        reused=reused,
    )


def token_event(
    vlm: VisionLanguageModel, column: Sequence, reference: Sequence, sampled: SampledToken
) -> Token:
    """Take one token into the column's record."""
    index = len(column.tokens)
    compared = column is not reference
    before = compared and not column.parted and column.tokens == reference.tokens[:index]
    column.log_probability += math.log(max(sampled.probability, 1e-30))
    column.tokens.append(sampled.token)
    if index:
        column.step_ms.append(sampled.ms)
    kl = None
    if before and len(reference.tokens) > index:
        kl = sampled.kl
        column.kl += [] if kl is None else [kl]
    divergent = compared and reference.tokens[index : index + 1] != [sampled.token]
    text = newly_said(vlm, column)
    return Token(
        column.name, index, sampled.token, text, sampled.ms, divergent, kl, sampled.probability,
        _likely(vlm, sampled) if column.sampling.top_logprobs is not None else (),
    )  # fmt: skip


def _likely(vlm: VisionLanguageModel, sampled: SampledToken) -> tuple[Likely, ...]:
    """The token that was chosen, then the likeliest ones."""
    own = max(math.log(sampled.probability), LEAST_LOG) if sampled.probability else LEAST_LOG
    return tuple(
        Likely(*spelling(vlm.tokenizer, token), max(log, LEAST_LOG))
        for token, log in ((sampled.token, own), *sampled.top)
    )


def text_of(vlm: VisionLanguageModel, tokens: Iterable[int]) -> str:
    """Tokens as text that can be printed, stored and sent."""
    return whole_characters(vlm.tokenizer.decode([*tokens], skip_special_tokens=True))


def newly_said(vlm: VisionLanguageModel, column: Sequence) -> str:
    """The text that the latest token completes. A token more than a few positions back does not
    change it, so only the last ones are decoded."""
    tokens, read = column.tokens, column.read
    start = max(0, read - CONTEXT)
    before = text_of(vlm, tokens[start:read])
    now = text_of(vlm, tokens[start:])
    if now.endswith("\ufffd"):  # an unfinished character waits for its other bytes
        return ""
    column.read = len(tokens)
    return now[len(before) :]


def finished_event(
    vlm: VisionLanguageModel,
    column: Sequence,
    reference: Sequence,
    prompt: Prompt,
    stopped: bool,
) -> Finished:
    """The figures of a column that has ended, and the results of its recorders."""
    count = column.bytes()
    pairs = list(zip(column.tokens, reference.tokens, strict=False))
    longest = max(len(column.tokens), len(reference.tokens))
    differs = [i for i, (a, b) in enumerate(pairs) if a != b]
    if not differs and len(column.tokens) > len(reference.tokens):
        differs = [len(reference.tokens)]
    metrics: dict[str, Any] = {
        "kv_bytes": count.total,
        "kv_bytes_full": vlm.full_bytes(prompt.ids.shape[1] + column.grown),
        "bytes": _by_part(vlm, column, prompt, count.parts),
        "nominal_kv": column.settings.nominal_kv,
        "prefill_ms": column.prefill_ms,
        "agreement": sum(a == b for a, b in pairs) / longest if longest else 1.0,
        "first_divergence": differs[0] if differs else None,
        "kl": float(np.mean(column.kl)) if column.kl else None,
        "confidence": math.exp(column.log_probability / max(len(column.tokens), 1)),
        "stopped": stopped,
        "sampling": column.sampling.as_dict(),
    }
    per_token = float(np.mean(column.step_ms)) if column.step_ms else 0.0
    answer = text_of(vlm, column.tokens).strip()
    return Finished(
        column.name, answer, len(column.tokens), per_token, metrics,
        _trace(column, prompt), _answer_attention(column, prompt),
    )  # fmt: skip


def _by_part(
    vlm: VisionLanguageModel, column: Sequence, prompt: Prompt, parts: dict[str, int]
) -> dict[str, int]:
    """Divide the bytes of a plain cache, whose tensors hold visual and text tokens together."""
    if not column.settings.is_baseline:
        return parts
    visual = vlm.full_bytes(prompt.visual_tokens, states=0)
    half = min(visual, parts["text"]) // 2
    return parts | {
        "visual_keys": half, "visual_values": half, "text": parts["text"] - 2 * half
    }  # fmt: skip


def _kept(column: Sequence, prompt: Prompt) -> NDArray[np.bool_] | None:
    """[visual_tokens] bool, or None where every token stayed."""
    if column.embedded.kept is not None:
        return column.embedded.kept.numpy()
    if column.plan.kept_rows is None:
        return None
    return column.plan.kept_rows[0][prompt.visual[0].cpu()].numpy()


def _trace(column: Sequence, prompt: Prompt) -> Trace | None:
    if column.recorder is None or not column.recorder.layers:
        return None
    asked = None if column.attention is None else column.attention.recorded
    shown = prompt.pixels.grids, prompt.visual_tokens, _kept(column, prompt)
    return column.recorder.finish(*shown, asked)


def _answer_attention(column: Sequence, prompt: Prompt) -> AnswerAttention | None:
    if column.attention is None:
        return None
    return column.attention.finish(column.cache, prompt.visual[0], _kept(column, prompt))


def spelling(tokenizer: Any, token: int) -> tuple[str, bytes]:
    """What a token says.

    Args:
        tokenizer: of the model.
        token: its number.

    Returns:
        text, with a replacement character for what is only a part of one; and bytes, which are
        those of the text where the vocabulary has no spelling of its own for them.
    """
    text = whole_characters(tokenizer.decode([token]))
    if "\ufffd" not in text:
        return text, text.encode()
    piece = str(tokenizer.convert_ids_to_tokens(token))
    if (found := BYTE.fullmatch(piece)) is not None:
        return text, bytes([int(found[1], 16)])
    letters = _letters()
    if all(letter in letters for letter in piece):
        return text, bytes(letters[letter] for letter in piece)
    return text, text.encode()


@lru_cache(1)
def _letters() -> dict[str, int]:
    """The byte of each letter of byte-level vocabularies."""
    return {letter: byte for byte, letter in bytes_to_unicode().items()}
