"""The goals of channels of a few bits, each with its measured figure, from committed data.

Goals were set before anything was built. `stored_table` draws what caches weigh in files.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from docs import frontier
from docs.figures import data, measured, rows, share, times
from rotatek.evaluation.metrics import points

Row = tuple[str, str, str]
STORED: Final = "python -m benchmarks stored-sizes --json assets/results/stored.json"
SETTING: Final = ".75 bits"
OPEN: Final = "open"
BITS: Final = "python -m benchmarks bits-quality --suite suite --json assets/results/bits.json"
PLAIN: Final = math.inf  # bits, of the cache that others are compared with


def goals() -> Iterator[Row]:
    """Goal, measured, met."""
    yield from answers()
    yield from live_bytes()
    yield from attention()
    yield from speed()
    yield from files()


def _met(good: bool) -> str:
    return "yes" if good else "no"


def _pictures(model: str) -> list[dict[str, Any]]:
    """The pictures whose caches were stored of a model."""
    found = data("stored").get("models", {}).get(model, {}).get("pictures", {})
    return list(found.values())


def _reach(values: Sequence[float], form: Callable[[float], str]) -> str:
    """The least and the most, or the one figure that they are."""
    least, most = form(min(values)), form(max(values))
    return least if least == most else f"{least} to {most}"


def _gap(model: str, arm: str) -> str:
    """What an arm loses on short questions, and how many more tokens of pages are wrong."""
    found = data("bits")[model]["figures"][arm]
    short, pages = found["short right"], found["wrong on pages"]
    return (
        f"{short['gap']:+.2f} points ({short['interval'][0]:+.1f} to {short['interval'][1]:+.1f}), "
        f"{pages['gap']:+.2f} % of pages' tokens wrong ({pages['interval'][0]:+.2f} to "
        f"{pages['interval'][1]:+.2f})"
    )


def _kept(model: str, arm: str, points: float) -> str:
    """Whether an arm loses at most so many points of short answers and one of pages' tokens."""
    found = data("bits")[model]["figures"][arm]
    kept = found["short right"]["gap"] >= -points and found["wrong on pages"]["gap"] <= 1
    return "in the tokens" if kept else "no"


def visual_share(one: dict[str, Any], setting: str = SETTING) -> float:
    """How many times fewer bytes the visual tokens take, bases and all but text counted."""
    row = one["rows"][setting]
    return float(one["plain_visual"] / (row["live"] - row["live_text"]))


def answers() -> Iterator[Row]:
    """What bits cost both embedded models."""
    found = _pictures("pocket")
    held = _reach([visual_share(one) for one in found], times) if found else "not measured"
    yield (
        "pocket: visual bytes 20 times fewer, at .5 points and 1 point of page error",
        f".75 bits, 21 times in the tokens, {held} with each prompt's bases: "
        + _gap("pocket", "own"),
        _kept("pocket", "own", 0.5),
    )
    yield (
        "the same, 26 times (stretch)",
        f".5 bits, 32 times in the tokens: {_gap('pocket', 'own .5')}",
        _kept("pocket", "own .5", 0.5),
    )
    yield (
        "pocket-llava: 8 times, at 1 point",
        f"2 bits, 8 times in the tokens: {_gap('pocket-llava', 'own 2')}; "
        f"1 bit, 16 times: {_gap('pocket-llava', 'own 1')}",
        _kept("pocket-llava", "own 2", 1.0),
    )
    for built in frontier.committed():
        budgets = list(strongest(built))
        ahead = [one.times for one in budgets if one.ahead]
        won = f"at {', '.join(ahead)} times" if ahead else "no"
        yield (
            f"{built['model']['name']}: better than every rival at equal live bytes, 2 to 32 times",
            "; ".join(f"{one.times} times {one.said}" for one in budgets) or "not measured yet",
            OPEN if not budgets else "yes" if len(ahead) == len(budgets) else won,
        )


class Strongest(NamedTuple):
    """Our best row of a budget of live bytes and the best of the others', with scores in 0 to 1.

    times: how many times smaller; difference and interval: ours less the rival's, paired.
    """

    times: str
    ours: str
    score: float
    rival: str
    other: float
    difference: float
    interval: tuple[float, float]

    @property
    def ahead(self) -> bool:
        """Whether the whole interval says that ours is better."""
        return self.interval[0] > 0

    @property
    def said(self) -> str:
        """The difference in points, with its interval."""
        return points(self.difference, self.interval)


