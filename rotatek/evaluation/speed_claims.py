"""Latency, memory and throughput as a tidy table, and what the RotateK paper claims of them.

The measurements are files of `python -m benchmarks` and of `benchmarks.full_size`, as they lie in
`assets/results`; documents, claims and the page read them as records of one value each. Each claim
is a bound on ratios of two values and is judged for both of the paper's models, pair by pair, as
claims of answers are (`rotatek.evaluation.claims`). Bytes are live, as tensors hold them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rotatek.compare.columns import pruners, reducers
from rotatek.evaluation.cells import Found, Pair
from rotatek.evaluation.claims import OPEN, summed_up
from rotatek.methods.channels import CHANNELS
from rotatek.methods.channels.full import Full

SOURCES: Final = ("kernels", "efficiency", "full_size", "full_size-families")
DENSE, OURS = "dense", "RotateK k=32"
THINK, SPARK = "ThinK k=32, rebuilt", "SparK k=32, rebuilt"
TOGETHER: Final = "RotateK k=32, all layers together"
WHOLE: Final = "full width, our cache"
HEADS: Final = {(32, 8): "Llama3-8B", (28, 4): "Qwen2.5-VL-7B"}
# The paper's models, and their names where they ran whole.
MODELS: Final = {"Llama3-8B": "llava-next-8b", "Qwen2.5-VL-7B": "qwen2.5-vl-7b"}
LITTLE: Final = 0.05  # of a prefill, or of the cache: "negligible"
MOST: Final = 0.5  # of a cost or of a gain: "dominates", "largely offsets"
MAGNITUDE: Final = 10.0


class Speed(NamedTuple):
    """One measured value.

    Attributes:
        bench: what measured it: a benchmark of `benchmarks.kernels`, or full_size.
        model: whose shapes were measured; "" where they are no model's.
        method: its label.
        batch, tokens: questions at once, and visual tokens of each.
        quantity: with its unit; a share is worked out: of a prefill (`prefill_share`), of what
            attention takes beyond dense (`recovery_share`), of what channels free (`masks_share`).
        value, low, high: the median, and the quartiles where there are any.
        drawn: the registered method or pruner in whose colour a figure draws it, or "".
    """

    bench: str
    model: str
    method: str
    batch: int
    tokens: int
    quantity: str
    value: float
    low: float | None = None
    high: float | None = None
    drawn: str = ""


def measured(folder: Path) -> list[Speed]:
    """The measurements of a folder of results.

    Raises:
        OSError: if one of `SOURCES` is missing.
        ValueError: if one is damaged.
    """
    found = {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in SOURCES}
    try:
        return flat(found)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("The files of measurements are damaged. Measure again.") from error


def flat(files: Mapping[str, Mapping[str, Any]]) -> list[Speed]:
    """The measurements as records.

    Args:
        files: of `SOURCES`, by name; those that are not there are left out.
    """
    found = [*_kernels(files.get("kernels", {})), *_steps(_rows(files, "efficiency"))]
    for name in ("full_size", "full_size-families"):
        found += _families(files.get(name, {}).get("families", []))
    return [one._replace(drawn=drawn_as(one.method)) for one in found]


def drawn_as(words: str) -> str:
    """The registered method that the words of a measurement name; here, and nowhere later.

    A method that leaves channels out goes before a pruner that joins it.
    """
    if words.lower().startswith(("uncompressed", "dense", "full width")):
        return Full.name
    if words.startswith(("k=", "bf16 k", "ours")):
        return CHANNELS.default.name
    known = [*reducers(), *pruners()]
    return next((kind.name for kind in known if kind.label in words), "")


def _kernels(kernels: Mapping[str, Any]) -> Iterator[Speed]:
    """The kernels, the solver, equal memory, and what is added to a prefill."""
    for bench in ("latency", "quant", "baselines", "planes"):
        for row in _rows(kernels, bench):
            shape = row["shape"]
            place = shape["B"], shape["N"]
            model = HEADS[shape["Hq"], shape["Hkv"]]
            for method, time in row["times"].items():
                quartiles = time["low_us"], time["high_us"]
                yield Speed(bench, model, method, *place, "us", time["us"], *quartiles)
            for method, gain in row.get("over_best_dense", {}).items():
                yield Speed(bench, model, method, *place, "times the best dense", gain)
    for method, ms in kernels.get("solver", {}).get("ms", {}).items():
        yield Speed("solver", "", method, kernels["solver"]["matrices"], 0, "ms", ms)
    for row in _rows(kernels, "capacity"):
        for method, rate in row["tokens_per_s"].items():
            here = "capacity", row["model"], method, row["batch"][method], row["N"]
            yield Speed(*here, "tokens_per_s", rate)
            yield Speed(*here, "rows", row["batch"][method])
    for row in _rows(kernels, "prefill"):
        share = row["share"]["trained: together"]
        yield Speed("prefill", row["model"], TOGETHER, 1, row["N"], "prefill_share", share)


def _steps(rows: Sequence[Mapping[str, Any]]) -> Iterator[Speed]:
    """Whole steps of every method, over length and batch."""
    dense = {(row["model"], row["batch"], row["visual_tokens"]): row["attention_ms"]
             for row in rows if row["method"] == DENSE}  # fmt: skip
    for row in rows:
        place = row["model"], row["batch"], row["visual_tokens"]
        here = "efficiency", row["model"], row["method"], *place[1:]
        for quantity, value in row.items():
            if quantity.endswith(("_ms", "_mib", "_per_s")) and value is not None:
                yield Speed(*here, quantity, value)
        more = row["attention_ms"] - dense.get(place, row["attention_ms"])
        if row.get("recovery_ms") and more > 0:
            share = (row["recovery_ms"] + row["join_ms"]) / more
            yield Speed(*here, "recovery_share", share)


def _families(families: Sequence[Mapping[str, Any]]) -> Iterator[Speed]:
    """Whole models of real shapes."""
    for family in families:
        model, tokens = family["model"].partition(" ")[0], family["visual_tokens"]
        held = {method: row.get("kv_mib", 0.0) for method, row in family["rows"].items()}
        for method, row in family["rows"].items():
            for quantity, value in row.items():
                if quantity.endswith(("_ms", "_mib")) and value is not None:
                    yield Speed("full_size", model, method, 1, tokens, quantity, value)
        if {WHOLE, "ThinK k=32", "SparK k=32"} <= held.keys():
            freed = held[WHOLE] - held["ThinK k=32"]
            share = (held["SparK k=32"] - held["ThinK k=32"]) / freed
            yield Speed("full_size", model, "SparK k=32", 1, tokens, "masks_share", share)


def _rows(files: Mapping[str, Any], bench: str) -> list[Mapping[str, Any]]:
    """A benchmark's rows; a file of one benchmark holds them under its name, too."""
    found = files.get(bench, {})
    return list(found.get(bench, found).get("rows", []))


