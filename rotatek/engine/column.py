"""One setting's answers to a conversation's questions, and the events that tell of them."""

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache
from transformers.convert_slow_tokenizer import bytes_to_unicode

from kernels import dispatch
from rotatek.cache.bytes import ByteCount
from rotatek.cache.rotatek_cache import RotateKCache, cache_bytes, release
from rotatek.cache.token_plan import TokenPlan
from rotatek.engine.answer import Answer
from rotatek.engine.events import Finished, Likely, Prefilled, Token
from rotatek.engine.sequences import SampledToken, Sequence
from rotatek.inputs.sampling import GREEDY
from rotatek.inputs.text_files import whole_characters
from rotatek.inspect.answer_attention import AnswerAttentionRecorder
from rotatek.inspect.trace import TraceRecorder
from rotatek.methods.settings import Settings
from rotatek.models import Prompt, VisionLanguageModel

CONTEXT: Final = 8  # tokens that are decoded again before a new one
LEAST_LOG: Final = -9999.0  # JSON has no infinity
BYTE: Final = re.compile(r"<0x([0-9A-F]{2})>")  # a token that is a byte


@dataclass(eq=False)
class Column:
    """One setting's cache, and its answers so far.

    Args:
        name: what events call it.
        settings: how its cache is compressed.
        cache: filled by the prefill; empty while its row is in the batch.
        plan: the prompt's token plan.
        rows: of the prompt that the cache has read; an encoder-stage pruner leaves fewer.
        first_position: of the first token behind the prompt.
        chosen: bool [visual tokens], those that an encoder-stage pruner left, or None.
        draw: which of several answers under equal settings it is.
        recorder: records its Keys, for figures; attention: its queries, for these and the overlay.

    Attributes:
        prefill_ms: of the question: the tower's, the pass's, and the compression's once it is done.
        history: tokens behind the prompt but for those of the latest answer, until it is kept.
        parted: whether an earlier answer differed from the first column's.
        row: of the answer in progress; answer: what it has said.
        read: tokens of the answer whose text has been delivered.
    """

    name: str
    settings: Settings
    cache: Cache
    plan: TokenPlan
    rows: int
    first_position: int = 0
    chosen: Tensor | None = None
    draw: int = 0
    recorder: TraceRecorder | None = None
    attention: AnswerAttentionRecorder | None = None
    prefill_ms: float = 0.0
    history: list[int] = field(default_factory=list)
    parted: bool = False
    row: Sequence | None = None
    read: int = 0

    def __post_init__(self) -> None:
        self.answer = Answer(self.name, self.settings)

    @property
    def grown(self) -> int:
        """Tokens in the cache since the first prompt."""
        return int(self.cache.get_seq_length()) - self.rows

    @property
    def position(self) -> int:
        """Of the token behind those in the cache."""
        return self.first_position + self.grown

    def bytes(self) -> ByteCount:
        """Live bytes of its cache."""
        return cache_bytes(self.cache)

    def rest(self) -> None:
        """Keep the cache and what a follow-up question needs."""
        self.history += self.answer.ids
        self.recorder = self.row = None
        if isinstance(self.cache, RotateKCache):
            self.cache.make_growing()

    def close(self) -> None:
        """Let go of every tensor."""
        self.row = None
        release(self.cache)

    def prefilled(
        self, vlm: VisionLanguageModel, prompt: Prompt, *, reused: bool = False
    ) -> Prefilled:
        """A question has been read, and the answer begins."""
        tokens = prompt.ids.shape[1] + self.grown
        event = Prefilled(
            column=self.name,
            prefill_ms=self.prefill_ms,
            visual_tokens=prompt.visual_tokens,
            visual_kept=self.plan.visual_kept,
            prompt_tokens=tokens,
            nominal_kv=self.settings.nominal_kv,
            kv_bytes_full=vlm.full_bytes(tokens),
            kept=self._kept(prompt),
            grids=prompt.pixels.grids,
            attention=dispatch.status(vlm.device.type).backend,
            reused=reused,
        )
        self.answer, self.read = Answer(self.name, self.settings), 0
        self.answer.take(event)
        return event

    def token(self, vlm: VisionLanguageModel, reference: "Column", pick: SampledToken) -> Token:
        """The answer's next token."""
        index, there = len(self.answer.tokens), reference.answer.tokens
        compared, beside = self is not reference, index < len(there)
        alike = compared and beside and not self.parted and self.answer.diverged_at is None
        start = max(0, self.read - CONTEXT)  # earlier tokens are not listed again for each new one
        ids = [*(one.token_id for one in self.answer.tokens[start:]), pick.token]
        text, read = newly_said(vlm, ids, self.read - start)
        self.read = start + read
        wanted = self.row is not None and self.row.sampling.top_logprobs is not None
        event = Token(
            self.name, index, pick.token, text, pick.ms,
            divergent=compared and not (beside and there[index].token_id == pick.token),
            kl=pick.kl if alike else None,
            probability=pick.probability,
            likely=_likely(vlm, pick) if wanted else (),
        )  # fmt: skip
        self.answer.take(event)
        return event

    def finished(self, vlm: VisionLanguageModel, reference: "Column", prompt: Prompt) -> Finished:
        """The figures of an answer that has ended, and the results of its recorders."""
        row, count = self.row, self.bytes()
        tokens, mine, first = self.answer.tokens, self.answer.ids, reference.answer.ids
        pairs = list(zip(mine, first, strict=False))
        longest = max(len(mine), len(first))
        kl = [token.kl for token in tokens if token.kl is not None]
        sure = sum(math.log(max(token.probability, 1e-30)) for token in tokens)
        steps = [token.ms for token in tokens[1:]]
        metrics: dict[str, Any] = {
            "kv_bytes": count.total,
            "kv_bytes_full": vlm.full_bytes(prompt.ids.shape[1] + self.grown),
            "bytes": self._by_part(vlm, prompt, count.parts),
            "nominal_kv": self.settings.nominal_kv,
            "prefill_ms": self.prefill_ms,
            "agreement": sum(a == b for a, b in pairs) / longest if longest else 1.0,
            "first_divergence": self.answer.diverged_at,
            "kl": float(np.mean(kl)) if kl else None,
            "confidence": math.exp(sure / max(len(mine), 1)),
            "stopped": row is None or (row.stop is not None and row.stop.is_set()),
            "sampling": (GREEDY if row is None else row.sampling).as_dict(),
        }
        seen, kept = row is not None and not row.missed, self._kept(prompt)
        trace = attention = None
        if seen and self.recorder is not None and self.recorder.layers:
            asked = None if self.attention is None else self.attention.recorded
            shown = prompt.pixels.grids, prompt.visual_tokens, kept
            trace = self.recorder.finish(*shown, asked)
        if seen and self.attention is not None:
            attention = self.attention.finish(self.cache, prompt.visual[0], kept)
        event = Finished(
            self.name, text_of(vlm, mine).strip(), len(mine),
            float(np.mean(steps)) if steps else 0.0, metrics, trace, attention,
        )  # fmt: skip
        self.answer.take(event)
        return event

    def _by_part(
        self, vlm: VisionLanguageModel, prompt: Prompt, parts: dict[str, int]
    ) -> dict[str, int]:
        """Divide the bytes of a plain cache, whose tensors hold visual and text tokens together."""
        if not self.settings.is_baseline:
            return parts
        visual = vlm.full_bytes(prompt.visual_tokens, states=0)
        half = min(visual, parts["text"]) // 2
        return parts | {
            "visual_keys": half, "visual_values": half, "text": parts["text"] - 2 * half
        }  # fmt: skip

    def _kept(self, prompt: Prompt) -> NDArray[np.bool_] | None:
        """[visual_tokens] bool, or None where every token stayed."""
        if self.chosen is not None:
            return self.chosen.numpy()
        if self.plan.kept_rows is None:
            return None
        return self.plan.kept_rows[0][prompt.visual[0].cpu()].numpy()


