"""What the RotateK paper claims of latency, memory and throughput, beside what was measured.

The measurements are files of `python -m benchmarks.kernels` and of `benchmarks.full_size`, as they
lie in `assets/results`: `kernels`, `efficiency` and `full_size`. A claim is judged for each of the
paper's two shapes; one whose measurement is not there stays open. Bytes are live, as tensors hold
them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rotatek.evaluation.claims import FOUND, NOT_FOUND, OPEN

Files = Mapping[str, Mapping[str, Any]]
Row = Mapping[str, Any]
LITTLE: Final = 0.05  # of a prefill, or of the cache: "negligible"
MOST: Final = 0.5  # of a cost or of a gain: "dominates", "largely offsets"
MAGNITUDE: Final = 10.0
DENSE, OURS = "dense", "RotateK k=32"
THINK, SPARK = "ThinK k=32, rebuilt", "SparK k=32, rebuilt"


class Shapes(NamedTuple):
    """One of the paper's models, by the names that the files have for it."""

    name: str
    heads: tuple[int, int]
    full_size: str


MODELS: Final = (
    Shapes("Llama3-8B", (32, 8), "llava-next-8b"),
    Shapes("Qwen2.5-VL-7B", (28, 4), "qwen2.5-vl-7b"),
)
Judged = tuple[bool, str] | None  # whether it was found, and the figures; None: not measured
Judge = Callable[[Files, Shapes], Judged]


class SpeedClaim(NamedTuple):
    """A claim in words, where it stands, the benchmark that asks it, and how it is judged."""

    text: str
    where: str
    bench: str
    judge: Judge


def judged(files: Files) -> list[dict[str, Any]]:
    """Every claim with its verdict and figures for each model, as plain values."""
    return [
        {
            "text": claim.text,
            "where": claim.where,
            "bench": claim.bench,
            "found": {shapes.name: _verdict(claim.judge(files, shapes)) for shapes in MODELS},
        }
        for claim in CLAIMS
    ]


def _verdict(found: Judged) -> dict[str, str]:
    if found is None:
        return {"verdict": OPEN, "figures": ""}
    return {"verdict": FOUND if found[0] else NOT_FOUND, "figures": found[1]}


def _rows(files: Files, shapes: Shapes) -> list[Row]:
    """Of the efficiency measurement, whether it stands alone or in the file of all benchmarks."""
    found = files.get("efficiency") or files.get("kernels", {})
    found = found.get("efficiency", found)
    return [row for row in found.get("rows", []) if row["model"] == shapes.name]


def _by_shape(files: Files, shapes: Shapes, *methods: str) -> list[tuple[Row, ...]]:
    """Rows of the same length and batch under each of some methods."""
    by = {(r["method"], r["batch"], r["visual_tokens"]): r for r in _rows(files, shapes)}
    places = dict.fromkeys((batch, tokens) for _, batch, tokens in by)
    return [
        tuple(by[method, *place] for method in methods)
        for place in places
        if all((method, *place) in by for method in methods)
    ]


def _ends(pairs: Sequence[tuple[Row, ...]]) -> list[tuple[Row, ...]]:
    """Those of the longest prompt and of the largest batch, where a trend has to show."""
    if not pairs:
        return []
    longest = max(pairs, key=lambda rows: rows[0]["visual_tokens"])
    largest = max(pairs, key=lambda rows: rows[0]["batch"])
    return [longest, largest] if longest is not largest else [longest]


def _span(values: Iterable[float], form: str = ".2f") -> str:
    found = sorted(values)
    low, high = format(found[0], form), format(found[-1], form)
    return low if low == high else f"{low} to {high}"


def _prefill(method: str) -> Judge:
    """Adds little to a prefill at every shape; ours as it runs, all layers together, where that
    was measured, and a layer at a time beside it, as the others are."""

    def judge(files: Files, shapes: Shapes) -> Judged:
        shares = [
            row["compress_ms"] / row["prefill_ms"]
            for row in _rows(files, shapes)
            if row["method"] == method and row.get("prefill_ms") and row["compress_ms"] is not None
        ]
        alone = f"{_span((100 * one for one in shares), '.1f')} % more" if shares else ""
        if method == OURS:
            rows = files.get("kernels", {}).get("prefill", {}).get("rows", [])
            joined = [row["share"] for row in rows if row["model"] == shapes.name]
            mine = [share["trained: together"] for share in joined]
            if mine:
                beside = f" ({alone} a layer at a time)" if alone else ""
                said = f"{_span((100 * one for one in mine), '.1f')} % more{beside}"
                return max(mine) <= LITTLE, said
        return (max(shares) <= LITTLE, f"{alone}, a layer at a time") if shares else None

    return judge