Value = tuple[str, str, str]  # benchmark, method, quantity


class SpeedClaim(NamedTuple):
    """A claim of measured values.

    Attributes:
        key, text, where: as in `rotatek.evaluation.claims`.
        first, second: the value, and what it is divided by at the same batch and length, if by
            anything.
        how, bound: "below" or "above" what.
        note: what the ratio is of.
        ends: only at the longest prompt and the largest batch, where a trend has to show.
    """

    key: str
    text: str
    where: str
    first: Value
    second: Value | None
    how: str
    bound: float
    note: str
    ends: bool = False


def judged(speeds: Sequence[Speed]) -> tuple[list[Pair], list[Found]]:
    """Every comparison of every claim for both models, and the verdicts on the claims."""
    pairs, found = list[Pair](), list[Found]()
    for claim in CLAIMS:
        for model, whole in MODELS.items():
            mine = [one for one in speeds if one.model in (model, whole, "")]
            made = list(_pairs(claim, model, mine))
            pairs += made
            here = claim.key, claim.text, claim.where, model, "measured"
            if not made:
                found.append(Found(*here, OPEN, note="not measured"))
                continue
            ratios = sorted(pair.difference for pair in made)
            ends = ratios[len(ratios) // 2], ratios[0], ratios[-1]
            found.append(summed_up(here, made, "for", ends, claim.note))
    return pairs, found


def _pairs(claim: SpeedClaim, model: str, speeds: Sequence[Speed]) -> Iterator[Pair]:
    """The claim's ratios at every batch and length."""
    first, second = (
        {(one.batch, one.tokens): one.value for one in speeds
         if (one.bench, one.method, one.quantity) == value}
        for value in (claim.first, claim.second)
    )  # fmt: skip
    if len(first) == len(second) == 1:  # of as much memory, the batches differ
        second = dict.fromkeys(first, *second.values())
    places = [place for place in first if place in second or claim.second is None]
    if claim.ends and places:
        most = max(places, key=lambda place: place[1]), max(places)
        places = [place for place in places if place in most]
    other = claim.second[1] if claim.second else ""
    for batch, tokens in places:
        value = first[batch, tokens] / second.get((batch, tokens), 1.0)
        holds = value < claim.bound if claim.how == "below" else value > claim.bound
        words = claim.key, model, claim.first[0], "measured"
        what = f"{claim.first[1]}, {batch} x {tokens}", other, f"{claim.how} {claim.bound:g}"
        yield Pair(*words, *what, 0, value, value, value, "for" if holds else "against")


def _efficiency(quantity: str, method: str = OURS) -> Value:
    return "efficiency", method, quantity


def _us(method: str) -> Value:
    return "baselines", method, "us"


def _whole(quantity: str, method: str = OURS) -> Value:
    return "full_size", method, quantity


def _capacity(quantity: str, method: str = DENSE) -> Value:
    return "capacity", method, quantity


_ADDED, _STEP, _FASTER = (
    "of the prefill, a layer at a time",
    "times the dense step",
    "times as fast",
)
CLAIMS: Final = (
    *(SpeedClaim(f"prefill-{key}", f"{words} hardly lengthens a prefill", "figure 7 a, c",
                 _efficiency("compress_ms", method), _efficiency("prefill_ms", method), "below",
                 LITTLE, _ADDED)
      for key, words, method in (("ours", "RotateK", OURS), ("think", "ThinK", THINK),
                                 ("spark", "SparK", SPARK))),
    SpeedClaim("prefill-together", "RotateK with all layers together, as the library runs it, "
               "hardly lengthens one", "", ("prefill", TOGETHER, "prefill_share"), None, "below",
               LITTLE, "of the prefill"),
    SpeedClaim("step-ours", "RotateK shortens a step of the longest prompts and largest batches",
               "figure 7 b, d", _efficiency("decode_ms"), _efficiency("decode_ms", DENSE), "below",
               1.0, _STEP, ends=True),
    *(SpeedClaim(f"step-{key}", f"{words} lengthens it", "figure 7 b, d",
                 _efficiency("decode_ms", method), _efficiency("decode_ms", DENSE), "above", 1.0,
                 _STEP, ends=True)
      for key, words, method in (("think", "ThinK", THINK), ("spark", "SparK", SPARK))),
    *(SpeedClaim(f"over-{words}", f"RotateK's attention is faster than {words}'s with rebuilt Keys",
                 "abstract", _us(f"{words}, rebuilt"), _us("ours"), "above", 1.0, _FASTER)
      for words in ("ThinK", "SparK")),
    SpeedClaim("over-gathered", "It is faster than ThinK's with a gathered query, which rebuilds "
               "nothing", "", _us("ThinK, gathered query"), _us("ours"), "above", 1.0, _FASTER),
    *(SpeedClaim(f"recovery-{words}", f"Recovery and concatenation dominate what {words} adds",
                 "figure 7 h", _efficiency("recovery_share", method), None, "above", MOST,
                 "of the additional time")
      for words, method in (("ThinK", THINK), ("SparK", SPARK))),
    SpeedClaim("masks", "SparK's masks largely offset what its channels free", "figure 7 e",
               _whole("masks_share", "SparK k=32"), None, "above", MOST,
               "of what channels free"),
    SpeedClaim("bases", "RotateK's bases cost a negligible share of memory", "figure 7 e",
               _whole("kv_mib"), _whole("kv_mib", "ThinK k=32"), "below", 1 + LITTLE,
               "times ThinK's cache"),
    SpeedClaim("peak-step", "RotateK lowers the peak of GPU memory of a decode step",
               "figure 7 e, f", _efficiency("peak_mib"), _efficiency("peak_mib", DENSE), "below",
               1.0, "times the dense peak"),
    SpeedClaim("peak-prefill", "RotateK lowers the peak with the prefill counted", "figure 7 e, f",
               _whole("prefill_extra_mib"), _whole("prefill_extra_mib", "uncompressed"), "below",
               1.0, "times plain transformers' peak beside the weights"),
    SpeedClaim("peak-generate", "RotateK lowers the peak of a whole generate, prefill and steps",
               "figure 7 e, f", _whole("generate_extra_mib"),
               _whole("generate_extra_mib", "uncompressed"), "below", 1.0,
               "times plain transformers' peak beside the weights"),
    SpeedClaim("batches", "RotateK fits larger batches into as much memory", "figure 7 f",
               _capacity("rows", "k=32"), _capacity("rows"), "above", 1.0, "times the dense rows"),
    *(SpeedClaim(f"tokens-{key}", text, "figure 7 g", _capacity("tokens_per_s", method),
                 _capacity("tokens_per_s"), how, 1.0, "times the dense tokens a second")
      for key, text, method, how in (
          ("ours", "RotateK serves more tokens a second than full Keys", "k=32", "above"),
          ("think", "ThinK serves fewer tokens a second than full Keys", THINK, "below"))),
    *(SpeedClaim(f"eigenvectors-{key}", f"{words} is ten times as fast as all eigenvectors",
                 "section 3.3", ("solver", "torch.linalg.eigh", "ms"), ("solver", method, "ms"),
                 "above", MAGNITUDE, _FASTER)
      for key, words, method in (("ours", "Our subspace iteration", "ours k=32"),
                                 ("printed", "The printed one", "paper's loop k=32"))),
)  # fmt: skip
