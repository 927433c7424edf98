"""One model, one scheduler, many visitors: a request goes in, events come out.

    engine = Engine("pocket")
    for event in engine.compare(request, {"baseline": BASELINE, "RotateK": Settings()}):
        ...

A request owns its caches: they are made and closed inside one generator.
"""

import logging
import threading
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from PIL import Image
from torch import Tensor

from kernels import dispatch
from rotatek.bridge.attention import StopFlag
from rotatek.bridge.scope import own_calls
from rotatek.cache.measures import Stopwatch
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.engine import memory
from rotatek.engine.conversation import Column, Conversation
from rotatek.engine.events import EngineState, Event, Failed, Health, Queued, Restarted, Stored
from rotatek.engine.image_features import ImageFeatureCache, ImageFeatures, key_of
from rotatek.engine.memory import Admission, MemoryReservation
from rotatek.engine.passes import Prefill, empty_cache, feed, fill, forked, prefills_of, turn_of
from rotatek.engine.scheduler import Scheduler
from rotatek.engine.sequences import Sequence
from rotatek.errors import (
    TIGHTER,
    ConversationGone,
    ConversationOver,
    OutOfMemory,
    Restarting,
    Stopped,
    public_error,
)
from rotatek.inputs.request import Limits, Request, clean_question, make_request, whole_tokens
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.inspect.answer_attention import AnswerAttentionRecorder, RecorderGroup
from rotatek.inspect.trace import TraceRecorder
from rotatek.methods.settings import BASELINE, USUAL, Settings
from rotatek.models import Prompt, VisionLanguageModel, load
from rotatek.models.memory import free_bytes, is_out_of_memory

log = logging.getLogger("rotatek")


