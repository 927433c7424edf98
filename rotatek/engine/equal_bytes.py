"""Equal live bytes: each method's setting whose cache has as many bytes as another's.

Live bytes count everything, unlike nominal shares. They are measured: caches of all methods are
filled, and shares halved until they fit. A method first uses its own option; where its smallest
form is still too large, it drops tokens as well. A method with steps takes the nearest smaller one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from rotatek.cache.rotatek_cache import cache_bytes, release
from rotatek.engine.passes import empty_cache, fill, prefills_of
from rotatek.methods.channels import CHANNELS, ChannelMethod
from rotatek.methods.channels.base import Full
from rotatek.methods.settings import BASELINE, Settings, paper_form, pruners, reducers
from rotatek.methods.tokens import TokenPruner
from rotatek.models import Prompt, VisionLanguageModel

SLACK: Final = 1.02  # a method may pass the budget by so much
FEWEST: Final = 2**-7  # share of the tokens
SMALLEST: Final = 2**-6  # share of a method's numbers
HALVINGS: Final = 7  # of a search, in equal ratios: shares are then exact to 4 %
ALONE: Final = ""  # the name of dropped tokens alone, until it is known which


def measured(vlm: VisionLanguageModel, prompt: Prompt, settings: Sequence[Settings]) -> list[int]:
    """Live bytes under each of some settings when the prompt has been read, from one prefill for
    all that drop the same tokens."""
    totals: dict[Settings, int] = {}
    for alike, embedded, plan, _ in prefills_of(vlm, prompt, dict.fromkeys(settings)):
        caches = [empty_cache(vlm, embedded, one, plan) for one in alike]
        fill(vlm, embedded, plan, caches, timed=False)
        totals |= dict(zip(alike, (cache_bytes(cache).total for cache in caches), strict=True))
        for cache in caches:
            release(cache)
    return [totals[one] for one in settings]


def rivals() -> dict[str, ChannelMethod]:
    """Registered forms that store every number in fewer bits, by short names."""
    every = {name: kind() for name, kind in CHANNELS.items()}
    return {
        name: one
        for name, one in every.items()
        if not (one.drops_channels or one.stores_everything)
    }


def matched_live(
    vlm: VisionLanguageModel, prompt: Prompt, chosen: Settings, **options: Any
) -> dict[str, Settings]:
    """The uncompressed model, dropped tokens alone, and every method, by short names, at the live
    bytes that `chosen` has on a prompt; options: flat, for the methods that have them."""
    own, least = chosen.channels, dict[str, ChannelMethod]({ALONE: Full()})
    least |= {name: one.with_share(0.0) for name, one in rivals().items()}
    for method in reducers():
        name = method.name if method.name != own.name else f"{method.name} as in its paper"
        if method.name != own.name or own != own.of_paper():
            least[name] = paper_form(chosen, method.name, options)
    found = dict(zip(least, _within(vlm, prompt, chosen, [*least.values()]), strict=True))
    alone = found.pop(ALONE)
    mine = own.name if own.drops_channels else f"{own.name} as chosen"
    return {"baseline": BASELINE, f"{alone.tokens.name} only": alone, **found, mine: chosen}


def _within(
    vlm: VisionLanguageModel, prompt: Prompt, chosen: Settings, least: Sequence[ChannelMethod]
) -> list[Settings]:
    """Each method at the live bytes of `chosen`; least: in its smallest form, below which tokens
    are dropped, by the first pruner that drops enough."""
    plain = [Settings(channels=one) for one in least]
    budget, *sizes = measured(vlm, prompt, [chosen, *plain])

    def search(made: Mapping[int, Callable[[float], Settings]], low: float) -> dict[int, Settings]:
        """The largest settings within the budget, by places; all shares are halved together."""
        ends = dict.fromkeys(made, (low, 1.0))
        found: dict[int, Settings] = {}
        for _ in range(HALVINGS if made else 0):
            middle = {place: math.sqrt(few * most) for place, (few, most) in ends.items()}
            tried = {place: made[place](share) for place, share in middle.items()}
            totals = measured(vlm, prompt, [*tried.values()])
            for (place, share), total in zip(middle.items(), totals, strict=True):
                if total <= SLACK * budget:
                    found[place], ends[place] = tried[place], (share, ends[place][1])
                else:
                    ends[place] = ends[place][0], share
        return found

    def with_share(method: ChannelMethod, share: float) -> Settings:
        return Settings(channels=method.with_share(share))

    fits = [place for place, size in enumerate(sizes) if size <= SLACK * budget]
    shares = {place: partial(with_share, least[place]) for place in fits}
    found = {place: plain[place] for place in fits} | search(shares, SMALLEST)
    first = chosen.tokens if chosen.prunes_tokens else pruners()[0]()
    others = [kind() for kind in pruners() if kind.of_paper and kind.name != first.name]
    for pruner in (first, *others):
        left = [place for place in range(len(least)) if place not in found]
        found |= search({place: partial(_dropped, pruner, least[place]) for place in left}, FEWEST)
    smallest = (_dropped(pruner, one, FEWEST) for one in least)  # where no pruner drops enough
    return [found.get(place, one) for place, one in enumerate(smallest)]


def _dropped(pruner: TokenPruner, method: ChannelMethod, share: float) -> Settings:
    return Settings(pruner.with_keep(share), method)
