"""Equal live bytes: each method's setting whose cache has as many bytes as another's.

Nominal shares do not count bases, scales, masks, text and the layers that a pruner leaves complete;
live bytes count everything. A method first uses its own option; where its smallest form is still
too large, it drops tokens as well. A method with steps takes the nearest smaller one, so the
reported figure is the one that its cache then really has.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from rotatek.bridge.kv_sharing import kv_shapes
from rotatek.bridge.row_layout import TEXT_STEP
from rotatek.cache.rotatek_cache import cache_bytes, release
from rotatek.compare.columns import default_pruner, paper_form, pruners, reducers
from rotatek.engine.prefill import by_pruning, empty_cache, fill, plan_for
from rotatek.methods.channels import CHANNELS, ChannelMethod
from rotatek.methods.channels.full import Full
from rotatek.methods.settings import BASELINE, Settings
from rotatek.methods.tokens import TOKENS, TokenPruner
from rotatek.models import Prompt, VisionLanguageModel

Weigh = Callable[[Settings], float]  # live bytes, or a share of them

SLACK: Final = 1.02  # a method with steps may pass the budget by so much
NEAR: Final = 1.05  # of a budget: who weighs more has not met it
POINTS: Final = 9  # of a measured curve
HALVINGS: Final = 16  # of a search: shares are then exact to 2e-5


class Shape(NamedTuple):
    """The sizes that a cache's bytes follow from, beside its settings.

    Attributes:
        heads: Key heads and their width, of each layer that has Keys.
        visual: visual tokens of the prompt.
        text: its other tokens.
        itemsize: bytes of a number as the model computes.
        state: bytes of layers that have a state in place of Keys.
    """

    heads: tuple[tuple[int, int], ...]
    visual: int
    text: int
    itemsize: int
    state: int = 0

    @classmethod
    def of(cls, vlm: VisionLanguageModel, prompt: Prompt) -> "Shape":
        """That of one prompt."""
        visual = prompt.visual_tokens
        return cls(
            tuple(kv_shapes(vlm.model)),
            visual,
            prompt.ids.shape[1] - visual,
            vlm.model.get_input_embeddings().weight.element_size(),
            vlm.state_bytes,
        )

    @property
    def token(self) -> int:
        """Bytes of an uncompressed token."""
        return 2 * sum(heads * width for heads, width in self.heads) * self.itemsize

    @property
    def full(self) -> int:
        """Bytes of the uncompressed cache."""
        return self.token * (self.visual + self.text) + self.state

    def budget(self, times: float) -> float:
        """Bytes of a cache whose visual tokens take `times` times less, in any form.

        Every method stores text and states in the same way, so only visual tokens are fewer.
        """
        rows = -(-self.text // TEXT_STEP) * TEXT_STEP
        return self.token * (rows + self.visual / times) + self.state


def predicted(settings: Settings, shape: Shape) -> int:
    """Live bytes after the prompt, by the methods' own counts.

    Exact where all heads keep the same widths; where they adapt, as of spectra that fall alike.
    """
    if settings.is_baseline:
        return shape.full
    method, layers = settings.channels, len(shape.heads)
    counts = settings.pruning.tokens_by_layer(layers, shape.visual)
    visual = 0
    for heads, width in sorted(set(shape.heads)):
        tokens = [n for n, own in zip(counts, shape.heads, strict=True) if own == (heads, width)]
        spectra = (0.9 ** torch.arange(width)).expand(len(tokens), heads, -1)
        keys, values = method.key_widths(spectra), method.value_widths(spectra)
        each = torch.tensor(tokens)[:, None]
        visual += int(method.head_bytes(keys, values, each, width, shape.itemsize).sum())
    text = -(-shape.text // TEXT_STEP) * TEXT_STEP * shape.token
    lengths = 4 * (layers + len(set(counts)))  # a count a layer, and shared ones of the rows
    drops = settings.prunes_tokens and settings.pruning.stage == "decoder"
    marks = (3 if drops else 2) * (counts[0] + shape.text)  # rows that are visual, padding, kept
    return visual + text + lengths + marks + shape.state


def measured(
    vlm: VisionLanguageModel, prompt: Prompt, pruner: TokenPruner, methods: Sequence[ChannelMethod]
) -> list[int]:
    """Live bytes of each method when the prompt has been read, from one prefill for all."""
    embedded = vlm.embed(prompt, pruner)
    settings = [Settings(pruner, one) for one in methods]
    totals: dict[Settings, int] = {}
    for alike in by_pruning(settings):
        plan = plan_for(vlm, embedded, pruner, general=alike[0].asks_generally)
        caches = [empty_cache(vlm, embedded, one, plan) for one in alike]
        fill(vlm, embedded, plan, caches, timed=False)
        totals |= dict(zip(alike, (cache_bytes(cache).total for cache in caches), strict=True))
        for cache in caches:
            release(cache)
    return [totals[one] for one in settings]


class Scale:
    """The bytes of settings on one prompt: predicted, or interpolated from measurements where heads
    adapt.

    Args:
        vlm: the model.
        prompt: a typical one.
        forms: methods whose bytes depend on the prompt's content; each is measured at `POINTS`
            shares, in one prefill for all.
    """

    def __init__(
        self, vlm: VisionLanguageModel, prompt: Prompt, forms: Sequence[ChannelMethod] = ()
    ) -> None:
        self.shape = Shape.of(vlm, prompt)
        self.curves: dict[ChannelMethod, tuple[list[float], list[int]]] = {}
        least = [form.with_share(0.0) for form in forms]
        ladders = [[one.with_share(share) for share in _shares(one)] for one in least]
        rungs = [method for ladder in ladders for method in ladder]
        totals = iter(measured(vlm, prompt, TOKENS.default(), rungs) if rungs else ())
        for one, ladder in zip(least, ladders, strict=True):
            places = [method.nominal_share for method in ladder]
            self.curves[one] = places, [next(totals) for _ in ladder]

    def __call__(self, settings: Settings) -> float:
        """Live bytes."""
        curve = self.curves.get(settings.channels.with_share(0.0))
        if curve is None or settings.prunes_tokens:
            return predicted(settings, self.shape)
        return float(np.interp(settings.channels.nominal_share, *curve))


def _shares(least: ChannelMethod) -> list[float]:
    """From a form's least nominal share to all of it, in equal ratios."""
    start = max(least.nominal_share, 1e-3)
    return [start ** (1 - place / (POINTS - 1)) for place in range(POINTS)]


