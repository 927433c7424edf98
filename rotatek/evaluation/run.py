"""Asks a suite's questions through the engine, all settings of a picture in one conversation.

A picture's first question is answered afresh under every setting: those that drop the same tokens
share one prefill. Its other questions follow on the caches that the first one left. Several
conversations run at a time, and the engine decodes the rows of all of them in one step. Then the
caches of all settings read one text, that of the uncompressed cache: how far are the distributions
from which the tokens of its later answers, and their ends, were chosen?
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from rotatek.cache.rotatek_cache import release
from rotatek.engine import memory
from rotatek.engine.conversation import Column, Conversation
from rotatek.engine.engine import Engine
from rotatek.engine.events import Event, Failed, Finished, Prefilled, Restarted, Stored
from rotatek.engine.memory import MemoryReservation
from rotatek.engine.passes import forked, read_on, turn_of
from rotatek.errors import OutOfMemory, Stopped, UserError
from rotatek.evaluation.answers import Answer, append, begin
from rotatek.evaluation.suite import LONG_TOKENS, Question, Suite
from rotatek.evaluation.tables import UNCOMPRESSED
from rotatek.inputs.request import Limits, make_request
from rotatek.methods.settings import Settings
from rotatek.models import Prompt, VisionLanguageModel
from rotatek.models.memory import is_out_of_memory

BABBLE: Final = 32  # tokens beyond twice the uncompressed answer's, where others are ended
AT_ONCE: Final = {"cuda": 8}  # conversations; one on a processor, whose cores one keeps busy


class EvaluationEngine(Engine):
    """An engine that keeps what a first question has filled, and ends answers that run on."""

    def __init__(self, vlm: VisionLanguageModel, limits: Limits) -> None:
        super().__init__(vlm, limits=limits)
        self._filled: WeakKeyDictionary[Cache, Cache] = WeakKeyDictionary()

    def _pack(self, column: Column, columns: list[Column]) -> Stored:
        """Keep a copy as well, which has read the first question alone."""
        event = super()._pack(column, columns)
        if column.cache not in self._filled:
            with self.scheduler.prefill(None, packing=True):
                self._filled[column.cache] = forked(column.cache)
        return event

    def _decode(
        self, columns: list[Column], prompt: Prompt, lease: MemoryReservation | None
    ) -> Iterator[Event]:
        """End answers that run on: broken settings took the longest that was allowed."""
        for event in super()._decode(columns, prompt, lease):
            if isinstance(event, Finished) and event.column == columns[0].name:
                longest = 2 * len(columns[0].answer.ids) + BABBLE
                for row in (column.row for column in columns if column.row is not None):
                    row.limit = min(row.limit, longest)
            yield event

    def filled(self, conversation: Conversation) -> dict[str, Cache]:
        """Each column's cache as its first question filled it; handed out once."""
        return {one.name: self._filled.pop(one.cache) for one in conversation.columns}


def engine_for(vlm: VisionLanguageModel, suite: Suite) -> EvaluationEngine:
    """An engine that answers all of a picture's questions in one conversation."""
    turns = max(map(len, suite.pictures.values()))
    return EvaluationEngine(vlm, Limits(turns=turns, max_new_tokens=LONG_TOKENS))


class Divergence(NamedTuple):
    """Of one answer: mean KL(uncompressed || this) of its tokens in nats, and the share of them
    whose likeliest candidates are equal."""

    kl: float
    same_choices: float


@torch.inference_mode()
def divergences(
    vlm: VisionLanguageModel,
    caches: Mapping[str, Cache],
    position: Tensor,
    answers: Sequence[Sequence[int]],
    later: Sequence[str],
) -> dict[str, list[Divergence]]:
    """Each cache's divergence over the later answers about a picture: one for each later question.

    Args:
        vlm: the model.
        caches: as the first question has filled them, by name, the uncompressed one first; they
            read the answers, and are released.
        position: [1], of the first answer's first token.
        answers: token ids of the uncompressed cache's answers, the first one's first.
        later: the other questions.
    """
    turns = [turn_of(vlm, text).ids[0].tolist() for text in later]
    ids, spans = [*answers[0]], []
    for turn, answer in zip(turns, answers[1:], strict=True):
        ids += turn
        spans.append(slice(len(ids) - 1, len(ids) + len(answer)))  # behind the last: its end
        ids += answer
    text = torch.tensor([ids], device=vlm.device)
    whole: list[Tensor] = []
    found: dict[str, Tensor] = {}
    for name, cache in caches.items():
        logits = read_on(vlm, text, position, cache)[0]
        release(cache)
        own = [logits[span].float().log_softmax(-1) for span in spans]
        whole = whole or own
        found[name] = torch.stack([_divergence(*pair) for pair in zip(whole, own, strict=True)])
    return {name: [Divergence(*one) for one in pairs.tolist()] for name, pairs in found.items()}


