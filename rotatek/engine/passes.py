"""Forward passes over any cache: prompts of several settings, a later text, one new token a row.

Caches of several settings are filled from as few prefills as there are ways to drop tokens.
General questions weigh a prompt for any question: they are read behind it, and dropped. They leave
no token in the cache, and depend on no later question. A prompt's own last queries weigh with them
(`weighting="general"`); a picture without a question has nothing else (`rotatek.pictures`).
"""

import copy
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer

from rotatek.bridge.layers import (
    emptied,
    forget_states,
    key_layers,
    owners,
    restore,
    state_layers,
    state_of,
)
from rotatek.bridge.row_layout import WINDOW, Layout
from rotatek.bridge.scope import with_cache
from rotatek.cache.layer import AttendingCache
from rotatek.cache.measures import Stopwatch, synchronise
from rotatek.cache.prefill_layer import Recorder, SharedLayer
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.token_plan import TokenPlan, layout_of
from rotatek.errors import RequestTooLong
from rotatek.inputs.prompt import encode_follow_up
from rotatek.inputs.request import Asked
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import TokenPruner
from rotatek.models import Embedded, Prompt, VisionLanguageModel
from rotatek.models.base import NOTHING_SHOWN, Seen
from rotatek.models.memory import is_out_of_memory

GENERAL: Final = (
    "What is the title? Who is it from, and to whom? What is the date? How much is the total? "
    "Which is the largest, and which is the smallest? What comes first, and what comes last?"
)


@torch.inference_mode()
def prefill(vlm: VisionLanguageModel, embedded: Embedded, cache: Cache) -> tuple[Tensor, float]:
    """Run the prompt into an empty cache: next-token logits [B, vocabulary] in float32, and
    milliseconds."""
    started = time.perf_counter()
    logits = vlm.read(embedded, cache)
    synchronise(vlm.device)
    return logits.float(), 1000 * (time.perf_counter() - started)


@torch.inference_mode()
def feed(
    vlm: VisionLanguageModel, tokens: Tensor, position: Tensor, cache: Cache
) -> tuple[Tensor, float]:
    """Add tokens [B, T] behind a filled cache, on a GPU by replaying graphs where that is possible;
    position: [B] of the first of them. Returns as `prefill`."""
    started = time.perf_counter()
    positions = _positions(vlm, tokens, position)
    logits, reason = None, None
    try:
        logits = vlm.questions.ask(vlm.model, tokens, positions, cache)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        reason = str(error) or type(error).__name__
    if reason is not None:  # outside the handler: the error refers to what did not fit
        vlm.questions.forget(reason)
    if logits is None:
        logits = _logits(vlm, tokens, positions, cache, 1)[:, -1].float()
        synchronise(vlm.device)
    return logits, 1000 * (time.perf_counter() - started)


@torch.inference_mode()
def read_on(vlm: VisionLanguageModel, tokens: Tensor, position: Tensor, cache: Cache) -> Tensor:
    """Logits [B, T, vocabulary] behind each token, by the model itself; arguments as of `feed`."""
    return _logits(vlm, tokens, _positions(vlm, tokens, position), cache, tokens.shape[1])


def _positions(vlm: VisionLanguageModel, tokens: Tensor, position: Tensor) -> Tensor:
    steps = position[:, None] + torch.arange(tokens.shape[1], device=position.device)
    return vlm.positions_at(steps.flatten())[..., 0].unflatten(-1, tokens.shape)


def _logits(
    vlm: VisionLanguageModel, tokens: Tensor, positions: Tensor, cache: Cache, kept: int
) -> Tensor:
    """Of the last `kept` tokens."""
    given = {"input_ids": tokens, "position_ids": positions, "logits_to_keep": kept}
    return vlm.model(**given, use_cache=True, **with_cache(vlm.model, cache)).logits


@torch.inference_mode()
def forward_one(vlm: VisionLanguageModel, tokens: Tensor, position: Tensor, cache: Cache) -> Tensor:
    """Feed one token a row, [B] at positions [B]: next-token logits [B, vocabulary] in float32. The
    work is queued."""
    return _logits(vlm, tokens[:, None], vlm.positions_at(position), cache, 1)[:, -1].float()


