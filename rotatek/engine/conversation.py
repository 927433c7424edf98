"""Conversations: each setting's answers, and the caches that stay for follow-up questions.

A request owns its caches and closes them. A `Conversation` is the one exception: the caller that
passes it to `Engine.compare` owns its caches, and closes it. A follow-up question feeds only its
own tokens; each column continues from its own compressed cache, and the image is not read again.
"""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache
from transformers.convert_slow_tokenizer import bytes_to_unicode

from kernels import dispatch
from rotatek.cache.measures import ByteCount
from rotatek.cache.rotatek_cache import RotateKCache, cache_bytes, release
from rotatek.cache.token_plan import TokenPlan
from rotatek.engine.events import Answer, Finished, Likely, Prefilled, Token
from rotatek.engine.memory import MemoryReservation
from rotatek.engine.sequences import SampledToken
from rotatek.engine.sequences import Sequence as Row
from rotatek.errors import CacheFileForeign, CacheNotStorable
from rotatek.inputs.sampling import GREEDY
from rotatek.inputs.text_files import whole_characters
from rotatek.inspect.answer_attention import AnswerAttentionRecorder
from rotatek.inspect.trace import TraceRecorder
from rotatek.methods.settings import Settings
from rotatek.models import Prompt, VisionLanguageModel

CONTEXT: Final = 8  # tokens that are decoded again before a new one
LEAST_LOG: Final = -9999.0  # JSON has no infinity
BYTE: Final = re.compile(r"<0x([0-9A-F]{2})>")  # a token that is a byte
KEPT: Final = "name", "rows", "first_position", "chosen", "parted", "history"  # of a column, stored