def _divergence(whole: Tensor, found: Tensor) -> Tensor:
    kl = (whole.exp() * (whole - found)).sum(-1).mean().clamp(min=0.0)
    return torch.stack([kl, (whole.argmax(-1) == found.argmax(-1)).float().mean()])


class Run:
    """One model's answers to a suite under some settings.

    Args:
        engine: of `engine_for`.
        suite: the questions.
        settings: by name; `UNCOMPRESSED` among them.
        path: the file of answers; what it holds is not asked again.
        suffix: behind every question, such as a wish for brevity.
        notice: called with a sentence for what cannot be asked.

    Attributes:
        refused: settings that the model does not support, with the reason.
        left_out: pictures that could not be asked, with the reason.
    """

    def __init__(
        self,
        engine: EvaluationEngine,
        suite: Suite,
        settings: Mapping[str, Settings],
        path: Path,
        suffix: str = "",
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.engine, self.suite, self.settings = engine, suite, settings
        self.path, self.suffix, self.notice = path, suffix, notice
        self.model = Path(engine.vlm.name).name
        self.refused: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self._most = len(settings)  # columns of a conversation; fewer once memory ran out
        self._stop = threading.Event()

    def missing(self, part: tuple[int, int] = (0, 1)) -> dict[str, list[str]]:
        """The settings that are still to be asked of each picture.

        Args:
            part: number from 0 and count of the parts into which the pictures are dealt, of which
                this is to ask one.
        """
        found = begin(self.path)
        known = {(one.question, one.setting) for one in found if one.model == self.model}
        number, parts = part
        names = [name for name in self.settings if name not in self.refused]
        owed = {
            picture: [name for name in names if any((one.id, name) not in known for one in asked)]
            for picture, asked in list(self.suite.pictures.items())[number::parts]
            if picture not in self.left_out
        }
        return {picture: names for picture, names in owed.items() if names}

    def answer(
        self, owed: Mapping[str, list[str]], limit_s: float | None = None, at_once: int = 0
    ) -> Iterator[int]:
        """Ask what is `missing`, and append each picture's answers as they are complete.

        Args:
            owed: settings by picture.
            limit_s: seconds after which no further picture is begun; those begun are finished.
            at_once: conversations at a time; 0 for as many as suit the device.

        Yields:
            how many answers a picture added.
        """
        most = at_once or AT_ONCE.get(self.engine.vlm.device.type, 1)
        began, left = time.monotonic(), iter(owed.items())
        pool, running = ThreadPoolExecutor(most), set[Future[list[Answer]]]()
        try:
            while True:
                late = limit_s is not None and time.monotonic() - began > limit_s
                while not late and len(running) < most and (one := next(left, None)):
                    running.add(pool.submit(self._picture, *one))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    answers = future.result()
                    append(self.path, answers)
                    yield len(answers)
        finally:
            self._stop.set()
            pool.shutdown()
            self._stop.clear()

    def _picture(self, picture: str, names: list[str]) -> list[Answer]:
        """All answers about one picture; none where it cannot be asked.

        Settings are asked in halves where memory runs out, and to find the one that the model does
        not support. The uncompressed cache is always beside them.
        """
        found: dict[tuple[str, str], Answer] = {}
        parts = [[name for name in names if name != UNCOMPRESSED]]
        while parts:
            some = [name for name in parts.pop() if name not in self.refused]
            if len(some) <= self._most:
                failure = self._try(picture, some, found)
                if failure is None:
                    continue
                if isinstance(failure, OutOfMemory):
                    if len(some) < 2:
                        raise failure
                    memory.free(self.engine.vlm.device)
                    self._most = min(self._most, len(some) // 2)
                elif not some or self._try(picture, [], found) is not None:
                    self.left_out[picture] = failure.message
                    self.notice(f"Left out {picture}: {failure.message}")
                    return []
                elif len(some) == 1:
                    self.refused[some[0]] = failure.message
                    self.notice(f"Left out {some[0]}: {failure.message}")
                    continue
            middle = -(-len(some) // 2)
            parts += [some[middle:], some[:middle]]
        return [one for one in found.values() if one.setting in names]

    def _try(
        self, picture: str, names: list[str], found: dict[tuple[str, str], Answer]
    ) -> UserError | None:
        """Add the answers of some settings to those `found`; or why they could not be given."""
        try:
            for one in self._conversation(picture, [UNCOMPRESSED, *names]):
                found[one.question, one.setting] = one
        except Stopped:
            raise
        except UserError as error:
            return error.with_traceback(None)  # or its frames would hold tensors
        return None

    def _conversation(self, picture: str, names: list[str]) -> list[Answer]:
        """A picture's questions in a row, under each of some settings."""
        image, conversation = self.suite.picture(picture), Conversation()
        columns = {name: self.settings[name] for name in names}
        asked = self.suite.pictures[picture]
        texts = [one.text + self.suffix for one in asked]
        request = make_request(image, texts[0], asked[0].new_tokens)
        found: dict[tuple[str, int], Answer] = {}
        said: list[list[int]] = []  # the uncompressed cache's
        try:
            for turn, (one, text) in enumerate(zip(asked, texts, strict=True), 1):
                if turn == 1:
                    events = self.engine.compare(
                        request, columns, self._stop, trace=False, conversation=conversation
                    )
                else:
                    events = self.engine.follow(conversation, text, one.new_tokens, self._stop)
                for answer in self._answers(one, turn, events):
                    found[answer.setting, turn] = answer
                said.append(conversation.columns[0].answer.ids)
            filled = self.engine.filled(conversation)
            first = conversation.columns[0].first_position
        finally:
            conversation.close()
        for name, later in self._divergences(filled, first, said, texts[1:]).items():
            for turn, measured in enumerate(later, 2):
                found[name, turn] = found[name, turn]._replace(**measured._asdict())
        return list(found.values())

    def _divergences(
        self, filled: dict[str, Cache], first: int, said: list[list[int]], later: list[str]
    ) -> dict[str, list[Divergence]]:
        """Of every column; first: the position of its first answer's first token.

        Raises:
            OutOfMemory: where it would be tried with less.
        """
        if not later:
            return {}
        vlm = self.engine.vlm
        position = torch.tensor([first], device=vlm.device)
        try:
            with self.engine.scheduler.prefill(self._stop):
                return divergences(vlm, filled, position, said, later)
        except Exception as error:
            if is_out_of_memory(error):
                raise OutOfMemory from None
            raise

    def _answers(self, question: Question, turn: int, events: Iterator[Event]) -> list[Answer]:
        """One question's answer of every column.

        Raises:
            UserError: where it failed, `OutOfMemory` where it would be tried with less.
        """
        filled: dict[str, Prefilled] = {}
        held: dict[str, int] = {}
        said: dict[str, Finished] = {}
        assert isinstance(events, Generator)
        with closing(events):
            for event in events:
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Restarted):
                    raise OutOfMemory
                if isinstance(event, Prefilled):
                    filled[event.column] = event
                elif isinstance(event, Stored):
                    held[event.column] = event.kv_bytes
                elif isinstance(event, Finished):
                    said[event.column] = event
        if self._stop.is_set():
            raise Stopped
        reference = said[UNCOMPRESSED].answer
        return [
            Answer(
                self.model, question.split, question.id, name, turn, one.answer,
                question.score(one.answer), one.answer == reference, held[name],
                filled[name].kv_bytes_full, self._whole_tokens(filled[name]),
            )
            for name, one in said.items()
        ]  # fmt: skip

    def _whole_tokens(self, filled: Prefilled) -> int:
        """Visual tokens whose Keys and Values are stored as they were."""
        method = self.settings[filled.column].channels
        if method.stores_everything:
            return filled.visual_kept
        return min(filled.visual_kept, method.whole_tokens)