def by_pruning(settings: Iterable[Settings]) -> list[list[Settings]]:
    """Settings that one prefill serves, together, in order of first appearance: those that drop the
    same tokens, and that general questions weigh or do not."""
    groups: dict[Hashable, list[Settings]] = {}
    for one in settings:
        groups.setdefault((one.pruning, one.channels.asks_generally), []).append(one)
    return list(groups.values())


class Prefill(NamedTuple):
    """What one prefill reads, and for which settings; ms: of the vision tower."""

    settings: list[Settings]
    embedded: Embedded
    plan: TokenPlan
    ms: float


def prefills_of(
    vlm: VisionLanguageModel,
    prompt: Prompt,
    settings: Iterable[Settings],
    look: Callable[[TokenPruner], Seen] | None = None,
    turn: Callable[[], AbstractContextManager] = nullcontext,
) -> Iterator[Prefill]:
    """The prefills that settings need; most of them share the vision tower's run.

    Args:
        vlm: the model.
        prompt: what they read.
        settings: in any order.
        look: the tokens that a pruner leaves of the pictures, where they may be known already.
        turn: the device, for one run of the tower.
    """
    seen: dict[TokenPruner | None, tuple[Embedded, float]] = {}
    for alike in by_pruning(settings):
        pruner, general = alike[0].pruning, alike[0].channels.asks_generally
        view = pruner if pruner.stage == "encoder" else None  # pruners after the tower share it
        with turn():
            if view not in seen:
                started = time.perf_counter()
                known = None if look is None or not prompt.pixels.runs else look(pruner)
                embedded = vlm.embed(prompt, pruner, known)
                seen[view] = embedded, 1000 * (time.perf_counter() - started)
            embedded, ms = seen[view]
            layout = layout_of(vlm.model, embedded.inputs())
            if general:  # questions that `fill` reads behind it weigh, too
                layout = layout_behind(layout, turn_of(vlm, GENERAL).ids.shape[1])
            plan = TokenPlan(layout, pruner, vlm.key_layers)
        yield Prefill(alike, embedded, plan, ms)


def empty_cache(
    vlm: VisionLanguageModel,
    embedded: Embedded,
    settings: Settings,
    plan: TokenPlan,
    recorder: Recorder | None = None,
) -> Cache:
    """A cache for `fill`: transformers' own where nothing is compressed."""
    if settings.is_baseline:
        cache = DynamicCache(config=vlm.model.config)  # its windows are transformers' own
        del cache.layers[owners(vlm.model) :]
        return cache
    return RotateKCache(vlm.model, embedded.inputs(), settings, recorder=recorder, plan=plan)


class SharedPrefill(AttendingCache):
    """One prefill that fills several caches, `RotateKCache`s made with `plan`, or plain ones where
    nothing is pruned; decode with these. timed: whether to measure what each of them adds; if not,
    what two of them would compute alike is computed once."""

    def __init__(self, plan: TokenPlan, members: Sequence[Cache], *, timed: bool = True) -> None:
        self.plan = plan
        self.watches: list[list[Stopwatch]] = [[] for _ in members]  # of what each one adds
        for cache in members:
            if not isinstance(cache, RotateKCache):
                cache.layers.extend(DynamicLayer() for _ in range(plan.layers - len(cache.layers)))
        self._members = members
        watches = self.watches if timed else None
        shared = (
            SharedLayer(number, plan, layers, watches)
            for number, layers in enumerate(zip(*map(key_layers, members), strict=True))
        )
        super().__init__(
            layers=[
                next(shared) if isinstance(layer, CacheLayerMixin) else emptied(layer)
                for layer in members[0].layers
            ]
        )

    def end(self) -> None:
        """Every member gets a copy of the states."""
        self.plan.end()
        for cache in self._members:
            if isinstance(cache, RotateKCache):
                cache.end()
        for own, *theirs in zip(state_layers(self), *map(state_layers, self._members), strict=True):
            for layer in theirs:
                restore(layer, state_of(own))