class Engine:
    """A loaded model that answers requests of several visitors at the same time.

    graphs: on a GPU, replay each compressed column's step as a CUDA graph: several times faster,
    with all of the answer's memory reserved (and counted) at its start. Not for ZeroGPU.

    Raises on construction: the errors of `rotatek.models.load`.
    """

    lookahead: ClassVar[int] = 1  # tokens past a limit that `Conversation.shorten` can take back

    def __init__(
        self,
        model: str | VisionLanguageModel = "pocket",
        device: str | None = None,
        limits: Limits | None = None,
        *,
        graphs: bool = False,
    ) -> None:
        self.vlm = model if isinstance(model, VisionLanguageModel) else load(model, device)
        self.limits = limits or Limits()
        self.graphs = graphs
        self.scheduler = Scheduler(self.vlm, graphs=graphs, expected=lambda: self.admission.running)
        share = memory.SHARE.get(self.vlm.device.type, 0.5)  # of what the model leaves
        self.admission = Admission(
            lambda: self.limits.cache_bytes or round(share * free_bytes(str(self.vlm.device))),
            lambda: self.scheduler.batch_bytes,
            lambda: self.vlm.questions.bytes,
        )
        self.pictures = ImageFeatureCache(self.vlm, self.limits.warm_bytes)
        self._lost = False  # the accelerator, for the rest of this process

    def answer(
        self, request: Request, settings: Settings, stop: StopFlag | None = None
    ) -> Iterator[Event]:
        """`compare` with one column, named "answer"."""
        return self.compare(request, {"answer": settings}, stop)

    def compare(
        self,
        request: Request,
        columns: Mapping[str, Settings],
        stop: StopFlag | None = None,
        *,
        trace: bool = True,
        conversation: Conversation | None = None,
    ) -> Iterator[Event]:
        """Answer under several settings, interleaved; the others are compared with the first
        column.

        Columns with the same token pruning share one prefill. Errors of a request are not raised;
        they end its stream as a `Failed` event. Where memory runs out, everything starts again once
        under tighter limits, after a `Restarted` event. A chat without pictures is answered from
        plain caches, whatever the settings. Finished.metrics has: kv_bytes, kv_bytes_full, bytes
        (by part), nominal_kv, prefill_ms, agreement (share of tokens equal to the first column's),
        first_divergence (index or None), kl (mean, nats), confidence (geometric mean of the
        tokens' probabilities), stopped, sampling (what of it is not greedy, with the seed).

        Columns of equal settings are several draws of one answer: they share the compressed cache
        of the first. Columns of different settings draw with the same noise.

        Args:
            request: of `make_request`.
            columns: settings by the name that events carry.
            stop: ends every column early once it is set.
            trace: record the first column that compresses; its `Finished` event has the trace.
            conversation: takes over the caches of a complete answer, for `follow`; its maker
                closes it.
        """
        stop = stop or self.flag()
        request = replace(request, sampling=request.sampling.seeded())  # the same if tried again
        if not request.images:  # there is nothing to compress
            columns, trace = dict.fromkeys(columns, BASELINE), False
        short = yield from self._attempt(request, columns, stop, trace, conversation)
        if short and not stop.is_set():
            log.warning(TIGHTER)
            smaller = memory.tighter(request)
            yield Restarted(TIGHTER, smaller.max_new_tokens)
            self.pictures.clear()
            self.vlm.questions.forget()
            memory.free(self.vlm.device)  # after the listener has dropped spare conversations
            short = yield from self._attempt(smaller, columns, stop, trace, conversation)
        if short:
            yield Failed(OutOfMemory())
            memory.free(self.vlm.device)

    def _attempt(
        self,
        request: Request,
        columns: Mapping[str, Settings],
        stop: StopFlag,
        trace: bool,
        conversation: Conversation | None,
    ) -> Generator[Event, None, bool]:
        """`compare`, once. Whether memory ran out; by then nothing holds a tensor."""
        running: list[Column] = []
        failed, lease = None, None
        try:
            if self._lost:
                raise Restarting
            prompt, looked = self._prompt(request, columns)
            if request.cut:  # the answer ends where the context does
                longest = min(request.max_new_tokens, max(1, self.room - prompt.ids.shape[1]))
                request = replace(request, max_new_tokens=longest)
            visual, tokens = prompt.visual_tokens, prompt.ids.shape[1] + request.max_new_tokens
            text = self.vlm.full_bytes(tokens - visual)
            shares = sum(settings.nominal_kv for settings in columns.values())
            about = len(columns) * text + shares * self.vlm.full_bytes(visual, states=0)
            lease = self.admission.ask(round(about))
            if not lease.admitted:
                del prompt, looked  # a waiting request holds nothing
                yield from map(Queued, lease.queued(stop))
                prompt, looked = self._prompt(request, columns)
            reused = bool(looked.seen)
            look = partial(self.pictures.look, looked, prompt)
            turn = partial(self.scheduler.prefill, stop)
            prefills = list(prefills_of(self.vlm, prompt, columns.values(), look, turn))
            running += self._columns(prefills, columns, trace)
            yield from self._prefill(prefills, running, request, prompt, reused, stop)
            del prefills, looked, look  # rows go on from their caches alone
            lease.resize(len(running) * self.vlm.full_bytes(tokens))  # until they are compressed
            yield from self._decode(running, prompt, lease)
            if conversation is not None and not stop.is_set():
                conversation.hold(running, prompt, lease)
                running, lease = [], None
        except Exception as exc:
            if is_out_of_memory(exc):
                return True
            failed = self._failed(exc)
        finally:
            self._close(running)
            if lease is not None:
                lease.release()
        if failed is not None:
            yield failed
        return False

    def _close(self, columns: list[Column]) -> None:
        self.scheduler.leave([column.row for column in columns if column.row is not None])
        for column in columns:
            column.close()

    @property
    def room(self) -> int:
        """Tokens of prompt and answer that there is room for."""
        limit = self.limits.max_prompt_tokens
        return self.vlm.context(limit) or limit

    def _failed(self, failure: Exception) -> Failed:
        """The visitor's message for a failure; a lost accelerator is recorded."""
        if is_out_of_memory(failure):
            return Failed(OutOfMemory())
        self._lost = self._lost or memory.is_lost(failure, self.vlm.device)
        return Failed(Restarting() if self._lost else public_error(failure))

    def follow(
        self,
        conversation: Conversation,
        question: str,
        max_new_tokens: int = 64,
        stop: StopFlag | None = None,
        sampling: Sampling = GREEDY,
    ) -> Iterator[Event]:
        """Ask again, about the same images: columns continue from their own caches. Where a further
        picture is shown, `compare` reads the whole chat.

        Events as in `compare`; prefill_ms is that of the question alone, and bytes count all of the
        grown cache. An incomplete answer closes the conversation.

        Raises:
            UserError: at once, for a question that is refused; the conversation is unchanged.
        """
        question, most = clean_question(question), whole_tokens(max_new_tokens)
        if self._lost:
            raise Restarting
        if not conversation.is_open:
            raise ConversationGone
        with self.scheduler.preparing:
            turn = turn_of(self.vlm, question)
        limit, tokens = self.vlm.context(self.limits.max_prompt_tokens), turn.ids.shape[1] + most
        full = limit is not None and conversation.tokens + tokens > limit
        if full or conversation.turns >= self.limits.turns:
            raise ConversationOver
        return self._follow(conversation, turn, most, stop or self.flag(), sampling.seeded())

    def _follow(
        self,
        conversation: Conversation,
        turn: Prompt,
        max_new_tokens: int,
        stop: StopFlag,
        sampling: Sampling,
    ) -> Iterator[Event]:
        failed, answered, prompt = None, False, conversation.prompt
        assert prompt is not None
        try:
            for column in conversation.columns:
                with self.scheduler.prefill(stop), own_calls(queries=column.attention):
                    if isinstance(column.cache, RotateKCache):
                        column.cache.make_growing()
                    asked = turn.ids[0].tolist()  # behind what is left of the last answer
                    ids = torch.tensor([column.history[column.grown :] + asked]).to(turn.ids)
                    position = torch.tensor([column.position], device=ids.device)
                    logits, column.prefill_ms = feed(self.vlm, ids, position, column.cache)
                    column.history += asked
                self._begin(column, logits, prompt, max_new_tokens, sampling, stop)
                yield column.prefilled(self.vlm, prompt)
            yield from self._decode(conversation.columns, prompt, conversation.lease)
            answered = not stop.is_set()
            if answered:
                conversation.hold(conversation.columns, prompt, conversation.lease)
        except Stopped:
            pass
        except Exception as exc:
            failed = self._failed(exc)
        finally:
            if not answered:
                self._close(conversation.columns)
                conversation.close()
        if failed is not None:
            yield failed

    def flag(self) -> StopFlag:
        """A stop flag for one of this engine's answers."""
        return threading.Event()

    def terms(self, request: Request, columns: int) -> tuple[Request, str]:
        """The request as this engine will answer it, and what to tell the visitor of that."""
        return request, ""

    def state(self) -> EngineState:
        """Running and waiting requests, and their memory. For metrics."""
        admission = self.admission
        return replace(
            self.scheduler.counters,
            running=admission.running,
            waiting=admission.waiting,
            rows=self.scheduler.running,
            live_bytes=admission.held,
            room_bytes=admission.room,
            picture_bytes=self.pictures.bytes,
            picture_hits=self.pictures.hits,
            picture_misses=self.pictures.misses,
        )

    def health(self) -> Health:
        """Whether this engine can answer, where it runs, and what computes its attention."""
        device = self.vlm.device.type
        status = dispatch.status(device)
        return Health(not self._lost, device, status.backend, status.reason)

    def _prompt(
        self, request: Request, columns: Mapping[str, Settings]
    ) -> tuple[Prompt, ImageFeatures]:
        key, warm = key_of(request.images, request.scope), None
        if request.images:
            warm = self.pictures.find(key, {settings.pruning for settings in columns.values()})
        pixels = None if warm is None else warm.pixels
        if pixels is None:
            with self.scheduler.preprocessing:
                pixels = self.vlm.look(request)
        with self.scheduler.preparing:
            prompt = self.vlm.prompt(request, self.limits.max_prompt_tokens, pixels)
        return prompt, warm or ImageFeatures(key, prompt.pixels)

    def _columns(
        self, prefills: list[Prefill], columns: Mapping[str, Settings], trace: bool
    ) -> list[Column]:
        traced = next((n for n, s in columns.items() if not s.is_baseline), None) if trace else None
        made: list[Column] = []
        for name, settings in columns.items():
            _, embedded, plan, _ = next(one for one in prefills if settings in one.settings)
            recorder = TraceRecorder(self.limits.trace_tokens) if name == traced else None
            attention = None
            if trace and not self.graphs:  # a graph's replay shows no queries
                attention = AnswerAttentionRecorder.of(plan.layers, every=name == traced)
            made.append(
                Column(
                    name,
                    settings,
                    empty_cache(self.vlm, embedded, settings, plan, recorder),
                    plan,
                    rows=embedded.embeds.shape[1],
                    chosen=embedded.kept,
                    draw=sum(column.settings == settings for column in made),
                    recorder=recorder,
                    attention=attention,
                )
            )
        return made

    def _prefill(
        self,
        prefills: list[Prefill],
        columns: list[Column],
        request: Request,
        prompt: Prompt,
        reused: bool,
        stop: StopFlag,
    ) -> Iterator[Event]:
        """Fill all caches, those of one plan from one forward pass, until it is stopped."""
        for _, embedded, plan, tower_ms in prefills:
            group = [column for column in columns if column.plan is plan]
            drawn = [column for column in group if not column.draw]
            watching = [column.attention for column in group if column.attention is not None]
            seen = RecorderGroup(watching, plan.length - embedded.embeds.shape[1])
            try:
                with self.scheduler.prefill(stop), own_calls(queries=seen):
                    caches = [column.cache for column in drawn]
                    logits, times = fill(self.vlm, embedded, plan, caches)
                    position = int(embedded.next_position[0])
            except Stopped:
                return
            filled = {
                column.settings: each for column, *each in zip(drawn, caches, times, strict=True)
            }
            for column in group:
                column.cache, ms = filled[column.settings]  # further draws get copies in `_pack`
                column.prefill_ms, column.first_position = tower_ms + ms, position
                limit, sampling = request.max_new_tokens, request.sampling
                self._begin(column, logits, prompt, limit, sampling, stop)
                yield column.prefilled(self.vlm, prompt, reused=reused)

    def _begin(
        self,
        column: Column,
        logits: Tensor,
        prompt: Prompt,
        limit: int,
        sampling: Sampling,
        stop: StopFlag,
    ) -> None:
        row = Sequence(
            column.cache, logits, column.position, limit, stop, sampling, column.draw,
            watcher=None if column.attention is None else column.attention.see,
        )  # fmt: skip
        self.scheduler.choice.prepare(row, prompt.ids, column.history)
        column.row = row

    def _decode(
        self, columns: list[Column], prompt: Prompt, lease: MemoryReservation | None
    ) -> Iterator[Event]:
        """Tokens and figures of columns that have read a question, except those whose prefill was
        stopped: each one's first token, then its size once it is compressed, and the rest."""
        ready = [column.row for column in columns if column.row is not None]
        number = next(self.scheduler.requests)
        for row in ready:
            row.request = number
            row.first = None if row is columns[0].row else columns[0].row
        if ready:
            self.scheduler.start(ready)
        alive, packed = list(columns), False
        while alive:
            for column in list(alive):
                pick = None if column.row is None else self.scheduler.next(column.row)
                if pick is not None and pick.token not in self.vlm.stop_ids:
                    yield column.token(self.vlm, columns[0], pick)
                    continue
                if not packed:
                    yield self._pack(column, columns)
                alive.remove(column)
                yield column.finished(self.vlm, columns[0], prompt)
            if not packed:
                stored = [self._pack(column, columns) for column in alive]
                if lease is not None:  # the caches, and answers as long as they may be
                    limits = (column.row.limit for column in columns if column.row is not None)
                    room = sum(self.vlm.full_bytes(limit, states=0) for limit in limits)
                    lease.resize(room + sum(column.bytes().total for column in columns))
                rows = [one.row for one in alive if one.row is not None and not one.row.ended]
                if rows:
                    self.scheduler.join(rows)
                yield from stored
            packed = True

    def _pack(self, column: Column, columns: list[Column]) -> Stored:
        """Compress what a column's prefill has left, for which its first token does not wait."""
        if isinstance(column.cache, RotateKCache) and column.cache.filling.waits:
            with self.scheduler.prefill(None, packing=True), Stopwatch(self.vlm.device) as watch:
                column.cache.filling.finish()
            column.prefill_ms += 1000 * watch.seconds
        if column.draw and any(one.cache is column.cache for one in columns if one is not column):
            column.cache = forked(column.cache)
            if column.row is not None:
                column.row.cache = column.cache
        event = Stored(column.name, column.bytes().total)
        column.answer.take(event)
        return event

    def warm_up(self) -> None:
        """Test the kernels and run one tiny prompt, so that no visitor pays for set-up."""
        if self.vlm.device.type == "cuda":
            dispatch.self_test(self.vlm.device)
        request = make_request(Image.new("RGB", (224, 224), "white"), "?", 2)
        columns = {"full": BASELINE, "rotated": Settings(), "with bits": USUAL}
        for _ in self.compare(request, columns):
            pass