def _likely(vlm: VisionLanguageModel, pick: SampledToken) -> tuple[Likely, ...]:
    """The token that was chosen, then the likeliest ones."""
    own = max(math.log(pick.probability), LEAST_LOG) if pick.probability else LEAST_LOG
    return tuple(
        Likely(*spelling(vlm.tokenizer, token), max(log, LEAST_LOG))
        for token, log in ((pick.token, own), *pick.top)
    )


def text_of(vlm: VisionLanguageModel, tokens: list[int]) -> str:
    """Tokens as text that can be printed, stored and sent."""
    return whole_characters(vlm.tokenizer.decode(tokens, skip_special_tokens=True))


def newly_said(vlm: VisionLanguageModel, tokens: list[int], read: int) -> tuple[str, int]:
    """The text that the last of an answer's tokens completes, and how many have been read then.

    A token more than a few positions back does not change it, so only the last ones are decoded.

    Args:
        vlm: the model.
        tokens: of the answer so far.
        read: how many of them had been read before.
    """
    start = max(0, read - CONTEXT)
    before, now = text_of(vlm, tokens[start:read]), text_of(vlm, tokens[start:])
    if now.endswith("\ufffd"):  # an unfinished character waits for its other bytes
        return "", read
    return now[len(before) :], len(tokens)


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