def strongest(built: Mapping[str, Any]) -> Iterator[Strongest]:
    """Every budget of the table of rivals."""
    table = next((one for one in built["tables"] if one["name"] == "rivals"), None)
    if table is None:
        return
    scores = {row["label"]: row["score"] for row in table["rows"]}
    budgets: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for claim in table["claims"]:
        ours, _, rival = claim["expected"].partition(" at least ")
        if ours in scores and rival in scores:
            many = ours.rpartition(", ")[2].removesuffix("x")
            budgets.setdefault(many, []).append((ours, rival, claim))
    for many, pairs in sorted(budgets.items(), key=lambda pair: int(pair[0])):
        ours, rival, claim = max(pairs, key=lambda pair: (scores[pair[0]], scores[pair[1]]))
        low, high = claim["interval"]
        yield Strongest(
            many, ours, scores[ours], rival, scores[rival], claim["difference"], (low, high)
        )


def bits_heads() -> list[str]:
    """The heads of `bits_rows`, with how much was asked of which weights."""
    heads = [""]
    for model, found in data("bits").items():
        plain = found["figures"]["plain"]
        many = plain["short right"]["questions"], plain["wrong on pages"]["questions"]
        heads += [
            f"{model} (`{found['weights']}`): bytes",
            f"right of {many[0]} short answers, in percent",
            f"wrong tokens of {many[1]} pages, in percent",
        ]
    return heads


def bits_rows() -> Iterator[tuple[str, ...]]:
    """Every setting of bits, from many to few, own axes first: what it holds and what it costs."""
    models = [_by_bits(found) for found in data("bits").values()]
    for bits, lent in sorted(set().union(*models), key=lambda key: (-key[0], key[1])):
        cells = [_cells(found.get((bits, lent)), bits < PLAIN) for found in models]
        axes = f"{bits:g} bit{'s' * (bits != 1)}, {'calibrated' if lent else 'own'} axes"
        words = axes.removeprefix("0") if bits < PLAIN else "plain"
        yield words, *chain.from_iterable(cells)


def _by_bits(found: dict[str, Any]) -> dict[tuple[float, bool], dict[str, Any]]:
    """A model's figures by how many bits a number has, and whether a calibration lends axes."""
    figures = found["figures"]
    arms = {(a["bits"], n.startswith("cal")): figures[n] for n, a in found["arms"].items()}
    return {(PLAIN, False): figures["plain"]} | arms


def _cells(row: dict[str, Any] | None, paired: bool) -> list[str]:
    """Live bytes, short answers and pages, with the intervals of what is paired."""
    if row is None:
        return [""] * 3
    cells = [share(row["bytes"])]
    for what in ("short right", "wrong on pages"):
        low, high = row[what]["interval"]
        cells.append(f"{row[what]['mean']:.2f}" + f" ({low:+.2f} to {high:+.2f})" * paired)
    return cells


def live_bytes() -> Iterator[Row]:
    """Every live byte of a cache over the uncompressed one's."""
    for model, goal, most in (("pocket-llava", 2928, 0.10), ("pocket", 280, 0.25)):
        found = _pictures(model)
        if not found:
            continue
        tokens = min((one["tokens"] for one in found), key=lambda many: abs(many - goal))
        chosen = [one for one in found if one["tokens"] == tokens]
        shares = {
            text: [one["rows"][SETTING + text]["live"] / one["plain"] for one in chosen]
            for text in ("", ", 8-bit text")
        }
        own, eight = (_reach(each, share) for each in shares.values())
        with_text = max(shares[", 8-bit text"]) <= most < max(shares[""])
        yield (
            f"all bytes at {goal:,} visual tokens: {share(most, 2)} of dense",
            f"{own} at {tokens:,}; with 8-bit text {eight}",
            "with 8-bit text" if with_text else _met(max(shares[""]) <= most),
        )


ATTENTION: Final = ((32, 16384, 5.0, 2.5), (8, 16384, 4.5, None), (1, 16384, 2.5, None))