def rivals() -> dict[str, ChannelMethod]:
    """Registered forms that store every number in fewer bits, by short names."""
    found: dict[str, ChannelMethod] = {}
    for name, kind in CHANNELS.items():
        forms = [one for one in kind.variants().values() if not one.drops_channels]
        light = [one for one in forms if not one.stores_everything]
        found |= {name if len(light) == 1 else f"{name} {one.form}": one for one in light}
    return found


def matched_live(
    chosen: Settings, target: float, weigh: Weigh, **options: Any
) -> dict[str, Settings]:
    """The uncompressed model, dropped tokens alone, and every method, at equal live bytes.

    The chosen settings do not change, and every other method is solved for their bytes.

    Args:
        chosen: the settings that set the budget.
        target: their bytes.
        weigh: the bytes of any settings.
        options: flat options for the methods that have them.

    Returns:
        settings by short names.
    """
    pruner = chosen.tokens if chosen.prunes_tokens else default_pruner()()
    others = [kind() for kind in pruners() if kind.of_paper and kind.name != pruner.name]
    droppers = [pruner, *others]
    alone = settings_for_budget(Full(), droppers, target, weigh)
    columns = {"baseline": BASELINE, f"{alone.tokens.name} only": alone}
    for name, rival in rivals().items():
        columns[name] = settings_for_budget(rival.with_share(0.0), droppers, target, weigh)
        if rival.name == chosen.channels.name and rival.form == chosen.channels.form:
            columns[name] = chosen
    for method in reducers():
        plain = settings_for_budget(
            paper_form(chosen, method.name, options), droppers, target, weigh
        )
        own = method.name == chosen.channels.name
        columns[method.name] = chosen if own else plain
        if own and chosen.channels.extensions:
            columns[f"{method.name} as in its paper"] = plain
    if chosen not in columns.values():
        columns[f"{chosen.channels.name} as chosen"] = chosen
    return columns


def settings_for_budget(
    least: ChannelMethod, droppers: Sequence[TokenPruner], target: float, weigh: Weigh
) -> Settings:
    """A method at a budget of live bytes.

    Args:
        least: the method in its smallest form, below which tokens are dropped.
        droppers: token pruners to try in turn; the last is used where none reaches the budget.
        target: bytes.
        weigh: the bytes of settings.

    Returns:
        the largest settings within the target, or the smallest ones where none are.
    """
    whole = TOKENS.default()
    if weigh(Settings(whole, least)) <= SLACK * target:
        return _most(
            lambda share: Settings(whole, least.with_share(share)),
            least.nominal_share,
            SLACK * target,
            weigh,
        )
    for pruner in droppers:
        found = _most(partial(_dropped, pruner, least), 0.0, target, weigh)
        if weigh(found) <= NEAR * target:
            break
    return found


def _dropped(pruner: TokenPruner, method: ChannelMethod, share: float) -> Settings:
    return Settings(pruner.with_keep(share), method)


def _most(made: Callable[[float], Settings], low: float, target: float, weigh: Weigh) -> Settings:
    """The largest share in (low, 1] whose settings take at most `target` bytes."""
    high = 1.0
    if weigh(made(high)) <= target:
        return made(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if weigh(made(middle)) <= target else (low, middle)
    low = max(low, 2.0**-HALVINGS)
    unit = 10.0 ** (math.floor(math.log10(low)) - 2)  # three significant digits, rounded down
    return made(round(math.floor(low / unit) * unit, 8))
