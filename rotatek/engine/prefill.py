"""Caches of several settings, filled from as few prefills as there are ways to drop tokens."""

import copy
import time
from collections.abc import Callable, Hashable, Iterable, Sequence

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer

from rotatek.bridge.fitness import owners
from rotatek.bridge.state_layers import (
    copied,
    emptied,
    key_layers,
    restore,
    state_layers,
    state_of,
)
from rotatek.cache.device_timing import Stopwatch
from rotatek.cache.layer import AttendingCache
from rotatek.cache.prefill_layer import PrefillLayer, Recorder
from rotatek.cache.rotatek_cache import RotateKCache
from rotatek.cache.token_plan import TokenPlan, layout_of
from rotatek.engine.decode import prefill
from rotatek.engine.general_questions import (
    forget_behind,
    general_turn,
    layout_behind,
    read_behind,
)
from rotatek.methods.settings import Settings
from rotatek.methods.tokens import TokenPruner
from rotatek.models import Embedded, Prompt, VisionLanguageModel
from rotatek.models.base import Seen


def by_pruning(settings: Iterable[Settings]) -> list[list[Settings]]:
    """Settings that one prefill serves, together, in order of first appearance: those that drop the
    same tokens, and that general questions weigh or do not."""
    groups: dict[Hashable, list[Settings]] = {}
    for one in settings:
        groups.setdefault((one.pruning, one.asks_generally), []).append(one)
    return list(groups.values())


def plan_for(
    vlm: VisionLanguageModel,
    embedded: Embedded,
    pruner: TokenPruner,
    general: bool = False,
) -> TokenPlan:
    """The token plan of one prefill.

    Args:
        vlm: the model.
        embedded: the prompt, or a padded batch of them.
        pruner: which tokens it drops.
        general: whether general questions, which `fill` reads behind it, weigh, too.
    """
    layout = layout_of(vlm.model, embedded.inputs())
    if general:
        layout = layout_behind(layout, general_turn(vlm).shape[1])
    return TokenPlan(layout, pruner, vlm.key_layers)


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
    """One prefill that fills several caches of the same token plan; decode with the members.

    members: `RotateKCache`s made with `plan`, or plain transformers caches where nothing is pruned.
    timed: whether to measure what each member adds; if not, what two of them would compute alike is
    computed once.
    """

    def __init__(self, plan: TokenPlan, members: Sequence[Cache], *, timed: bool = True) -> None:
        self.plan = plan
        self._watches: list[list[Stopwatch]] = [[] for _ in members]
        for cache in members:
            if not isinstance(cache, RotateKCache):
                cache.layers.extend(DynamicLayer() for _ in range(plan.layers - len(cache.layers)))
        self._members = members
        watches = self._watches if timed else None
        shared = (
            PrefillLayer(number, plan, None, layers, watches)
            for number, layers in enumerate(zip(*map(key_layers, members), strict=True))
        )
        super().__init__(
            layers=[
                next(shared) if isinstance(layer, CacheLayerMixin) else emptied(layer)
                for layer in members[0].layers
            ]
        )

    def end(self) -> None:
        """The prefill is over for every member, which gets a copy of the states."""
        self.plan.end()
        for cache in self._members:
            if isinstance(cache, RotateKCache):
                cache.end()
        for own, *theirs in zip(state_layers(self), *map(state_layers, self._members), strict=True):
            for layer in theirs:
                restore(layer, state_of(own))

    @property
    def compress_ms(self) -> list[float]:
        """Milliseconds each member has added to the prefill they share, where they are timed."""
        return [1000 * sum(watch.seconds for watch in own) for own in self._watches]


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
        aside: ids [1, n] of the rows that a plan has behind the prompt; by default the general
            questions.

    Returns:
        next-token logits [B, vocabulary], and each cache's milliseconds: the pass and its own share
        where they are timed, or the total where they are not.
    """
    shared = SharedPrefill(plan, caches, timed=timed and len(caches) > 1)
    whole = embedded
    if plan.length > embedded.embeds.shape[1]:
        whole = read_behind(vlm, embedded, general_turn(vlm) if aside is None else aside)
    logits, ms = prefill(vlm, whole, shared)
    for cache in caches if whole.aside else ():
        forget_behind(vlm, embedded, cache)
    added = shared.compress_ms
    return logits, [ms - sum(added) + own for own in added]


def forked(cache: Cache) -> Cache:
    """A filled cache that goes on by itself, for another answer to the same prompt; what no step
    writes to is shared."""
    if isinstance(cache, RotateKCache):
        return cache.fork()
    own = DynamicCache()
    own.layers = [
        copy.copy(layer) if isinstance(layer, CacheLayerMixin) else copied(layer)
        for layer in cache.layers
    ]
    return own


class SharedPrompt:
    """The shared data of one prompt's columns: the vision tower's output, and their token plans.

    Args:
        vlm: the model.
        prompt: the request as token ids and pixels.
        look: the tokens that a pruner leaves of the pictures, where they may be known already.
    """

    def __init__(
        self,
        vlm: VisionLanguageModel,
        prompt: Prompt,
        look: Callable[[TokenPruner], Seen] | None = None,
    ) -> None:
        self.vlm, self.prompt, self._look = vlm, prompt, look
        self._seen: dict[TokenPruner | None, tuple[Embedded, float]] = {}
        self._plans: dict[Hashable, TokenPlan] = {}

    def see(self, settings: Settings) -> None:
        """Compute what a pruner needs, unless another one has: most share the vision tower's
        run."""
        pruner, general = settings.pruning, settings.asks_generally
        view = _tower_view(pruner)
        if view not in self._seen:
            started = time.perf_counter()
            look = self._look if self.prompt.pixels.runs else None  # else there is nothing to see
            seen = None if look is None else look(pruner)
            embedded = self.vlm.embed(self.prompt, pruner, seen)
            self._seen[view] = embedded, 1000 * (time.perf_counter() - started)
        if (pruner, general) not in self._plans:
            plan = plan_for(self.vlm, self._seen[view][0], pruner, general=general)
            self._plans[pruner, general] = plan

    def under(self, settings: Settings) -> tuple[Embedded, TokenPlan, float]:
        """A setting's result: the embedded prompt, its plan, and the tower's milliseconds."""
        embedded, ms = self._seen[_tower_view(settings.pruning)]
        return embedded, self._plans[settings.pruning, settings.asks_generally], ms


def _tower_view(pruner: TokenPruner) -> TokenPruner | None:
    """The key of a pruner's vision features: pruners after the tower share them."""
    return pruner if pruner.stage == "encoder" else None