@dataclass(eq=False)
class Column:
    """One setting's cache, and its answers so far.

    cache: filled by the prefill; empty while its row is in the batch. plan: the prompt's. rows: of
    the prompt that the cache has read; an encoder-stage pruner leaves fewer. first_position: of the
    first token behind the prompt. chosen: bool [visual tokens], those that an encoder-stage pruner
    left, or None. draw: which of several answers under equal settings it is. recorder: records its
    Keys, for figures; attention: its queries, for these and the overlay. prefill_ms: of the
    question: the tower's, the pass's, and the compression's once it is done. history: tokens behind
    the prompt but for those of the latest answer, until it is kept. parted: whether an earlier
    answer differed from the first column's. row: of the answer in progress; answer: what it has
    said; read: its tokens whose text has been delivered.
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
    row: Row | None = None
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
        text, self.read = newly_said(vlm, [*self.answer.ids, pick.token], self.read)
        likely: list[tuple[int, float]] = []
        if self.row is not None and self.row.sampling.top_logprobs is not None:
            own = math.log(pick.probability) if pick.probability else LEAST_LOG
            likely = [(pick.token, own), *pick.top]
        event = Token(
            self.name, index, pick.token, text, pick.ms,
            divergent=compared and not (beside and there[index].token_id == pick.token),
            kl=pick.kl if alike else None,
            probability=pick.probability,
            likely=tuple(
                Likely(*spelling(vlm.tokenizer, one), max(log, LEAST_LOG)) for one, log in likely
            ),
        )  # fmt: skip
        self.answer.take(event)
        return event

    def finished(self, vlm: VisionLanguageModel, reference: "Column", prompt: Prompt) -> Finished:
        """The figures of an answer that has ended, and the results of its recorders."""
        row, count = self.row, self.bytes()
        parts = count.parts
        if self.settings.is_baseline:  # its tensors hold visual and text tokens together
            visual = vlm.full_bytes(prompt.visual_tokens, states=0)
            half = min(visual, parts["text"]) // 2
            both = {"visual_keys": half, "visual_values": half}
            parts = parts | both | {"text": parts["text"] - 2 * half}
        tokens, mine, first = self.answer.tokens, self.answer.ids, reference.answer.ids
        pairs = list(zip(mine, first, strict=False))
        longest = max(len(mine), len(first))
        kl = [token.kl for token in tokens if token.kl is not None]
        sure = sum(math.log(max(token.probability, 1e-30)) for token in tokens)
        steps = [token.ms for token in tokens[1:]]
        metrics: dict[str, Any] = {
            "kv_bytes": count.total,
            "kv_bytes_full": vlm.full_bytes(prompt.ids.shape[1] + self.grown),
            "bytes": parts,
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
            shown = prompt.pixels.grids, prompt.visual_tokens, kept
            trace = self.recorder.finish(*shown, self.attention)
        if seen and self.attention is not None:
            attention = self.attention.finish(self.cache, prompt.visual[0], kept)
        event = Finished(
            self.name, text_of(vlm, mine).strip(), len(mine),
            float(np.mean(steps)) if steps else 0.0, metrics, trace, attention,
        )  # fmt: skip
        self.answer.take(event)
        return event

    def _kept(self, prompt: Prompt) -> NDArray[np.bool_] | None:
        """[visual_tokens] bool, or None where every token stayed."""
        if self.chosen is not None:
            return self.chosen.numpy()
        if self.plan.kept_rows is None:
            return None
        return self.plan.kept_rows[0][prompt.visual[0].cpu()].numpy()


@dataclass
class Conversation:
    """Caches that outlive their request. Not for two threads at once."""

    columns: list[Column] = field(default_factory=list)
    prompt: Prompt | None = None  # the first request's, without pixels
    turns: int = 0  # questions answered so far
    lease: MemoryReservation | None = None

    def hold(
        self, columns: Sequence[Column], prompt: Prompt, lease: MemoryReservation | None = None
    ) -> None:
        """Take over finished columns, the prompt they answered, and their memory reservation."""
        self.columns = list(columns)
        self.prompt = replace(prompt, pixels=replace(prompt.pixels, tensors={}))
        self.turns += 1
        for column in self.columns:
            column.parted = column.parted or column.answer.ids != self.columns[0].answer.ids
            column.history += column.answer.ids
            column.recorder = column.row = None
            if isinstance(column.cache, RotateKCache):
                column.cache.make_growing()
        self.lease = lease
        if lease is not None:
            lease.resize(self.cache_bytes, resting=True)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write a conversation of one compressed column to a file, for `load`: its bytes. One that
        is there is replaced when the new one is complete.

        Raises:
            CacheNotStorable: where nothing is compressed, or there are several columns.
            UserError: as `RotateKCache.save`.
        """
        if len(self.columns) != 1 or self.prompt is None:
            raise CacheNotStorable
        (column,) = self.columns
        if not isinstance(column.cache, RotateKCache):
            raise CacheNotStorable
        own = {name: getattr(column, name) for name in KEPT}
        notes = {"column": own, "prompt": self.prompt, "turns": self.turns}
        return column.cache.save(path, notes)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], vlm: VisionLanguageModel, **paths: str
    ) -> "Conversation":
        """A conversation as `save` wrote it: the image need not be read again. `paths` are as
        `RotateKCache.load` takes them.

        Raises:
            UserError: as `RotateKCache.load`; and for a cache without a conversation.
        """
        cache = RotateKCache.load(path, vlm.model, Prompt, **paths)
        told = cache.notes
        if not isinstance(told, dict) or "turns" not in told:
            raise CacheFileForeign(
                "This file has a cache without a conversation. Load it in a program, with "
                "`RotateKCache.load`."
            )
        column = Column(settings=cache.settings, cache=cache, plan=cache.plan, **told["column"])
        return cls([column], told["prompt"], told["turns"])

    @property
    def is_open(self) -> bool:
        """Whether there is a cache that a question can continue."""
        return bool(self.columns)

    @property
    def tokens(self) -> int:
        """Logical tokens of the longest column."""
        grown = max((column.grown for column in self.columns), default=0)
        return grown + (0 if self.prompt is None else self.prompt.ids.shape[1])

    @property
    def cache_bytes(self) -> int:
        """Live bytes of all its caches."""
        return sum(column.bytes().total for column in self.columns)

    def shorten(self, tokens: int) -> bool:
        """Let the last answer of the only column end after so many tokens. Whether the cache has
        read all of them and none that follows; otherwise the conversation is as it was."""
        (column,) = self.columns
        if not isinstance(column, Column):  # a replica holds it
            return False
        end = len(column.history) - len(column.answer.ids) + tokens
        if column.grown > end:
            return False
        del column.history[end:]
        return True

    def close(self) -> None:
        """Free every tensor; nothing can be asked after that."""
        for column in self.columns:
            column.close()
        self.columns, self.prompt = [], None
        if self.lease is not None:
            self.lease.release()


def text_of(vlm: VisionLanguageModel, tokens: list[int]) -> str:
    """Tokens as text that can be printed, stored and sent."""
    return whole_characters(vlm.tokenizer.decode(tokens, skip_special_tokens=True))


def newly_said(vlm: VisionLanguageModel, tokens: list[int], read: int) -> tuple[str, int]:
    """The text that the last of an answer's tokens completes, and how many have been read then;
    read: how many had been before. A token more than a few positions back does not change it, so
    only the last ones are decoded."""
    start = max(0, read - CONTEXT)
    before, now = text_of(vlm, tokens[start:read]), text_of(vlm, tokens[start:])
    if now.endswith("\ufffd"):  # an unfinished character waits for its other bytes
        return "", read
    return now[len(before) :], len(tokens)


def spelling(tokenizer: Any, token: int) -> tuple[str, bytes]:
    """What a token says: text, with a replacement character for what is only a part of one; and
    bytes, which are those of the text where the vocabulary has no spelling of its own for them."""
    text = whole_characters(tokenizer.decode([token]))
    if "\ufffd" not in text:
        return text, text.encode()
    piece = str(tokenizer.convert_ids_to_tokens(token))
    if (found := BYTE.fullmatch(piece)) is not None:
        return text, bytes([int(found[1], 16)])
    letters = {letter: byte for byte, letter in bytes_to_unicode().items()}  # of byte-level ones
    if all(letter in letters for letter in piece):
        return text, bytes(letters[letter] for letter in piece)
    return text, text.encode()