def _slower(method: str) -> Judge:
    """Slower than dense at the longest prompt and the largest batch."""

    def judge(files: Files, shapes: Shapes) -> Judged:
        pairs = _by_shape(files, shapes, method, DENSE)
        if not pairs:
            return None
        ratios = [one["decode_ms"] / other["decode_ms"] for one, other in pairs]
        ends = [one["decode_ms"] > other["decode_ms"] for one, other in _ends(pairs)]
        return all(ends), f"{_span(ratios)} times the dense step"

    return judge


def _faster(files: Files, shapes: Shapes) -> Judged:
    """Faster than dense at the longest prompt and the largest batch."""
    pairs = _by_shape(files, shapes, OURS, DENSE)
    if pairs:
        ratios = [other["decode_ms"] / one["decode_ms"] for one, other in pairs]
        ends = [one["decode_ms"] < other["decode_ms"] for one, other in _ends(pairs)]
        return all(ends), f"a step is {_span(ratios)} times as fast"
    steps = files.get("kernels", {}).get("step", {}).get("rows", [])
    gains = [(row["B"] * row["N"], row["gain"]) for row in steps if row["model"] == shapes.name]
    if not gains:
        return None
    return max(gains)[1] > 1, f"a step is {_span(gain for _, gain in gains)} times as fast"


def _over(arm: str) -> Judge:
    """Attention is faster than another method's with rebuilt Keys at every shape."""

    def judge(files: Files, shapes: Shapes) -> Judged:
        rows = files.get("kernels", {}).get("baselines", {}).get("rows", [])
        mine = [row["times"] for row in rows if _heads(row) == shapes.heads]
        gains = [times[arm]["us"] / times["ours"]["us"] for times in mine]
        return (min(gains) > 1, f"attention is {_span(gains)} times as fast") if gains else None

    return judge


def _heads(row: Row) -> tuple[int, int]:
    return row["shape"]["Hq"], row["shape"]["Hkv"]


def _dominates(method: str) -> Judge:
    """Recovery and concatenation are most of what attention takes beyond the dense one's."""

    def judge(files: Files, shapes: Shapes) -> Judged:
        shares = []
        for one, dense in _by_shape(files, shapes, method, DENSE):
            more = one["attention_ms"] - dense["attention_ms"]
            if "recovery_ms" in one and more > 0:
                shares.append((one["recovery_ms"] + one["join_ms"]) / more)
        if not shares:
            return None
        return min(shares) > MOST, f"{_span(shares)} of the additional time"

    return judge


def _held(files: Files, shapes: Shapes, label: str) -> float | None:
    """MiB of a full-size model's cache under a setting."""
    for family in files.get("full_size", {}).get("families", []):
        if family["model"].startswith(shapes.full_size) and label in family["rows"]:
            return float(family["rows"][label]["kv_mib"])
    return None


def _masks(files: Files, shapes: Shapes) -> Judged:
    """SparK's masks take most of the bytes that leaving channels out frees."""
    names = "full width, our cache", "ThinK k=32", "SparK k=32"
    whole, think, spark = (_held(files, shapes, name) for name in names)
    if whole is None or think is None or spark is None:
        return None
    share = (spark - think) / (whole - think)
    return share > MOST, f"masks and signs take {share:.2f} of what channels free"


def _overhead(files: Files, shapes: Shapes) -> Judged:
    """RotateK holds hardly more than the channels alone, which ThinK's cache is."""
    think, ours = (_held(files, shapes, name) for name in ("ThinK k=32", OURS))
    if think is None or ours is None:
        return None
    return ours / think - 1 <= LITTLE, f"{100 * (ours / think - 1):.1f} % above ThinK's cache"


