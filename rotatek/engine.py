"""One model, one lock, many visitors: a request goes in, events come out.

    engine = Engine("pocket")
    for event in engine.compare(request, {"baseline": BASELINE, "RotateK": Settings()}):
        ...

A request owns its caches: they are made and closed inside one generator. Nothing is stored on the
model. The lock is held for one prefill or one token at a time, so visitors take turns.
"""

import logging
import math
import threading
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from kernels import dispatch
from rotatek import failures
from rotatek.answer_attention import AnswerAttention, AnswerAttentionRecorder, RecorderGroup
from rotatek.attention import Flag, stoppable, watched
from rotatek.compare.prefill import SharedPrompt, empty_cache, fill
from rotatek.conversation import Conversation, RunningColumn, check_room, go_on
from rotatek.decode import Step, decode
from rotatek.errors import (
    TIGHTER,
    ConversationGone,
    OutOfMemory,
    Restarting,
    Stopped,
    public_message,
)
from rotatek.events import Event, Failed, Finished, Prefilled, Restarted, Token
from rotatek.inputs import Request, clean_question, make_request, whole_tokens
from rotatek.limits import Limits
from rotatek.models import Prompt, VisionLanguageModel, load
from rotatek.models.memory import is_out_of_memory
from rotatek.prompt import encode_follow_up
from rotatek.settings import BASELINE, Settings
from rotatek.trace import Trace, TraceRecorder

log = logging.getLogger("rotatek")


class Switch(Flag, Protocol):
    """A stop flag that its owner can set, and clears once nobody looks at it any more."""

    def set(self) -> None:
        """Ask to stop."""
        ...

    def clear(self) -> None:
        """Forget it."""
        ...


@dataclass(frozen=True)
class Health:
    """able: whether requests can be answered; attention: "triton" or "reference", and why."""

    able: bool
    device: str
    attention: str
    reason: str


