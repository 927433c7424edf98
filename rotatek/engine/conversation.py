"""Conversations: finished answers whose caches stay for follow-up questions.

A request owns its caches and closes them. A `Conversation` is the one exception: the caller that
passes it to `Engine.compare` owns its caches, and closes it. A follow-up question feeds only its
own tokens; each column continues from its own compressed cache, and the image is not read again.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine.admission import MemoryReservation
from rotatek.engine.column import Column
from rotatek.engine.decode import feed
from rotatek.errors import CacheFileForeign, CacheNotStorable
from rotatek.inputs.prompt import encode_follow_up
from rotatek.inputs.request import Asked
from rotatek.models import Prompt, VisionLanguageModel
from rotatek.models.base import NOTHING_SHOWN


@dataclass(frozen=True)
class SavedConversation:
    """The content of a stored conversation besides its cache: its column, as `Column` has it, and
    its prompt."""

    name: str
    rows: int
    first_position: int
    chosen: Tensor | None
    parted: bool
    history: list[int]
    prompt: Prompt
    turns: int


@dataclass
class Conversation:
    """Caches that outlive their request. Not for two threads at once.

    prompt: the first request's, without pixels; turns: questions answered so far; lease: its share
    of the memory for caches.
    """

    columns: list[Column] = field(default_factory=list)
    prompt: Prompt | None = None
    turns: int = 0
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
            column.rest()
        self.lease = lease
        if lease is not None:
            lease.resize(self.cache_bytes, resting=True)

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
        beside = SavedConversation(
            column.name, column.rows, column.first_position, column.chosen, column.parted,
            column.history, self.prompt, self.turns,
        )  # fmt: skip
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
                "This file has a cache without a conversation. Load it in a program, with "
                "`RotateKCache.load`."
            )
        column = Column(
            told.name, cache.settings, cache, cache.plan, told.rows, told.first_position,
            told.chosen, history=told.history, parted=told.parted,
        )  # fmt: skip
        return cls([column], told.prompt, told.turns)

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
        """Let the last answer of the only column end after so many tokens.

        Args:
            tokens: of which the cache has read all, and none that follows.

        Returns:
            Whether that is so; otherwise the conversation is as it was.
        """
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


def turn_of(vlm: VisionLanguageModel, question: Asked) -> Prompt:
    """A follow-up question as the model's input: from the end of an answer to the next one's start.

    Args:
        vlm: the model.
        question: clean text, or several.
    """
    ids = encode_follow_up(vlm.tokenizer, question)
    tensor = torch.tensor([ids], device=vlm.device)
    return Prompt(tensor, torch.zeros_like(tensor, dtype=torch.bool), NOTHING_SHOWN)


def feed_follow_up(vlm: VisionLanguageModel, column: Column, turn: Prompt) -> tuple[Tensor, float]:
    """Feed the last answer's remaining tokens, then a question.

    Args:
        vlm: the model.
        column: its cache grows; it is ready to decode afterwards.
        turn: of `turn_of`.

    Returns:
        Next-token logits [1, vocabulary] in float32, and milliseconds.
    """
    if isinstance(column.cache, RotateKCache):
        column.cache.make_growing()
    unread = column.history[column.grown :]
    column.history += turn.ids[0].tolist()
    ids = torch.tensor([[*unread, *turn.ids[0].tolist()]], device=vlm.device)
    position = torch.tensor([column.position], device=vlm.device)
    return feed(vlm, ids, position, column.cache)