def _peak(files: Files, shapes: Shapes) -> Judged:
    """Less GPU memory at its peak, at every shape."""
    pairs = _by_shape(files, shapes, OURS, DENSE)
    if not pairs:
        return None
    ratios = [one["peak_mib"] / dense["peak_mib"] for one, dense in pairs]
    return max(ratios) < 1, f"{_span(ratios)} of the dense peak"


def _capacity(files: Files, shapes: Shapes) -> Row | None:
    rows = files.get("kernels", {}).get("capacity", {}).get("rows", [])
    return next((row for row in rows if row["model"] == shapes.name), None)


def _batches(files: Files, shapes: Shapes) -> Judged:
    """More rows in as much memory."""
    row = _capacity(files, shapes)
    if row is None:
        return None
    ours, dense = row["batch"]["k=32"], row["batch"][DENSE]
    return ours > dense, f"{ours} rows where dense has {dense}"


def _throughput(arm: str, above: bool) -> Judge:
    """More (or fewer) tokens a second than dense in as much memory."""

    def judge(files: Files, shapes: Shapes) -> Judged:
        speeds = (_capacity(files, shapes) or {}).get("tokens_per_s", {})
        if arm not in speeds:
            return None
        gain = speeds[arm] / speeds[DENSE]
        return (gain > 1) == above, f"{gain:.2f} times the dense tokens a second"

    return judge


def _solver(files: Files, shapes: Shapes) -> Judged:
    """An order of magnitude faster than all eigenvectors; the same for both models."""
    ms = files.get("kernels", {}).get("solver", {}).get("ms", {})
    if "torch.linalg.eigh" not in ms:
        return None
    gains = [ms["torch.linalg.eigh"] / ms[name] for name in ("ours k=32", "paper's loop k=32")]
    return min(gains) >= MAGNITUDE, f"{_span(gains, ',.0f')} times as fast as torch.linalg.eigh"


CLAIMS: Final = (
    SpeedClaim("RotateK hardly lengthens a prefill", "figure 6 a, c", "prefill", _prefill(OURS)),
    SpeedClaim("ThinK hardly lengthens a prefill", "figure 6 a, c", "efficiency", _prefill(THINK)),
    SpeedClaim("SparK hardly lengthens a prefill", "figure 6 a, c", "efficiency", _prefill(SPARK)),
    SpeedClaim("RotateK shortens a step of long prompts and large batches", "figure 6 b, d",
               "efficiency", _faster),
    SpeedClaim("ThinK lengthens a step of long prompts and large batches", "figure 6 b, d",
               "efficiency", _slower(THINK)),
    SpeedClaim("SparK lengthens a step of long prompts and large batches", "figure 6 b, d",
               "efficiency", _slower(SPARK)),
    SpeedClaim("RotateK decodes faster than ThinK with rebuilt Keys", "abstract", "baselines",
               _over("ThinK, rebuilt")),
    SpeedClaim("RotateK decodes faster than SparK with rebuilt Keys", "abstract", "baselines",
               _over("SparK, rebuilt")),
    SpeedClaim("Recovery and concatenation dominate what ThinK adds", "figure 6 h", "efficiency",
               _dominates(THINK)),
    SpeedClaim("Recovery and concatenation dominate what SparK adds", "figure 6 h", "efficiency",
               _dominates(SPARK)),
    SpeedClaim("SparK's masks largely offset what its channels free", "figure 6 e",
               "benchmarks.full_size", _masks),
    SpeedClaim("RotateK's bases cost a negligible share of memory", "figure 6 e",
               "benchmarks.full_size", _overhead),
    SpeedClaim("RotateK lowers the peak of GPU memory", "figure 6 e, f", "efficiency", _peak),
    SpeedClaim("RotateK fits larger batches into as much memory", "figure 6 f", "capacity",
               _batches),
    SpeedClaim("RotateK serves more tokens a second than full Keys", "figure 6 g", "capacity",
               _throughput("k=32", above=True)),
    SpeedClaim("ThinK serves fewer tokens a second than full Keys", "figure 6 g", "capacity",
               _throughput(THINK, above=False)),
    SpeedClaim("Subspace iteration is ten times as fast as all eigenvectors", "section 3.3",
               "solver", _solver),
)  # fmt: skip
