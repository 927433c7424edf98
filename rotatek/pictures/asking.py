"""One question about many stored pictures, read behind several filled caches in one forward pass:
the model's weights are read once, and each cache attends for itself."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from kernels.reference import Narrow, expanded
from rotatek.bridge.attention import StopFlag
from rotatek.bridge.layers import key_layers, state_layers
from rotatek.bridge.scope import own_calls
from rotatek.cache.layer import AttendingCache, CompressedLayer
from rotatek.cache.rotatek_cache import RotateKCache, release
from rotatek.engine.conversation import newly_said, text_of
from rotatek.engine.engine import Engine
from rotatek.engine.passes import feed
from rotatek.engine.sequences import SampledToken
from rotatek.engine.sequences import Sequence as Row
from rotatek.errors import OutOfMemory, RequestTooLong, Stopped, UserError, public_message
from rotatek.inputs.sampling import GREEDY, Sampling
from rotatek.inputs.token_grid import Grid
from rotatek.inspect.answer_attention import AnswerAttention, AnswerAttentionRecorder
from rotatek.methods.channels.base import Store
from rotatek.models.memory import is_out_of_memory
from rotatek.pictures.reading import PictureNotes, cut


@dataclass(frozen=True)
class Answer:
    """One picture's answer to a question. picture: its name; confidence: the geometric mean of the
    probabilities of its tokens, in (0, 1]; error: why there is none, or nothing."""

    picture: str
    text: str
    confidence: float
    tokens: int
    error: str = ""


@dataclass(frozen=True)
class Look:
    """An answer's tokens. attention: theirs over the visual tokens, or None where a pruner dropped
    some of these; grids: where these lie on the picture."""

    pieces: tuple[str, ...]
    attention: AnswerAttention | None
    grids: tuple[Grid, ...]


class SideBySideLayer(CompressedLayer):
    """One layer of `SideBySide`: that layer of each cache."""

    def __init__(self, index: int, layers: Sequence[CompressedLayer]) -> None:
        super().__init__(index)
        self.layers = layers
        self.logical = max(layer.logical for layer in layers)  # masks are the layers' own

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, full: Callable
    ) -> Tensor:
        found = []
        for row, layer in enumerate(self.layers):
            own = slice(row, row + 1)
            layer.logical += key.shape[2]
            found.append(layer.attend(module, query[own], key[own], value[own], full))
        return torch.cat(found)

    def lend(self, module: nn.Module, query: Tensor, full: Callable) -> Tensor:
        parts = zip(self.layers, query.split(1), strict=True)
        return torch.cat([layer.lend(module, own, full) for layer, own in parts])


class SideBySide(AttendingCache):
    """A row for each of several filled caches of one sample, which grow by the same tokens; caches:
    that `fits` accepts."""

    def __init__(self, caches: Sequence[RotateKCache]) -> None:
        self.caches = caches
        each = zip(*map(key_layers, caches), strict=True)
        super().__init__(layers=[SideBySideLayer(n, layers) for n, layers in enumerate(each)])

    @staticmethod
    def fits(cache: RotateKCache) -> bool:
        """Whether a cache can be read side by side: it keeps no states, and no window moves."""
        return not state_layers(cache) and all(layer.span is None for layer in key_layers(cache))

    @property
    def only_grows(self) -> bool:
        return all(cache.only_grows for cache in self.caches)

    def meet(self, model: PreTrainedModel, given: Mapping[str, Any]) -> None:
        for row, cache in enumerate(self.caches):
            cache.meet(model, {"input_ids": given["input_ids"][row : row + 1]})

    def counters(self) -> Any:
        return [cache.counters() for cache in self.caches]

    def rewind(self, counters: Any) -> None:
        for cache, own in zip(self.caches, counters, strict=True):
            cache.rewind(own)
        for layer in self.layers:
            layer.logical = max(own.logical for own in layer.layers)


class Asker:
    """Asks caches of pictures. Any number of threads may ask the same picture at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.vlm = engine, engine.vlm
        self.opens = self.vlm.device.type == "cpu"  # where no kernel reads packed digits

    def ids_of(self, question: str) -> list[int]:
        """A question's tokens, up to where an answer begins; question: clean text."""
        with self.engine.scheduler.preparing:
            return cut(self.vlm, question, [self.vlm.placeholder])[1]

    def _check_room(self, notes: PictureNotes, ids: Sequence[int], max_new_tokens: int) -> None:
        """Refuse a chat that the model's context does not hold."""
        room = self.vlm.context(self.engine.limits.max_prompt_tokens)
        if room is not None and notes.tokens + len(ids) + max_new_tokens > room:
            raise RequestTooLong

    def batch(
        self,
        names: Sequence[str],
        load: Callable[[str], RotateKCache],
        ids: Sequence[int],
        max_new_tokens: int,
        stop: StopFlag | None = None,
        sampling: Sampling = GREEDY,
    ) -> list[Answer]:
        """Answers of pictures, in their order, decoded in the same steps.

        Args:
            names: of the pictures.
            load: a picture's cache by its name, which stays as it is.
            ids: of `ids_of`.
            stop: ends answers early; `Stopped` where not every picture has read the question.
            sampling: how tokens are chosen, with a seed where they are drawn.
        """
        failed, held = dict[str, str](), dict[str, RotateKCache]()
        for name in dict.fromkeys(names):
            try:
                cache = load(name)
                self._check_room(cache.notes, ids, max_new_tokens)
                held[name] = cache
            except UserError as error:
                failed[name] = error.message
        with self._room(held.values(), len(ids) + max_new_tokens, stop) as rows:
            self._fill(rows, failed, held, ids, max_new_tokens, stop)
            choice, asked = self.engine.scheduler.choice, torch.tensor([ids])
            for row in rows.values():
                row.sampling = sampling
                choice.prepare(row, asked)
            try:
                if rows:
                    self.engine.scheduler.join(list(rows.values()))
            except Exception as error:  # none of them, where memory runs out
                failed |= dict.fromkeys(rows, _said(error))
            said = {
                name: self._answer(name, rows.get(name), failed.get(name, ""))
                for name in dict.fromkeys(names)
            }
        return [said[name] for name in names]

    def look(
        self,
        cache: RotateKCache,
        ids: Sequence[int],
        max_new_tokens: int,
        stop: StopFlag | None = None,
    ) -> Look:
        """Answer one picture again and record the attention of each token; as `batch`."""
        self._check_room(cache.notes, ids, max_new_tokens)
        notes, pieces, tokens, said = cache.notes, list[str](), list[int](), 0
        recorder = AnswerAttentionRecorder.of(cache.plan.layers)
        with self._room([cache], len(ids) + max_new_tokens, stop) as rows:
            (row,) = self._read([cache], ids, max_new_tokens, stop, recorder=recorder)
            rows[""] = row
            self.engine.scheduler.join([row])
            for pick in _picks(self.engine, row):
                tokens.append(pick.token)
                piece, said = newly_said(self.vlm, tokens, said)
                pieces.append(piece)
            self.engine.scheduler.leave([row])  # its cache is whole again
            found = None
            if not row.missed and cache.plan.visual_kept == notes.visual_tokens:
                every = torch.ones(notes.visual_tokens, dtype=torch.bool)
                found = recorder.finish(row.cache, every, None)
        return Look(tuple(pieces), found, notes.grids)

    @contextmanager
    def _room(
        self, caches: Collection[RotateKCache], tokens: int, stop: StopFlag | None
    ) -> Iterator[dict[str, Row]]:
        """Wait for the memory of pages that read and generate so many tokens. Rows that are put
        into the mapping leave the running batch at the end."""
        most = len(caches) * self.vlm.full_bytes(tokens, states=0)
        for cache in caches:
            opened = self.vlm.full_bytes(cache.notes.tokens) if self.opens else 0
            most += max(cache.bytes().total, opened)
        lease = self.engine.admission.ask(most)
        rows: dict[str, Row] = {}
        try:
            for _ in lease.queued(stop):
                pass
            yield rows
        finally:
            self.engine.scheduler.leave(list(rows.values()))
            for row in rows.values():
                release(row.cache)
            lease.release()

    def _fill(
        self,
        rows: dict[str, Row],
        failed: dict[str, str],
        held: Mapping[str, RotateKCache],
        ids: Sequence[int],
        max_new_tokens: int,
        stop: StopFlag | None,
    ) -> None:
        """Put rows that have read the question into `rows`, by their pictures' names: all in one
        pass, or one by one where that fails. Why some cannot goes into `failed`."""
        number = next(self.engine.scheduler.requests)
        together = [name for name, cache in held.items() if SideBySide.fits(cache)]
        parts = [together] if together else []
        parts += [[name] for name in held if name not in together]
        while parts:
            asked = parts.pop(0)
            caches = [held[name] for name in asked]
            try:
                made = self._read(caches, ids, max_new_tokens, stop, number)
                rows.update(zip(asked, made, strict=True))
            except Stopped:
                raise
            except Exception as error:
                if len(asked) > 1:
                    parts += [[name] for name in asked]
                else:
                    failed[asked[0]] = _said(error)

    def _read(
        self,
        held: Sequence[RotateKCache],
        ids: Sequence[int],
        max_new_tokens: int,
        stop: StopFlag | None,
        number: int | None = None,
        recorder: AnswerAttentionRecorder | None = None,
    ) -> list[Row]:
        """Rows of the running batch, whose copies of caches have read the question in one pass.
        Several are such that `SideBySide` fits; number: of the request, a new one if none."""
        number = next(self.engine.scheduler.requests) if number is None else number
        with torch.inference_mode():
            copies = [cache.fork(len(ids)) for cache in held]
            if self.opens:
                for cache in copies:
                    _open_stores(cache)
            tokens = torch.tensor([list(ids)], device=self.vlm.device).expand(len(copies), -1)
            position = torch.cat([cache.notes.next_position for cache in held])
            behind = copies[0] if len(copies) == 1 else SideBySide(copies)
            with self.engine.scheduler.prefill(stop), own_calls(queries=recorder):
                logits, _ = feed(self.vlm, tokens, position, behind)
        rows = []
        for cache, own in zip(copies, logits.split(1), strict=True):
            cache.make_growing()
            start = int(cache.notes.next_position[0]) + len(ids)
            watcher = None if recorder is None else recorder.see
            rows.append(Row(
                cache, own, start, max_new_tokens, stop, request=number, watcher=watcher,
                needed=recorder is not None,
            ))  # fmt: skip
        return rows

    def _answer(self, name: str, row: Row | None, error: str) -> Answer:
        tokens, total = [], 0.0
        try:
            for pick in _picks(self.engine, row) if row is not None and not error else ():
                tokens.append(pick.token)
                total += math.log(max(pick.probability, 1e-30))
        except Exception as failure:
            error = _said(failure)
        if error:
            return Answer(name, "", 0.0, 0, error)
        text = text_of(self.vlm, tokens).strip()
        return Answer(name, text, math.exp(total / max(len(tokens), 1)), len(tokens))


def _open_stores(cache: RotateKCache) -> None:
    """Rebuild Keys and Values once where every step would rebuild them, page by page: in one form
    all pages share an attention call. The values are the same up to rounding."""
    for layer in key_layers(cache):
        if layer.store is not None:
            visual, like = layer.store.read(), layer.text.keys
            keys, values = (part.to(like.dtype) for part in expanded(visual, like.shape[-1]))
            layer.store = Store(Narrow(keys, values, visual.lengths))


def _picks(engine: Engine, row: Row) -> Iterator[SampledToken]:
    """A row's tokens before its end."""
    while (pick := engine.scheduler.next(row)) is not None:
        if pick.token in engine.vlm.stop_ids:
            return
        yield pick


def _said(failure: Exception) -> str:
    return OutOfMemory.sentence if is_out_of_memory(failure) else public_message(failure)