class Engine:
    """A loaded model that answers requests, one token at a time for everybody.

    graphs: on a GPU, replay each compressed column's step as a CUDA graph: several times faster,
    with the answer's whole room reserved (and counted) up front. Not for ZeroGPU.

    Raises on construction: the errors of `rotatek.models.load`.
    """

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
        self._lock = threading.Lock()
        self._lost = False  # the accelerator, for the rest of this process

    def answer(
        self, request: Request, settings: Settings, stop: Flag | None = None
    ) -> Iterator[Event]:
        """One column, named "answer".

        Args:
            request: what is asked.
            settings: how its cache is compressed.
            stop: ends the answer early once it is set.

        Returns:
            Events as of `compare`.
        """
        return self.compare(request, {"answer": settings}, stop)

    def compare(
        self,
        request: Request,
        columns: Mapping[str, Settings],
        stop: Flag | None = None,
        *,
        trace: bool = True,
        conversation: Conversation | None = None,
    ) -> Iterator[Event]:
        """Answer under several settings, interleaved; the first column is what others diverge from.

        Columns with the same token pruning share one prefill. Never raises for a request's sake:
        what went wrong is a `Failed` event. Where memory runs out, everything starts again once
        under tighter limits, after a `Restarted` event. Finished.metrics holds: kv_bytes,
        kv_bytes_full, bytes (by part), nominal_kv, prefill_ms, agreement (share of tokens equal to
        the first column's), first_divergence (index or None), kl (mean, nats), confidence
        (geometric mean of the tokens' probabilities), stopped.

        Args:
            request: what is asked.
            columns: settings by the name that events carry.
            stop: ends every column early once it is set.
            trace: record the first column that compresses; its `Finished` event holds the trace.
            conversation: takes over the caches of a complete answer, for `follow`; its maker
                closes it.
        """
        short = yield from self._attempt(request, columns, stop, trace, conversation)
        if short and not (stop is not None and stop.is_set()):
            log.warning(TIGHTER)
            yield Restarted(TIGHTER)
            failures.free(self.vlm.device)  # once whoever listens has let go of what can be spared
            smaller = failures.tighter(request)
            short = yield from self._attempt(smaller, columns, stop, trace, conversation)
        if short:
            yield Failed(None, OutOfMemory.sentence)
            failures.free(self.vlm.device)

    def _attempt(
        self,
        request: Request,
        columns: Mapping[str, Settings],
        stop: Flag | None,
        trace: bool,
        conversation: Conversation | None,
    ) -> Generator[Event, None, bool]:
        """`compare`, once. Returns whether memory ran out; by then nothing holds a tensor."""
        running: list[RunningColumn] = []
        message = ""
        try:
            if self._lost:
                raise Restarting
            with self._lock, stoppable(stop):
                prompt = self.vlm.prompt(request, self.limits.max_prompt_tokens)
            running += self._columns(prompt, columns, trace, stop)
            for group in _groups(running):
                if not self._prefill(request, group, stop):
                    break
                for column in group:
                    yield self._prefilled(column, prompt)
            yield from self._interleave(running, prompt, stop)
            if conversation is not None and not (stop is not None and stop.is_set()):
                conversation.hold(running, prompt)
                running = []
        except Exception as exc:
            if is_out_of_memory(exc):
                return True
            message = self._said(exc)
        finally:
            for column in running:
                column.close()
        if message:
            yield Failed(None, message)
        return False

    def _said(self, failure: Exception) -> str:
        """What a visitor may read of it; a lost accelerator is remembered."""
        if is_out_of_memory(failure):
            return OutOfMemory.sentence
        self._lost = self._lost or failures.is_lost(failure, self.vlm.device)
        return Restarting.sentence if self._lost else public_message(failure)

    def follow(
        self,
        conversation: Conversation,
        question: str,
        max_new_tokens: int = 64,
        stop: Flag | None = None,
    ) -> Iterator[Event]:
        """Ask again about the same images: every column goes on from its own cache.

        Events as in `compare`; prefill_ms is that of the question alone, and bytes count the grown
        text. Whatever keeps the answer from being complete closes the conversation.

        Args:
            conversation: as `compare` has filled it.
            question: the text of the next turn.
            max_new_tokens: the longest answer, 1 to `Limits`.
            stop: ends every column early once it is set.

        Raises:
            UserError: at once, for a question that is refused; the conversation is as it was.
        """
        question = clean_question(question)
        ids = self._question_ids(conversation, question, whole_tokens(max_new_tokens))
        return self._follow(conversation, ids, max_new_tokens, stop)

    def _follow(
        self, conversation: Conversation, ids: list[int], max_new_tokens: int, stop: Flag | None
    ) -> Iterator[Event]:
        """`follow`, with the question as token ids."""
        message, answered, prompt = "", False, conversation.prompt
        assert prompt is not None
        try:
            for column in conversation.columns:
                with self._lock, stoppable(stop), watched(column.attention):
                    logits = go_on(self.vlm, column, ids)
                self._decode(column, logits, max_new_tokens, stop)
                yield self._prefilled(column, prompt)
            yield from self._interleave(conversation.columns, prompt, stop)
            answered = not (stop is not None and stop.is_set())
            if answered:
                conversation.hold(conversation.columns, prompt)
        except Stopped:
            pass
        except Exception as exc:
            message = self._said(exc)
        finally:
            if not answered:
                conversation.close()
        if message:
            yield Failed(None, message)

    def _question_ids(
        self, conversation: Conversation, question: str, max_new_tokens: int
    ) -> list[int]:
        """A follow-up question's token ids, if the conversation has room for it and its answer."""
        if self._lost:
            raise Restarting
        if not conversation.is_open:
            raise ConversationGone
        template = self.vlm.tokenizer.chat_template or self.vlm.template
        ids = encode_follow_up(self.vlm.tokenizer, question, template)
        limit = self.vlm.context(self.limits.max_prompt_tokens)
        check_room(conversation, len(ids) + max_new_tokens, self.limits.turns, limit)
        return ids

    def flag(self) -> Switch:
        """A stop flag for one of this engine's answers."""
        return threading.Event()

    def terms(self, request: Request, columns: int) -> tuple[Request, str]:
        """The request as this engine will answer it, and what to tell the visitor of that."""
        return request, ""

    def health(self) -> Health:
        """Whether this engine can answer, where it runs, and what computes its attention."""
        device = self.vlm.device.type
        status = dispatch.status(device)
        return Health(not self._lost, device, status.backend, status.reason)

    def _columns(
        self, prompt: Prompt, columns: Mapping[str, Settings], trace: bool, stop: Flag | None
    ) -> list[RunningColumn]:
        """Empty caches; columns that prune alike share a plan, and most the vision tower's run."""
        shared = SharedPrompt(self.vlm, prompt)
        for pruner in dict.fromkeys(settings.pruning for settings in columns.values()):
            with self._lock, stoppable(stop):
                shared.see(pruner)
        traced = next((n for n, s in columns.items() if not s.is_baseline), None) if trace else None
        made = []
        for name, settings in columns.items():
            embedded, plan, ms = shared.under(settings.pruning)
            recorder = TraceRecorder(self.limits.trace_tokens) if name == traced else None
            cache = empty_cache(self.vlm, embedded, settings, plan, recorder)
            attention = (
                AnswerAttentionRecorder.of(plan.layers) if trace and not self.graphs else None
            )
            made.append(
                RunningColumn(name, settings, cache, plan, embedded, recorder, ms, attention)
            )
        return made

    def _prefill(self, request: Request, group: list[RunningColumn], stop: Flag | None) -> bool:
        """Fill one group's caches from one forward pass; whether it came to its end."""
        first, caches = group[0], [column.cache for column in group]
        seen = RecorderGroup([column.attention for column in group if column.attention is not None])
        try:
            with self._lock, stoppable(stop), watched(seen):
                logits, times = fill(self.vlm, first.embedded, first.plan, caches)
        except Stopped:
            return False
        for column, ms in zip(group, times, strict=True):
            column.prefill_ms += ms
            self._decode(column, logits, request.max_new_tokens, stop)
        return True

    def _decode(
        self, column: RunningColumn, logits: Tensor, max_new_tokens: int, stop: Flag | None
    ) -> None:
        """Make a filled column ready to answer."""
        column.steps = decode(
            self.vlm,
            column.embedded,
            column.cache,
            logits,
            max_new_tokens,
            stop,
            graph=self.graphs,
        )

    def _interleave(
        self, running: list[RunningColumn], prompt: Prompt, stop: Flag | None
    ) -> Iterator[Event]:
        """One token from each column in turn, until all have ended."""
        alive = list(running)
        reference = running[0]
        latest: Tensor | None = None
        while alive:
            for column in list(alive):
                with self._lock, watched(column.attention):
                    step = next(column.steps, None)
                if step is None or step.tokens[0] in self.vlm.stop_ids:
                    alive.remove(column)
                    yield self._finished(column, reference, prompt, stop)
                    continue
                if column is reference:
                    latest = step.logits
                yield self._token(column, reference, step, latest)

    def _token(
        self, column: RunningColumn, reference: RunningColumn, step: Step, latest: Tensor | None
    ) -> Token:
        """Take one step into the column's record."""
        index = len(column.tokens)
        token = step.tokens[0]
        before = not column.parted and column.tokens == reference.tokens[:index]
        probability = float(step.logits[0].softmax(-1)[token])
        column.log_probability += math.log(max(probability, 1e-30))
        column.tokens.append(token)
        if index:
            column.step_ms.append(step.ms)
        full = self.vlm.tokenizer.decode(column.tokens, skip_special_tokens=True)
        ready = full.rstrip("\ufffd")  # an unfinished character waits for its other bytes
        text, column.text = ready[len(column.text) :], max(column.text, ready, key=len)
        kl = None
        if column is not reference and before and len(reference.tokens) > index:
            kl = _divergence(latest, step.logits)
            column.kl.append(kl)
        divergent = column is not reference and reference.tokens[index : index + 1] != [token]
        return Token(column.name, index, token, text, step.ms, divergent, kl, probability)

    def _prefilled(self, column: RunningColumn, prompt: Prompt) -> Prefilled:
        count = column.bytes()
        return Prefilled(
            column=column.name,
            prefill_ms=column.prefill_ms,
            visual_tokens=prompt.visual_tokens,
            visual_kept=column.plan.visual_kept,
            nominal_kv=column.settings.nominal_kv,
            kv_bytes=count.total,
            kv_bytes_full=self.vlm.full_bytes(prompt.ids.shape[1] + column.grown),
            kept=_kept(column, prompt),
            grids=prompt.pixels.grids,
            attention=dispatch.backend(self.vlm.device.type),
        )

    def _finished(
        self, column: RunningColumn, reference: RunningColumn, prompt: Prompt, stop: Flag | None
    ) -> Finished:
        count = column.bytes()
        pairs = list(zip(column.tokens, reference.tokens, strict=False))
        longest = max(len(column.tokens), len(reference.tokens))
        differs = [i for i, (a, b) in enumerate(pairs) if a != b]
        if not differs and len(column.tokens) > len(reference.tokens):
            differs = [len(reference.tokens)]
        metrics: dict[str, Any] = {
            "kv_bytes": count.total,
            "kv_bytes_full": self.vlm.full_bytes(prompt.ids.shape[1] + column.grown),
            "bytes": count.parts,
            "nominal_kv": column.settings.nominal_kv,
            "prefill_ms": column.prefill_ms,
            "agreement": sum(a == b for a, b in pairs) / longest if longest else 1.0,
            "first_divergence": differs[0] if differs else None,
            "kl": float(np.mean(column.kl)) if column.kl else None,
            "confidence": math.exp(column.log_probability / max(len(column.tokens), 1)),
            "stopped": bool(stop is not None and stop.is_set()),
        }
        per_token = float(np.mean(column.step_ms)) if column.step_ms else 0.0
        answer = self.vlm.tokenizer.decode(column.tokens, skip_special_tokens=True).strip()
        return Finished(
            column.name, answer, len(column.tokens), per_token, metrics,
            _trace(column, prompt), _answer_attention(column, prompt),
        )  # fmt: skip

    def warm_up(self) -> None:
        """Test the kernels and run one tiny prompt, so that no visitor pays for set-up."""
        if self.vlm.device.type == "cuda":
            dispatch.self_test(self.vlm.device)
        request = make_request(Image.new("RGB", (224, 224), "white"), "?", 2)
        for _ in self.compare(request, {"full": BASELINE, "rotated": Settings()}):
            pass


