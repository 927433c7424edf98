"""Answers a suite under many settings, in a few large batches.

A batch of questions is encoded once. One prefill serves every setting that drops the same tokens,
and the caches of all settings are decoded side by side (`rotatek.engine.rows`). What was
answered is in a journal, so an interrupted run continues where it stopped.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Final, NamedTuple, TypeVar

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.cache.rotatek_cache import RotateKCache, release
from rotatek.engine import recovery
from rotatek.engine.decode import decode
from rotatek.engine.dialogues import converse_caches, converse_plain
from rotatek.engine.event_builder import text_of
from rotatek.engine.prefill import by_pruning, empty_cache, fill, plan_for
from rotatek.engine.rows import decode_caches
from rotatek.errors import UserError
from rotatek.evaluation.chains import FIRST, answered_by
from rotatek.evaluation.generate import by_sample
from rotatek.evaluation.journal import Answer, Notes, setting_id
from rotatek.evaluation.question_batch import QuestionBatch
from rotatek.evaluation.suite import LONG_TOKENS, SHORT_TOKENS, Item, Suite
from rotatek.evaluation.work_batches import Unit, Wanted, batches, even, missing, of_part
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings
from rotatek.models import VisionLanguageModel
from rotatek.models.memory import is_out_of_memory, share_bytes

ROWS: Final = 2560  # decoded side by side, at most: questions times settings
CACHES: Final = 2 / 3  # of a process's share of a GPU; the rest is for pictures and prefills
HOST: Final = 1 / 12  # of a host's free memory, for caches
TOKENS: Final = 1 << 16  # of a batch of questions, about, for a model of this width ...
WIDTH: Final = 2048  # ... and more of them for a narrower one
WAITS_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0)  # for memory of a GPU that other processes hold
T = TypeVar("T")


@dataclass(frozen=True)
class RunOptions:
    """How a suite is asked, whatever the settings.

    Args:
        batch: questions at once; None is 128 on a GPU, fewer where prompts are long, 8 elsewhere.
        suffix: appended to every question, e.g. " Answer with a single word or phrase."
        limits: new tokens of a short answer, and of a page.
        graph: replay steps as CUDA graphs.
        ask: one of `rotatek.evaluation.chains.ASKS`: each question for itself, or on the cache that
            a picture's first question, or a neutral one, has left.
        sharing: processes that share the GPU.
    """

    batch: int | None = None
    suffix: str = ""
    limits: tuple[int, int] = (SHORT_TOKENS, LONG_TOKENS)
    graph: bool = False
    ask: str = FIRST
    sharing: int = 1


class Filled(NamedTuple):
    """A filled cache, and of each of its prompts the share of the bytes of an uncompressed one."""

    settings: Settings
    cache: RotateKCache
    kv_shares: list[float]


class Runner:
    """Answers a suite's questions with one model.

    Args:
        vlm: the model.
        suite: the questions.
        journal: where answers go; what it holds is not asked again.
        options: how they are asked.
        notice: called once for every setting that this model or version does not support.

    Attributes:
        refused: sentences by settings that could not be answered.
        left_out: sentences by names of questions that cannot be asked.
        eager: settings whose steps a graph cannot hold.
    """

    def __init__(
        self,
        vlm: VisionLanguageModel,
        suite: Suite,
        journal: Notes,
        options: RunOptions | None = None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.vlm, self.suite, self.journal = vlm, suite, journal
        self.options, self.notice = options or RunOptions(), notice
        self.on_gpu = vlm.device.type == "cuda"
        self.batch = self.options.batch or (128 if self.on_gpu else 8)
        self.graph = self.options.graph and self.on_gpu
        self.turn = 0.0  # where among a batch's groups of settings this process begins
        self.refused: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.eager: set[str] = set()

    def units(self, wanted: Wanted, part: tuple[int, int] = (0, 1)) -> list[Unit]:
        """What is missing, in batches.

        Args:
            wanted: settings, and which questions they are asked.
            part: number and count of parts (`of_part`); what others ask is left out.
        """
        self.turn = part[0] / part[1]
        todo = missing(self.suite.items, wanted, self.journal.answers)
        todo = of_part(todo, self.suite.items, wanted, *part)
        if not todo:
            return []
        area = self._areas([item for item, _ in todo])
        todo = [(item, owed) for item, owed in todo if item.document in area]
        items = sorted((item for item, _ in todo), key=lambda item: area[item.document])
        batch = self._fitting(items[len(items) // 2])

        def size(item: Item) -> tuple[int, int]:  # questions about one picture are neighbours
            return area[item.document], item.document

        return list(batches(todo, batch, size))

    def _areas(self, items: Sequence[Item]) -> dict[int, int]:
        """Pixels of each document, which is opened once; questions about others are left out.

        Raises:
            UserError: where no picture can be read.
        """
        area: dict[int, int] = {}
        faults: dict[int, UserError] = {}
        for item in items:
            if item.document not in area and item.document not in faults:
                try:
                    area[item.document] = prod(self.suite.image(item.document).size)
                except UserError as error:
                    faults[item.document] = error
            if item.document in faults:
                self._leave_out(item, faults[item.document])
        if faults and not area:
            raise next(iter(faults.values()))
        return area

    def _leave_out(self, item: Item, error: UserError) -> None:
        self.left_out[item.name] = f"{item.name} of {self.suite.name}: {error.message}"
        self.notice(f"Left out: {self.left_out[item.name]}")

    def _asked(self, unit: Unit) -> Iterator[QuestionBatch]:
        """A unit's questions as the model reads them; one that it cannot be asked is left out."""
        given = self.vlm, self.suite, unit.items, self.options.suffix, self.options.limits
        try:
            yield self._patient(partial(QuestionBatch, *given, unit.long))
            return
        except UserError as error:
            if len(unit.items) == 1:
                self._leave_out(unit.items[0], error)
                return
        for part in even(unit.items, 2):
            yield from self._asked(Unit(part, unit.owed))

    def _fitting(self, typical: Item) -> int:
        """Questions at once: as the options say, or by the prompt length of a typical question."""
        if self.options.batch is not None:
            return self.batch
        request = make_request(self.suite.image(typical.document), typical.question, 1)
        tokens = self.vlm.prompt(request).visual_tokens
        most = TOKENS * max(1, WIDTH // self.vlm.text_config.hidden_size)
        return max(1, min(self.batch, most // max(1, tokens)))

    def run(self, units: Sequence[Unit]) -> Iterator[int]:
        """Answer `units`; yields how many answers each step added or gave up."""
        for unit in units:
            left = unit.answers
            for batch in self._asked(unit):
                for group in self._groups(batch, unit.owed):
                    self._answer(batch, group)
                    done = Unit(list(batch.items), group).answers
                    left -= done
                    yield done
            if left:  # of questions that cannot be asked
                yield left
            if self.on_gpu:
                recovery.free(self.vlm.device)  # for other processes' pictures and prefills

    def _patient(self, work: Callable[[], T]) -> T:
        """The result of `work`, tried again a little later where other processes hold the GPU's
        memory."""
        for seconds in WAITS_S if self.on_gpu else ():
            try:
                return work()
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            recovery.free(self.vlm.device)  # outside the handler: the error held what did not fit
            time.sleep(seconds)
        return work()

    def _groups(self, batch: QuestionBatch, owed: Sequence[Settings]) -> list[list[Settings]]:
        """Settings to be decoded side by side; those that drop the same tokens are neighbours."""
        tokens = batch.whole.valid.numel() + len(batch.items) * batch.room
        share = share_bytes(self.vlm.device, self.options.sharing)
        memory = share * (CACHES if self.on_gpu else HOST)
        room = int(memory / self.vlm.full_bytes(tokens, len(batch.items)))
        many = max(1, min(ROWS // len(batch.items), room))
        groups = []
        for slow in (False, True):
            chosen = [s for s in owed if (setting_id(s) in self.eager) == slow]
            ordered = [settings for alike in by_pruning(chosen) for settings in alike]
            groups += even(ordered, -(-len(ordered) // many))
        first = int(self.turn * len(groups))  # each part compiles the kernels of others first
        return groups[first:] + groups[:first]

    def _answer(self, batch: QuestionBatch, group: list[Settings]) -> None:
        """Answer a group of settings and write the answers down; in halves where it is too
        large."""
        group = [settings for settings in group if self._is_owed(settings, batch.items)]
        ask = partial(self._answer_group, batch, group)
        try:
            if len(group) > 1:
                ask()
            else:
                self._patient(ask)
            return
        except Exception as error:
            if not self._is_worth_another_try(error, group):
                raise
        recovery.free(self.vlm.device)
        left = [settings for settings in group if self._is_owed(settings, batch.items)]
        for half in even(left, min(2, len(left))):
            self._answer(batch, half)

    def _is_worth_another_try(self, error: Exception, group: list[Settings]) -> bool:
        """Always, in halves, for several settings; a single one is refused or loses its graph."""
        if len(group) > 1:
            return True
        name = setting_id(group[0])
        if isinstance(error, UserError):
            self.refused[name] = error.message
            self.notice(f"Left out: {error.message}")
            return True
        graphed = self.options.graph and name not in self.eager and isinstance(error, RuntimeError)
        if graphed and not is_out_of_memory(error):
            self.eager.add(name)
            self.notice(f"Without a CUDA graph ({type(error).__name__}): {group[0]}")
            return True
        if isinstance(error, NotImplementedError):  # of this device or version of PyTorch
            self.refused[name] = "This device cannot compute it."
            self.notice(f"Left out, since this device cannot compute it: {group[0]}")
            return True
        return False

    def _is_owed(self, settings: Settings, items: Sequence[Item]) -> bool:
        """Whether a setting is neither refused nor answered."""
        name = setting_id(settings)
        answered = all((name, item.name) in self.journal.answers for item in items)
        return name not in self.refused and not answered

    def _answer_group(self, batch: QuestionBatch, group: list[Settings]) -> None:
        """Prefill what drops the same tokens together, then decode all of it side by side."""
        filled: list[Filled] = []
        logits: list[Tensor] = []
        try:
            for alike in by_pruning(group):
                caches, first = self._fill(batch, alike)
                for settings, cache in zip(alike, caches, strict=True):
                    if isinstance(cache, RotateKCache):
                        filled.append(Filled(settings, cache, batch.shares(cache)))
                        logits.append(first)
                    else:
                        self._answer_uncompressed(batch, settings, cache, first)
            if filled:
                self._side_by_side(batch, filled, torch.cat(logits))
        finally:
            for one in filled:
                release(one.cache)

    def _fill(self, batch: QuestionBatch, alike: list[Settings]) -> tuple[list[Cache], Tensor]:
        """Caches that one prefill filled, and its logits."""
        embedded, layout = batch.under(alike[0].pruning)
        plan = plan_for(self.vlm, embedded, alike[0].pruning, layout, alike[0].asks_generally)
        caches = [empty_cache(self.vlm, embedded, settings, plan) for settings in alike]
        logits, _ = fill(self.vlm, embedded, plan, caches, timed=False)
        return caches, logits

    def _answer_uncompressed(
        self, batch: QuestionBatch, settings: Settings, cache: Cache, logits: Tensor
    ) -> None:
        """The reference decodes by itself, on transformers' own cache and attention."""
        shares, dialogues = batch.shares(cache), batch.dialogues()
        if dialogues is not None:
            converse_plain(self.vlm, batch.whole, cache, logits, dialogues)
            self._write(batch, settings, [one.said for one in dialogues], shares)
        else:
            steps = [s.tokens for s in decode(self.vlm, batch.whole, cache, logits, batch.limit)]
            rows = by_sample(self.vlm, steps)
            self._write(batch, settings, [[tokens] for tokens in rows], shares)
        release(cache)

    def _side_by_side(self, batch: QuestionBatch, filled: list[Filled], logits: Tensor) -> None:
        """Decode filled caches; each setting's answers are written as its last one ends."""
        position = batch.whole.next_position.repeat(len(filled))
        graph = self.graph and not any(setting_id(one.settings) in self.eager for one in filled)
        caches = [one.cache for one in filled]
        talks = [batch.dialogues() for _ in filled]
        known = [one for one in talks if one is not None]
        if known:
            for part in converse_caches(self.vlm, caches, logits, position, known, graph=graph):
                rows = [one.said for one in known[part]]
                self._write(batch, filled[part].settings, rows, filled[part].kv_shares)
            return
        said = decode_caches(self.vlm, caches, logits, position, batch.limit, graph=graph)
        for part, each in said:
            rows = [[tokens] for tokens in each]
            self._write(batch, filled[part].settings, rows, filled[part].kv_shares)

    def _write(
        self,
        batch: QuestionBatch,
        settings: Settings,
        rows: Sequence[list[list[int]]],
        shares: Sequence[float],
    ) -> None:
        """Each question's new tokens, as texts, into the journal; of a chain every answer's."""
        name = setting_id(settings)
        self.journal.add(
            Answer(name, one.name, text_of(self.vlm, tokens).strip(), len(tokens), share)
            for item, said, share in zip(batch.items, rows, shares, strict=True)
            for one, tokens in zip(answered_by(item), said, strict=True)
            if one is not None
        )
