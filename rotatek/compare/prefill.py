"""Caches of several settings, filled from as few prefills as there are ways to drop tokens."""

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache

from rotatek.attention import decoder_layers
from rotatek.cache.compressed import RotateKCache
from rotatek.cache.filling import Recorder
from rotatek.cache.metrics import OutputMetrics
from rotatek.cache.plan import TokenPlan, layout_of
from rotatek.layout import Layout
from rotatek.settings import Settings
from rotatek.tokens import TokenPruner


def by_pruning(settings: Iterable[Settings]) -> list[list[Settings]]:
    """Settings that drop the same tokens, together, in order of first appearance."""
    groups: dict[TokenPruner, list[Settings]] = {}
    for one in settings:
        groups.setdefault(one.pruning, []).append(one)
    return list(groups.values())


def plan_for(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    pruner: TokenPruner,
    layout: Layout | None = None,
) -> TokenPlan:
    """The plan of one prefill; layout: where its tokens are, if that is known."""
    return TokenPlan(layout or layout_of(model, inputs), pruner, len(decoder_layers(model)))


def empty_cache(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    settings: Settings,
    plan: TokenPlan,
    metrics: OutputMetrics,
    recorder: Recorder | None = None,
) -> Cache:
    """A cache that `SharedPrefill` fills: transformers' own where nothing is compressed."""
    if settings.is_baseline:
        return DynamicCache()
    return RotateKCache(model, inputs, settings, recorder=recorder, metrics=metrics, plan=plan)


def empty_caches(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    settings: Sequence[Settings],
    plan: TokenPlan,
    metrics: OutputMetrics,
) -> list[Cache]:
    """One of each of several settings that share a plan."""
    return [empty_cache(model, inputs, one, plan, metrics) for one in settings]
