"""`rotatek verify`'s ladder: what each factor costs with one model, and a word of verdict."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import torch

from rotatek.engine.engine import Engine
from rotatek.engine.events import folded
from rotatek.evaluation.report import LATER, Record, table
from rotatek.evaluation.suite import Suite
from rotatek.evaluation.tables import UNCOMPRESSED
from rotatek.inputs.request import make_request
from rotatek.methods.settings import Settings

TIMED_TOKENS: Final = 32
# Verdict: KL below so many nats, and later questions' score down by no more than so many points,
# or by nothing beyond chance (the 95 % interval of the difference reaches 0).
LIMITS: Final = (("safe", 0.01, 0.0), ("fine", 0.05, 2.0), ("risky", 0.2, 10.0))
WORST: Final = "broken"
LEGEND: Final = (
    "Verdict, of follow-up questions: "
    + ", ".join(
        f"*{word}*: KL below {kl:g}, "
        + (f"at most {points:g} points lost" if points else "nothing lost beyond chance")
        for word, kl, points in LIMITS
    )
    + f"; else *{WORST}*. KL is of the uncompressed answer's tokens, by teacher forcing."
)


class Speed(NamedTuple):
    """Of one answer alone: milliseconds to its first token and for each further one (NaN where
    there was none), and the most bytes that the device held (0 where it does not count them)."""

    first_ms: float
    step_ms: float
    peak: int


class Rung(NamedTuple):
    """A setting of the ladder: its answers to follow-up questions, its speed, and a word of
    `LIMITS`; none for the uncompressed cache."""

    record: Record
    speed: Speed
    verdict: str


def speeds(
    engine: Engine, suite: Suite, settings: Mapping[str, Settings], suffix: str
) -> Iterator[tuple[str, Speed]]:
    """Each setting's answer to the suite's longest question, alone, the second of two times."""
    one = max(suite.questions, key=lambda one: (one.new_tokens, max(map(len, one.answers))))
    request = make_request(suite.picture(one.picture), one.text + suffix, TIMED_TOKENS)
    card = engine.vlm.device.type == "cuda"
    for name, chosen in settings.items():
        for _ in range(2):
            if card:
                torch.cuda.reset_peak_memory_stats()
            events = engine.compare(request, {name: chosen}, trace=False)
            told = folded(events, {name: chosen})[name].report()
        step = told["decode_ms_per_token"] if told["new_tokens"] > 1 else float("nan")
        first = told["prefill_ms"]
        yield name, Speed(first, step, torch.cuda.max_memory_allocated() if card else 0)


def rungs(records: Sequence[Record], measured: Mapping[str, Speed]) -> list[Rung]:
    """A rung for each setting that was timed; records: of one model, its splits apart or not."""
    every = records[-1].split if records else ""
    mine = {one.setting: one for one in records if (one.split, one.turn) == (every, LATER)}
    return [
        Rung(mine[name], speed, "" if name == UNCOMPRESSED else verdict(mine[name]))
        for name, speed in measured.items()
        if name in mine
    ]


def verdict(one: Record) -> str:
    """The first word of `LIMITS` that a record of follow-up questions keeps."""
    for word, kl, points in LIMITS:
        if one.kl < kl and (one.difference_high >= 0 or 100 * one.difference >= -points):
            return word
    return WORST


def advice(found: Sequence[Rung], factors: Mapping[str, float]) -> str:
    """The last line: the largest factor that is safe, else that is fine; factors: by setting."""
    for word, *_ in LIMITS[:2]:
        good = [factors.get(one.record.setting, 0.0) for one in found if one.verdict == word]
        if max(good, default=0):
            return f"Use `--smaller {max(good):g}` with this model."
    return "Keep this model's cache uncompressed: no factor of the ladder is safe or fine."


def markdown(found: Sequence[Rung]) -> str:
    """The ladder as a table; what was not measured is left empty."""
    heads = (
        "setting", "bytes", "KL, nats", "same answers, %", "follow-up score, %",
        "difference, points", "first token, ms", "a token, ms", "peak, MB", "verdict",
    )  # fmt: skip
    lines = [
        [one.setting, f"{one.bytes:.3f}", f"{one.kl:.4f}", f"{100 * one.same:.1f}",
         f"{100 * one.score:.1f}", f"{100 * one.difference:+.1f}", f"{speed.first_ms:.0f}",
         f"{speed.step_ms:.1f}", f"{speed.peak / 1e6:,.0f}" if speed.peak else "", word]
        for one, speed, word in found
    ]  # fmt: skip
    return table([heads, *lines])