def fill(
    vlm: VisionLanguageModel,
    embedded: Embedded,
    plan: TokenPlan,
    caches: Sequence[Cache],
    *,
    timed: bool = True,
    aside: Tensor | None = None,
) -> tuple[Tensor, list[float]]:
    """Fill empty caches of one plan from one forward pass.

    Args:
        vlm: the model.
        embedded: the prompt, or a padded batch of them.
        plan: the token plan that the caches were made with.
        caches: of `empty_cache`.
        timed: whether to measure the additional time of each of several caches.
        aside: ids [1, n] of what the plan has behind the prompt; by default the general questions.

    Returns:
        next-token logits [B, vocabulary], and each cache's milliseconds: the pass and its own share
        where they are timed, or the total where they are not.
    """
    shared = SharedPrefill(plan, caches, timed=timed and len(caches) > 1)
    whole = embedded
    if plan.length > embedded.embeds.shape[1]:
        whole = _read_behind(vlm, embedded, turn_of(vlm, GENERAL).ids if aside is None else aside)
    logits, ms = prefill(vlm, whole, shared)
    # A state cannot forget what was read behind the prompt, so that is read once more. Other layers
    # have forgotten it already.
    for cache in caches if whole.aside and state_layers(shared) else ():
        plain = DynamicCache(config=vlm.model.config)
        vlm.read(embedded, plain)
        forget_states(cache)
        for own, seen in zip(state_layers(cache), state_layers(plain), strict=True):
            restore(own, state_of(seen))
    added = [1000 * sum(watch.seconds for watch in own) for own in shared.watches]
    return logits, [ms - sum(added) + own for own in added]


def forked(cache: Cache) -> Cache:
    """A filled cache that goes on by itself, for another answer to the same prompt; what no step
    writes to is shared."""
    if isinstance(cache, RotateKCache):
        return cache.fork()
    own = DynamicCache()
    own.layers = [
        copy.copy(layer)
        if isinstance(layer, CacheLayerMixin)
        else restore(emptied(layer), state_of(layer))
        for layer in cache.layers
    ]
    return own


def turn_of(vlm: VisionLanguageModel, question: Asked) -> Prompt:
    """A follow-up question, of clean text, as the model's input: from the end of an answer to the
    next one's start."""
    ids = encode_follow_up(vlm.tokenizer, question)
    tensor = torch.tensor([ids], device=vlm.device)
    return Prompt(tensor, torch.zeros_like(tensor, dtype=torch.bool), NOTHING_SHOWN)


def layout_behind(layout: Layout, tokens: int, window: int = WINDOW) -> Layout:
    """The layout [B, L + n] of a prompt [B, L] with n tokens behind it, which weigh and are then
    forgotten; window: how many of the prompt's own last tokens weigh with them."""
    behind = 0, tokens
    return Layout(
        pad(layout.visual, behind),
        pad(layout.valid, behind, value=True),
        window + tokens,
        pad(torch.zeros_like(layout.visual), behind, value=True),
    )


def _read_behind(vlm: VisionLanguageModel, embedded: Embedded, ids: Tensor) -> Embedded:
    """A prompt with `ids` [1, n] behind it, for `fill`: its logits are those of the prompt; its
    next position is that behind `ids`."""
    rows, (B, length), room = ids.shape[1], embedded.visual.shape, vlm.context()
    if room is not None and length + rows > room:
        raise RequestTooLong
    words = ids.expand(B, -1)
    places = [vlm.positions_at(embedded.next_position + step) for step in range(rows)]
    embeds = vlm.model.get_input_embeddings()(words).to(embedded.embeds)
    return replace(
        embedded,
        embeds=torch.cat([embedded.embeds, embeds], 1),
        positions=torch.cat([embedded.positions, *places], -1),
        visual=pad(embedded.visual, (0, rows)),
        valid=pad(embedded.valid, (0, rows), value=True),
        next_position=embedded.next_position + rows,
        words=None if embedded.words is None else torch.cat([embedded.words, words], 1),
        aside=rows,
    )
