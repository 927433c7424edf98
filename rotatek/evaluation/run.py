"""Answering a suite under many settings, in few and large pieces of work.

A batch of questions is encoded once. One prefill serves every setting that drops the same tokens,
and the caches of all settings are decoded side by side (`rotatek.evaluation.stack`). What was
answered is in a journal, so an interrupted run continues where it stopped.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache

from rotatek import recovery
from rotatek.cache.compressed import RotateKCache, cache_bytes, release
from rotatek.cache.shared import SharedPrefill
from rotatek.compare.prefill import by_pruning, empty_caches, plan_for
from rotatek.decode import decode, prefill
from rotatek.errors import UserError
from rotatek.evaluation.batch import Asked
from rotatek.evaluation.journal import Answer, Journal, setting_id
from rotatek.evaluation.stack import Stack, answers
from rotatek.evaluation.suite import LONG_TOKENS, SHORT_TOKENS, Item, Suite
from rotatek.inputs import Request
from rotatek.models import VisionLanguageModel
from rotatek.models.base import collate
from rotatek.models.memory import free_bytes, is_out_of_memory
from rotatek.settings import Settings

CACHES: Final = 40  # decoded side by side, at most
MEMORY: Final = 4  # one part in four of what is free is for them

Unit = tuple[list[Item], list[Settings]]  # a batch of questions, and what it is asked under


class Runner:
    """Answers a suite's questions with one model.

    suffix: appended to every question, e.g. " Answer with a single word or phrase."
    limits: new tokens of a short answer, and of a page; graph: replay steps as CUDA graphs.
    notice: told once of every setting that this model or version does not support.
    """

    def __init__(
        self,
        vlm: VisionLanguageModel,
        suite: Suite,
        journal: Journal,
        *,
        batch: int,
        suffix: str = "",
        limits: tuple[int, int] = (SHORT_TOKENS, LONG_TOKENS),
        graph: bool = False,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.vlm, self.suite, self.journal = vlm, suite, journal
        self.batch, self.suffix, self.limits, self.graph = batch, suffix, limits, graph
        self.notice = notice
        self.refused: dict[str, str] = {}
        self.eager: set[str] = set()  # settings whose steps a graph cannot hold

    def missing(self, wanted: Sequence[tuple[Settings, str]]) -> list[tuple[Item, list[Settings]]]:
        """Unanswered questions, pages last, each with the settings that still owe an answer."""
        todo = []
        for item in sorted(self.suite.items, key=lambda item: (item.long, item.document)):
            owed = [
                settings
                for settings, scope in wanted
                if (scope == "all" or item.long)
                and (setting_id(settings), item.name) not in self.journal.answers
            ]
            if owed:
                todo.append((item, owed))
        return todo

    def units(
        self, wanted: Sequence[tuple[Settings, str]], part: tuple[int, int] = (0, 1)
    ) -> list[Unit]:
        """What is missing, in batches: short questions first, pages last.

        part: (i, n) is the i-th of n equal shares, for n processes side by side: of the questions,
        or of the settings where there are fewer questions than processes. A batch has all its
        answers before the next begins, so a run cut short leaves questions that are complete. Each
        process begins with other settings, so that no two compile the same kernels.
        """
        index, count = part
        found = [
            unit
            for items, owed in _alike(self.missing(wanted))
            for unit in _cut(items, owed, self.batch, count)
        ]
        loads, mine = [0] * count, []
        for items, owed in found:
            lightest = loads.index(min(loads))
            loads[lightest] += size([(items, owed)]) * self._limit(items)
            if lightest == index:
                first = len(owed) * index // count
                mine.append((items, owed[first:] + owed[:first]))
        return mine

    def run(self, units: Sequence[Unit]) -> Iterator[int]:
        """Answer `units`; yields how many answers each step added or gave up."""
        for items, owed in units:
            asked = Asked(self.vlm, self.suite, items, self.suffix, self._limit(items))
            for group in self._stacks(asked, owed):
                self._answer(asked, group)
                yield size([(items, group)])

    def _stacks(self, asked: Asked, owed: Sequence[Settings]) -> list[list[Settings]]:
        """Settings to be decoded side by side; those that drop the same tokens are neighbours."""
        tokens = asked.whole.valid.numel() + len(asked.items) * asked.limit
        room = free_bytes(str(self.vlm.device)) // MEMORY // self.vlm.full_bytes(tokens)
        many = max(1, min(CACHES, room))
        stacks = []
        for slow in (False, True):
            chosen = [s for s in owed if (setting_id(s) in self.eager) == slow]
            ordered = [settings for group in by_pruning(chosen) for settings in group]
            stacks += _even(ordered, -(-len(ordered) // many))
        return stacks

    def _answer(self, asked: Asked, group: list[Settings]) -> None:
        """Write down what a group of settings answers; in halves where it does not go together."""
        group = [settings for settings in group if self._is_owed(settings, asked.items)]
        try:
            self._answer_group(asked, group)
            return
        except Exception as error:
            if not self._is_worth_another_try(error, group):
                raise
        recovery.free(self.vlm.device)  # outside the handler: the error held what did not fit
        left = [settings for settings in group if self._is_owed(settings, asked.items)]
        for half in _even(left, min(2, len(left))):
            self._answer(asked, half)

    def _is_worth_another_try(self, error: Exception, group: list[Settings]) -> bool:
        """Always, in halves, for several settings; a single one is refused or loses its graph."""
        if len(group) > 1:
            return True
        name = setting_id(group[0])
        if isinstance(error, UserError):
            self.refused[name] = error.message
            self.notice(f"Left out: {error.message}")
            return True
        graphed = self.graph and name not in self.eager and isinstance(error, RuntimeError)
        if graphed and not is_out_of_memory(error):
            self.eager.add(name)
            self.notice(f"Without a CUDA graph ({type(error).__name__}): {group[0]}")
            return True
        return False

    def _is_owed(self, settings: Settings, items: Sequence[Item]) -> bool:
        """Whether a setting is neither refused nor answered."""
        name = setting_id(settings)
        answered = all((name, item.name) in self.journal.answers for item in items)
        return name not in self.refused and not answered

    def _answer_group(self, asked: Asked, group: list[Settings]) -> None:
        """Prefill what drops the same tokens together, then decode all of it side by side."""
        filled: list[tuple[Settings, RotateKCache, float]] = []
        logits: list[Tensor] = []
        try:
            for alike in by_pruning(group):
                caches, first = self._fill(asked, alike)
                for settings, cache in zip(alike, caches, strict=True):
                    share = cache_bytes(cache).total / asked.full_bytes
                    if isinstance(cache, RotateKCache):
                        filled.append((settings, cache, share))
                        logits.append(first)
                    else:
                        self._uncompressed(asked, settings, cache, first, share)
            if filled:
                self._side_by_side(asked, filled, torch.cat(logits))
        finally:
            for _, cache, _ in filled:
                release(cache)

    def _fill(self, asked: Asked, alike: list[Settings]) -> tuple[list[Cache], Tensor]:
        """Caches that one prefill filled, and its logits."""
        model, (embedded, layout) = self.vlm.model, asked.under(alike[0])
        inputs = embedded.inputs()
        plan = plan_for(model, inputs, alike[0].pruning, layout)
        caches = empty_caches(model, inputs, alike, plan, self.vlm.metrics)
        logits, _ = prefill(self.vlm, embedded, SharedPrefill(plan, caches, timed=False))
        return caches, logits

    def _uncompressed(
        self, asked: Asked, settings: Settings, cache: Cache, logits: Tensor, share: float
    ) -> None:
        """The reference decodes by itself, on transformers' own cache and attention."""
        steps = [s.tokens for s in decode(self.vlm, asked.whole, cache, logits, asked.limit)]
        self._write(asked, settings, _said(self.vlm, steps), share)
        release(cache)

    def _side_by_side(
        self, asked: Asked, filled: list[tuple[Settings, RotateKCache, float]], logits: Tensor
    ) -> None:
        """Decode filled caches; each setting's answers are written as its last one ends."""
        stack = Stack([cache for _, cache, _ in filled])
        for _, cache, _ in filled:
            release(cache)
        position = asked.whole.next_position.repeat(len(filled))
        graph = (
            self.graph
            and self.vlm.device.type == "cuda"
            and not any(setting_id(s) in self.eager for s, _, _ in filled)
        )
        for part, said in answers(self.vlm, stack, logits, position, asked.limit, graph=graph):
            settings, _, share = filled[part]
            self._write(asked, settings, said, share)

    def _limit(self, items: Sequence[Item]) -> int:
        return self.limits[any(item.long for item in items)]

    def _write(
        self, asked: Asked, settings: Settings, said: Sequence[list[int]], share: float
    ) -> None:
        """Tokens of each question as texts, into the journal."""
        name = setting_id(settings)
        self.journal.add(
            Answer(name, item.name, _text(self.vlm, tokens), len(tokens), share)
            for item, tokens in zip(asked.items, said, strict=True)
        )