def _groups(columns: list[RunningColumn]) -> list[list[RunningColumn]]:
    """Columns by shared plan, in order of first appearance."""
    groups: dict[int, list[RunningColumn]] = {}
    for column in columns:
        groups.setdefault(id(column.plan), []).append(column)
    return list(groups.values())


def _kept(column: RunningColumn, prompt: Prompt) -> NDArray[np.bool_] | None:
    """[visual_tokens] bool, or None where every token stayed."""
    if column.embedded.kept is not None:
        return column.embedded.kept.numpy()
    if column.plan.kept_rows is None:
        return None
    return column.plan.kept_rows[0][prompt.visual[0].cpu()].numpy()


def _trace(column: RunningColumn, prompt: Prompt) -> Trace | None:
    if column.recorder is None or not column.recorder.layers:
        return None
    return column.recorder.finish(prompt.pixels.grids, prompt.visual_tokens, _kept(column, prompt))


def _answer_attention(column: RunningColumn, prompt: Prompt) -> AnswerAttention | None:
    if column.attention is None:
        return None
    return column.attention.finish(column.cache, prompt.visual[0], _kept(column, prompt))


def _divergence(reference: Tensor | None, logits: Tensor) -> float:
    """KL(reference || this) of two next-token distributions [1, vocabulary], in nats."""
    assert reference is not None
    p, q = reference.log_softmax(-1), logits.log_softmax(-1)
    return max(0.0, float((p.exp() * (p - q)).sum()))
