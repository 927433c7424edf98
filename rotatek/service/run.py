"""One comparison as it unfolds: engine events in, its columns' records out."""

import secrets
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from rotatek.engine.conversation import Conversation
from rotatek.engine.events import Answer, Event, Queued, Restarted
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.inspect.trace import Trace
from rotatek.methods.settings import Settings


@dataclass
class Run:
    """One question on one image under several settings, baseline first."""

    columns: dict[str, Answer]
    pixels: np.ndarray  # uint8 [height, width, 3]
    question: str
    model: str = "pocket"  # by its name on offer
    max_new_tokens: int = 64
    stopped: bool = False
    superseded: bool = False  # stopped because its visitor asked again
    notice: str = ""  # what the visitor should know of how it was answered
    memory: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    key: str = field(default_factory=lambda: secrets.token_hex(8))
    talk: Conversation | None = field(default=None, repr=False)  # where its caches go, if kept
    goes_on: bool = False  # they wait for a follow-up question
    place: int = 0  # in the queue for memory; 0 where it is free
    previous: "Run | None" = None  # the turn before, in a conversation
    pictures: Sequence[Image.Image] = field(default=(), repr=False)  # all that were asked about
    sampling: Sampling = GREEDY  # with a seed where tokens are drawn

    def remember(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """`make()`, computed once: for slow results that do not change with the sliders."""
        if key not in self.memory:
            self.memory[key] = make()
        return self.memory[key]

    def recall(self, earlier: "Run") -> None:
        """Take over the measured damage of heads, where the uncompressed answer is the same."""
        alike = all(
            getattr(self, name) == getattr(earlier, name) for name in ("model", "question")
        ) and (self.reference.ids == earlier.reference.ids)
        if alike and np.array_equal(self.pixels, earlier.pixels):
            measured = (key for key in earlier.memory if isinstance(key, tuple))
            self.memory |= {key: earlier.memory[key] for key in measured if key[0] == "damage"}

    def take(self, event: Event) -> None:
        """Hand one engine event to its column, or a failure to those still waiting."""
        self.place = event.place if isinstance(event, Queued) else 0
        if isinstance(event, Queued):
            return
        if isinstance(event, Restarted):
            self.notice = event.message
            self.columns = {n: Answer(n, c.settings) for n, c in self.columns.items()}
            return
        if event.column is not None:
            self.columns[event.column].take(event)
            return
        for column in self.columns.values():
            if column.finished is None:
                column.take(event)

    @property
    def reference(self) -> Answer:
        """The uncompressed column."""
        return next(iter(self.columns.values()))

    @property
    def chosen(self) -> Answer:
        """The column that the visitor's settings made: the one after the baseline."""
        return list(self.columns.values())[min(1, len(self.columns) - 1)]

    @property
    def trace(self) -> Trace | None:
        """The trace of the column that was recorded, or None while there is none."""
        done = [column.finished for column in self.columns.values() if column.finished]
        own = next((event.trace for event in done if event.trace is not None), None)
        return self.previous.trace if own is None and self.previous is not None else own

    @property
    def turns(self) -> "list[Run]":
        """The complete conversation, this run last."""
        return [*(self.previous.turns if self.previous is not None else []), self]

    def next(self, question: str, max_new_tokens: int, sampling: Sampling = GREEDY) -> "Run":
        """The turn that follows, of which nothing has happened yet."""
        columns = {title: Answer(title, c.settings) for title, c in self.columns.items()}
        return Run(
            columns, self.pixels, question, self.model, max_new_tokens, memory=self.memory,
            previous=self, pictures=self.pictures, sampling=sampling,
        )  # fmt: skip


def start(
    columns: dict[str, Settings], pixels: np.ndarray, question: str, model: str = "pocket"
) -> Run:
    """A run of which nothing has happened yet."""
    return Run({title: Answer(title, s) for title, s in columns.items()}, pixels, question, model)
