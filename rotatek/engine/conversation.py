"""One setting's run, and conversations: finished runs whose caches stay for follow-up questions.

A request owns its caches and closes them. A `Conversation` is the one exception: who hands it to
`Engine.compare` owns what it comes to hold, and closes it. A follow-up question feeds only its own
tokens; each column goes on from its own compressed cache, and the image is not read again.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.cache.bytes import ByteCount
from rotatek.cache.rotatek_cache import RotateKCache, cache_bytes, release
from rotatek.cache.token_plan import TokenPlan, is_one_of
from rotatek.engine.admission import MemoryReservation
from rotatek.engine.batch import Watcher
from rotatek.engine.decode import feed, feed_turn
from rotatek.engine.sequences import Seat
from rotatek.errors import CacheFileForeign, CacheNotStorable, ConversationOver
from rotatek.inputs.messages import Message
from rotatek.inputs.prompt import encode_follow_up, encode_text, expand_images
from rotatek.inputs.request import Asked
from rotatek.inspect.answer_attention import AnswerAttentionRecorder
from rotatek.inspect.trace import TraceRecorder
from rotatek.methods.settings import Settings
from rotatek.models import Embedded, Prompt, VisionLanguageModel
from rotatek.models.base import Pixels


@dataclass(frozen=True)
class SavedConversation:
    """What a stored conversation needs beside its cache: a resting column's own, and its prompt."""

    name: str
    rows: int
    asked: int
    first_position: Tensor
    parted: bool
    tokens: list[int]
    embedded: Embedded
    prompt: Prompt
    turns: int


@dataclass
class RunningColumn:
    """One setting's run: its cache, its decoder, and what it has said since the last question."""

    name: str
    settings: Settings
    cache: Cache
    plan: TokenPlan
    embedded: Embedded
    recorder: TraceRecorder | None
    prefill_ms: float  # so far the vision tower's share
    attention: AnswerAttentionRecorder | None = None
    parted: bool = False  # an earlier answer differed from the first column's
    seat: Seat | None = None  # its row in the running batch
    tokens: list[int] = field(default_factory=list)
    read: int = 0  # of them, whose text has been told
    step_ms: list[float] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    log_probability: float = 0.0  # of all tokens, in nats
    added: tuple[int, int] = (0, 0)  # visual tokens of later turns, and those a pruner has kept

    def __post_init__(self) -> None:
        self.rows = self.embedded.embeds.shape[1]  # an encoder-stage pruner leaves fewer
        self.asked = self.rows  # logical length of the cache when the last question had been fed
        self.first_position = self.embedded.next_position

    def bytes(self) -> ByteCount:
        """Live bytes of this column's cache."""
        return cache_bytes(self.cache)

    @property
    def grown(self) -> int:
        """Tokens in the cache since the first prompt."""
        return int(self.cache.get_seq_length()) - self.rows

    @property
    def watchers(self) -> list[Watcher]:
        """What sees this column's queries while it answers."""
        seen: list[Watcher] = [] if self.recorder is None else [self.recorder.step]
        return seen if self.attention is None else [*seen, self.attention.see]

    def begin(self, prefill_ms: float) -> None:
        """Forget what was said: another question has been fed, in `prefill_ms`."""
        self.prefill_ms, self.asked = prefill_ms, int(self.cache.get_seq_length())
        self.tokens, self.read, self.step_ms, self.kl = [], 0, [], []
        self.log_probability = 0.0

    def observe_token(self, turn: Prompt, placed: Embedded) -> None:
        """Count a further turn's pictures; `placed` is the turn where it stands in the cache.

        Positions may grow by less than tokens do, and a pruner may have left tokens out: what the
        counts start from moves, so that they go on from here. The overlay of where the column looks
        knows the first prompt's pictures only, and ends.
        """
        self.rows -= turn.ids.shape[1] - placed.embeds.shape[1]
        self.first_position = placed.next_position - self.grown
        self.embedded = replace(self.embedded, next_position=placed.next_position)
        kept = int(placed.visual.sum())
        if isinstance(self.cache, RotateKCache):
            kept = self.cache.plan.visual_kept
        self.added = self.added[0] + turn.visual_tokens, self.added[1] + kept
        self.attention = None

    def rest(self) -> None:
        """Keep the cache and what a follow-up question needs; let the prompt's tensors go."""
        self.seat = self.recorder = None
        if isinstance(self.cache, RotateKCache):
            self.cache.make_growing()
        whole = self.embedded
        self.embedded = replace(
            whole,
            embeds=whole.embeds[:, :0].clone(),
            positions=whole.positions[..., :0].clone(),
            visual=whole.visual[:, :0].clone(),
            valid=whole.valid[:, :0].clone(),
            deeper=None,
        )

    def stop_watching(self) -> None:
        """Drop recorders that have missed a step: what they would show is not where it was."""
        if self.seat is not None and self.seat.blind:
            self.recorder = self.attention = None

    def close(self) -> None:
        """Let go of every tensor."""
        self.seat = None
        release(self.cache)