def size(units: Iterable[Unit]) -> int:
    """How many answers there are to give."""
    return sum(len(items) * len(group) for items, group in units)


def _text(vlm: VisionLanguageModel, tokens: Sequence[int]) -> str:
    return vlm.tokenizer.decode(tokens, skip_special_tokens=True).strip()


def _said(vlm: VisionLanguageModel, rows: list[list[int]]) -> list[list[int]]:
    """Steps [T][B], -1 behind an end, as each sample's own tokens without that end."""
    return [
        [t for t in column if t >= 0 and t not in vlm.stop_ids]
        for column in zip(*rows, strict=True)
    ]


def generate(
    vlm: VisionLanguageModel, requests: Sequence[Request], settings: Settings
) -> list[str]:
    """Answers of one padded batch, outside of any suite. All requests have the same limit."""
    embedded = collate([vlm.embed(vlm.prompt(request), settings.pruning) for request in requests])
    cache: Cache = DynamicCache()
    if not settings.is_baseline:
        cache = RotateKCache(vlm.model, embedded.inputs(), settings)
    try:
        logits, _ = prefill(vlm, embedded, cache)
        steps = decode(vlm, embedded, cache, logits, requests[0].max_new_tokens)
        said = _said(vlm, [step.tokens for step in steps])
    finally:
        release(cache)
    return [_text(vlm, tokens) for tokens in said]


def _alike(
    todo: list[tuple[Item, list[Settings]]],
) -> list[tuple[list[Item], list[Settings]]]:
    """Neighbours of one length that owe the same settings."""
    found: list[tuple[list[Item], list[Settings]]] = []
    for item, owed in todo:
        if found and found[-1][1] == owed and found[-1][0][0].long == item.long:
            found[-1][0].append(item)
        else:
            found.append(([item], owed))
    return found


def _cut(items: list[Item], owed: list[Settings], batch: int, parts: int) -> list[Unit]:
    """Batches of at most `batch`, as many for every one of `parts`."""
    many = -(-len(items) // batch)
    if len(items) >= parts:
        many = min(len(items), -(-many // parts) * parts)
        return [(some, owed) for some in _even(items, many)]
    shares = _even(owed, min(parts, len(owed)))
    return [(some, share) for some in _even(items, many) for share in shares]


def _even(things: Sequence[Any], parts: int) -> list[list[Any]]:
    """Cut into `parts` runs whose lengths differ by one at most."""
    bounds = [len(things) * part // parts for part in range(parts + 1)] if parts else []
    return [list(things[start:end]) for start, end in pairwise(bounds)]