def attention() -> Iterator[Row]:
    """24 bytes a token and head, over the best dense kernels."""
    found = {(r["shape"]["Hq"], r["shape"]["B"], r["shape"]["N"]): r
             for r in rows("kernels", "planes")}  # fmt: skip
    for heads in (32, 28):
        for B, N, dense, fp8 in ATTENTION:
            row = found[heads, B, N]
            over, eight = row["over_best_dense"]["24"], row["over_fp8_dense"]["24"]
            also = f" and {fp8:g} times fp8" if fp8 else ""
            beside = f" and {times(eight)}" if fp8 else ""
            yield (
                f"attention at 24 bytes, {heads} heads, B = {B}, {N:,} tokens: {dense:g} times the "
                f"best bf16 dense{also}",
                f"{times(over)}{beside}",
                _met(over >= dense and eight >= (fp8 or 0)),
            )
    us = [found[heads, 1, 2880]["times"]["24"]["us"] for heads in (32, 28)]
    yield (
        "one call at B = 1, 2,880 tokens: 6.0 us",
        f"{measured(us[0])} (32 heads), {measured(us[1])} (28)",
        _met(max(us) <= 6),
    )


def speed() -> Iterator[Row]:
    """Serving, and what bits add to a prefill."""
    gains = {row["model"]: row.get("gain_digits") for row in rows("kernels", "capacity")}
    for model, least in (("Llama3-8B", 6), ("Qwen2.5-VL-7B", 5)):
        gain = gains.get(model)
        yield (
            f"tokens a second at equal KV memory, 16,384 visual tokens, {model}: {least} times",
            "not measured yet" if gain is None else times(gain),
            OPEN if gain is None else _met(gain >= least),
        )
    found = data("bits-prefill")
    for model in ("Qwen2.5-VL-7B", "Llama3-8B"):
        own, lent = (found[model]["added"][f"bits 0.75{arm}"] for arm in ("", ", calibrated"))
        yield (
            f"what bits add to a prefill of 2,880 tokens, {model}: 2 %",
            f"{100 * own:.0f} %, {100 * lent:.0f} % calibrated",
            _met(own <= 0.02),
        )


def files() -> Iterator[Row]:
    """Caches in files."""
    found = [one for model in ("pocket", "pocket-llava") for one in _pictures(model)]
    if not found:
        yield "a stored cache 25 times smaller", f"not measured yet: `{STORED}`", OPEN
        return
    least = {bits: [one["plain"] / one["rows"][f"{bits}, 8-bit text"]["file"] for one in found]
             for bits in (SETTING, ".5 bits")}  # fmt: skip
    yield (
        "a stored cache 25 times smaller",
        "; ".join(f"{_reach(each, times)} at {bits} with 8-bit text"
                  for bits, each in least.items()),
        _met(min(least[SETTING]) >= 25),
    )  # fmt: skip
    sooner = [one["rows"][SETTING]["load_s"] / one["prefill_s"] for one in found]
    yield (
        "it loads faster than a prefill",
        f"{_reach(sooner, lambda value: share(value, 2))} of the prefill's time on a CPU, the "
        "vision tower's not counted",
        _met(max(sooner) < 1),
    )


def stored_rows() -> Iterator[tuple[str, ...]]:
    """Every setting: how many times smaller it is in memory and in a file, for both models."""
    models = [_pictures(model) for model in ("pocket", "pocket-llava")]
    for setting in dict.fromkeys(s for found in models for one in found for s in one["rows"]):
        cells = []
        for found in models:
            mine = [(one, one["rows"][setting]) for one in found]
            live = [one["plain"] / row["live"] for one, row in mine]
            file = [one["plain"] / row["file"] for one, row in mine]
            seen = [one["plain_visual"] / (row["file"] - row["file_text"]) for one, row in mine]
            cells += [_reach(each, times) for each in (live, file, seen)]
        yield setting, *cells


def stored_heads() -> list[str]:
    """The table's heads, with how many visual tokens a model's pictures have."""
    heads = [""]
    for model in ("pocket", "pocket-llava"):
        tokens = [one["tokens"] for one in _pictures(model)] or [0]
        many = _reach(tokens, lambda value: f"{value:,}")
        heads += [f"{model}, {many} visual tokens: memory", "file", "its visual tokens"]
    return heads