@dataclass
class Conversation:
    """Caches that outlive their request. Not for two threads at once.

    prompt: the first request's, without pixels; turns: questions answered so far; lease: its share
    of the memory for caches.
    """

    columns: list[RunningColumn] = field(default_factory=list)
    prompt: Prompt | None = None
    turns: int = 0
    lease: MemoryReservation | None = None

    def hold(
        self,
        columns: Sequence[RunningColumn],
        prompt: Prompt,
        lease: MemoryReservation | None = None,
    ) -> None:
        """Take over finished columns, the prompt they answered, and the memory they are let."""
        self.columns = list(columns)
        self.prompt = replace(prompt, pixels=replace(prompt.pixels, tensors={}))
        self.turns += 1
        for column in self.columns:
            column.parted = column.parted or column.tokens != self.columns[0].tokens
            column.rest()
        self.lease = lease
        if lease is not None:
            lease.rest(self.cache_bytes)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write a conversation of one compressed column to a file, for `load`.

        Args:
            path: where; a file that is there is replaced when the new one is complete.

        Returns:
            the file's bytes.

        Raises:
            CacheNotStorable: where nothing is compressed, or there are several columns.
            UserError: as `RotateKCache.save`.
        """
        if len(self.columns) != 1 or self.prompt is None:
            raise CacheNotStorable
        (column,) = self.columns
        if not isinstance(column.cache, RotateKCache):
            raise CacheNotStorable
        own: dict[str, Any] = {
            one.name: getattr(column, one.name, None) for one in fields(SavedConversation)
        }
        beside = SavedConversation(**own | {"prompt": self.prompt, "turns": self.turns})
        return column.cache.save(path, beside)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], vlm: VisionLanguageModel, **paths: str
    ) -> "Conversation":
        """A conversation as `save` wrote it: the image need not be read again.

        Args:
            path: of the file.
            vlm: the model that filled it.
            paths: as `RotateKCache.load` takes them.

        Raises:
            UserError: as `RotateKCache.load`; and for a cache without a conversation.
        """
        cache = RotateKCache.load(path, vlm.model, SavedConversation, **paths)
        told = cache.notes
        if not isinstance(told, SavedConversation):
            raise CacheFileForeign(
                "This stored cache has no conversation beside it. Load it in a program, with "
                "`RotateKCache.load`."
            )
        column = RunningColumn(
            told.name, cache.settings, cache, cache.plan, told.embedded, None, 0.0
        )
        column.rows, column.asked = told.rows, told.asked
        column.first_position, column.parted = told.first_position, told.parted
        column.tokens = told.tokens
        return cls([column], told.prompt, told.turns)

    @property
    def is_open(self) -> bool:
        """Whether there is a cache to go on from."""
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
        """Let the last answer of the only column end after so many tokens.

        Args:
            tokens: of which the cache has read all, and none that follows.

        Returns:
            Whether that is so; otherwise the conversation is as it was.
        """
        (column,) = self.columns
        if not isinstance(column, RunningColumn):  # a replica holds it
            return False
        if int(column.cache.get_seq_length()) - column.asked > tokens:
            return False
        del column.tokens[tokens:]
        return True

    def close(self) -> None:
        """Let go of every tensor; nothing can be asked after that."""
        for column in self.columns:
            column.close()
        self.columns, self.prompt = [], None
        if self.lease is not None:
            self.lease.release()


def check_room(conversation: Conversation, tokens: int, turns: int, limit: int | None) -> None:
    """Refuse a question beyond either limit.

    Args:
        conversation: what has been said so far.
        tokens: of the question and of its longest answer.
        turns: the most questions of a conversation.
        limit: the most tokens of a conversation, or None where there is no limit.

    Raises:
        ConversationOver: in a sentence that says what to do.
    """
    if conversation.turns >= turns or (limit is not None and conversation.tokens + tokens > limit):
        raise ConversationOver


def turn_of(
    vlm: VisionLanguageModel, question: Asked, pictures: Sequence[Image.Image] = ()
) -> Prompt:
    """A follow-up question as the model reads it: from the end of an answer to the next one's.

    Args:
        vlm: the model.
        question: clean text, before which pictures are shown, or texts and their places.
        pictures: what is shown with it, after the pictures of earlier turns.
    """
    pixels = vlm.preprocess(pictures) if pictures else Pixels({}, (), (), (), ())
    template = vlm.tokenizer.chat_template or vlm.template
    ids = encode_follow_up(vlm.tokenizer, question, template, pixels.texts, vlm.placeholder)
    tensor = torch.tensor([expand_images(ids, vlm.visual_ids, pixels.runs)], device=vlm.device)
    words = question if isinstance(question, str) else Message("user", question).text
    asked = encode_text(vlm.tokenizer, words)
    return Prompt(
        tensor,
        is_one_of(tensor, vlm.visual_ids),
        pixels,
        torch.tensor(asked, dtype=torch.long, device=vlm.device),
    )


def feed_follow_up(
    vlm: VisionLanguageModel, column: RunningColumn, turn: Prompt, seen: Embedded | None = None
) -> Tensor:
    """Feed what the cache has not seen of the last answer, then a question.

    Args:
        vlm: the model.
        column: whose cache grows; it is ready to decode afterwards.
        turn: of `turn_of`.
        seen: the turn embedded, where it shows something.

    Returns:
        Next-token logits [1, vocabulary] in float32.
    """
    unseen = column.tokens[int(column.cache.get_seq_length()) - column.asked :]
    if isinstance(column.cache, RotateKCache):
        column.cache.make_growing()
    start = column.first_position + column.grown
    if seen is not None:
        ids = torch.tensor([unseen], device=vlm.device, dtype=torch.long)
        if unseen:
            feed(vlm, ids, start, column.cache)
        logits, placed, ms = feed_turn(vlm, seen, start + len(unseen), column.cache)
        column.observe_token(turn, placed)
    else:
        ids = torch.tensor([[*unseen, *turn.ids[0].tolist()]], device=vlm.device)
        logits, ms = feed(vlm, ids, start, column.cache)
        column.embedded = replace(column.embedded, next_position=start + ids.shape[1])
    column.begin(ms)
    return logits
